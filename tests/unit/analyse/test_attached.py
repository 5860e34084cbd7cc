"""Shares of what was seen from outside and their intervals, and the causes from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.rendered import rendered
from support.stacks import CALL, ENGINE, FETCH, IMPORTS, LIB, NEXT, TORCH, WAIT, WORKER, record_threads, stack
from whyidle.analyse.attached import stacks
from whyidle.analyse.attached.attached import Attached, attached
from whyidle.analyse.attached.causes import findings_of, verdict_of
from whyidle.analyse.attached.trainers import Cpu, SeenThread, Trainer, Workers
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.resource_usage import Sampled
from whyidle.analyse.statistics import Estimate, wilson
from whyidle.record.run import ProcessStates, create_run, open_run, write_states
from whyidle.record.stacks import Call, CallStack
from whyidle.report.contract import run as run_json
from whyidle.report.documents.attached import attached_document

CHECKING = stack("/home/me/checks.py:check", text="table = {}")


def looked_at(folder: Path, thread: SeenThread, kind: str = "cpu", before: Sequence[CallStack] = ()) -> Attached:
    """A recorded folder of a process of which nothing but one thread's stacks was seen."""
    create_run(folder, {"attach": {"pid": 7, "seconds": 9.0}, "device": {"kind": kind}})
    write_states(folder, [ProcessStates(7, 1, "python")])
    record_threads(folder, [thread], before=before)
    return attached(open_run(folder))


def test_failed_looks_count_as_running_and_never_as_waiting() -> None:
    busy = stack(CALL)
    looks = Counter({WAIT: 50, busy: 30, stack("/a.py:f", text="time.sleep(1)"): 10})
    weights = SeenThread(1, 1, looks, missed=10).weights
    assert weights[WAIT] == 50
    assert weights[busy] == pytest.approx(40)
    assert sum(weights.values()) == pytest.approx(100)


def host(**values: float) -> Sampled:
    given: dict[str, Any] = {"unseen_end_s": 0.0, "device_unseen_end_s": 0.0, "cpu_budget": 8.0, "tree_cpus": 2.0}
    return Sampled(**given | values)


def workers(**values: Any) -> Workers:
    given: dict[str, Any] = {
        "count": 2.0, "seen": 2, "cpu": Cpu(0.9, 0.02, 0.0), "looks": 400, "busy": 0.95,
        "stages": {"decode": 0.8, "read": 0.2},
        "top": (("decode (d.py:3)", 0.8),), "read_bytes_per_s": 0.0, "read_chars_per_s": 0.0,
    }  # fmt: skip
    return Workers(**given | values)


def trainer(shares: dict[str, float], looks: int = 200, pid: int = 7, **values: Any) -> Trainer:
    given: dict[str, Any] = {
        "rank": None, "cpu": Cpu(0.4, 0.0, 0.0), "waits": {"waiting": 1.0}, "validation_waits": {}, "stages": {},
        "top": {}, "pin_thread": False, "workers": None,
    }  # fmt: skip
    thread = SeenThread(pid, pid, Counter({WAIT: looks}))
    return Trainer(thread, shares={n: wilson(s, looks) for n, s in shares.items()}, **given | values)


def seen(*trainers: Trainer, kind: str | None = "cpu", **values: Any) -> Attached:
    info = {
        "attach": {"pid": 7},
        "command": ["python", "train.py"],
        "device": {"kind": kind, "title": "x"} if kind else None,
        "host": {"cpus": 8},
    }
    given: dict[str, Any] = {"sampled": host(), "foreign_cpus": 0.0}
    return Attached(info=info, seconds=20.0, trainers=trainers, others=(), **given | values)


def judge(what: Attached) -> Finding:
    return verdict_of(what, findings_of(what))


COMPUTING = {"forward": 0.3, "backward": 0.2}
WAITING = {"data wait": 0.5, **COMPUTING}


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (seen(trainer({"data making": 0.5, **COMPUTING})), "input.serial"),
        (seen(trainer(WAITING, workers=workers())), "input.too_few_workers"),
        (seen(trainer(WAITING)), "input.too_few_workers"),
        (seen(trainer(WAITING, workers=workers(count=0.3))), "input.too_few_workers"),
        (seen(trainer(WAITING, workers=workers()), sampled=host(tree_cpus=7.5)), "input.cpu_exhausted"),
        (
            seen(trainer(WAITING, workers=workers(cpu=Cpu(2.0, 0.3, 0.0, 0.6))), sampled=host(tree_cpus=7.5)),
            "input.worker_threads",
        ),
        (
            seen(trainer(WAITING, workers=workers(count=16.0, cpu=Cpu(0.4, 0.5, 0.0))), sampled=host(tree_cpus=7.8)),
            "input.oversubscribed",
        ),
        (
            seen(trainer(WAITING, workers=workers(cpu=Cpu(0.4, 0.5, 0.0))), sampled=host(machine_busy_pct=99.0)),
            "input.foreign_load",
        ),
        (seen(trainer(WAITING, workers=workers()), sampled=host(throttled_s=6.0, cpu_budget=2.0)), "input.cpu_quota"),
        (seen(trainer(WAITING, workers=workers(cpu=Cpu(0.2, 0.0, 0.7)))), "input.storage"),
        (
            seen(trainer(WAITING, workers=workers(cpu=Cpu(0.1, 0.0, 0.0), stages={"read": 0.9, "decode": 0.1}))),
            "input.storage",
        ),
        (seen(trainer(WAITING, waits={"unpacking": 0.8, "waiting": 0.2}, workers=workers(busy=0.3))), "input.handoff"),
        (seen(trainer(WAITING, waits={"starting workers": 0.7}, workers=workers(seen=8))), "input.worker_restart"),
        (seen(trainer({"checkpoint": 0.4, "forward": 0.6})), "host.boundary"),
        (seen(trainer({"logging": 0.4, "forward": 0.6})), "host.step_gap"),
        (seen(trainer({"python": 0.4, "forward": 0.6})), "host.step_gap"),
        (seen(trainer({"sync": 0.3, "forward": 0.6, "data wait": 0.1}, workers=workers(busy=0.3))), "host.step_gap"),
        (seen(trainer({"forward": 0.58, "backward": 0.4, "data wait": 0.02})), "none"),
        (seen(trainer({"forward": 0.8, "data making": 0.04, "logging": 0.04, "python": 0.04, "copy": 0.08})), None),
        (seen(trainer({"forward": 0.6, "backward": 0.4}), kind="cuda", sampled=host(utilisation_pct=80.0)), None),
        (seen(trainer({"sync": 0.7, "forward": 0.3}), kind="cuda", sampled=host(utilisation_pct=50.0)), "host.sync"),
        (seen(trainer({"sync": 0.7, "forward": 0.3}), kind="cuda", sampled=host(utilisation_pct=97.0)), "none"),
        (seen(trainer(WAITING, workers=workers()), kind="cuda", sampled=host(utilisation_pct=98.0)), "none"),
        (seen(trainer({"copy": 0.5, "sync": 0.5}), kind="cuda", sampled=host(utilisation_pct=72)), "copy.pageable"),
        (seen(trainer({"forward": 0.9, "sync": 0.1}), kind="cuda", sampled=host(utilisation_pct=40.0)), "host.launch"),
        (
            seen(trainer({"backward": 1.0}, rank=0), trainer(WAITING, rank=1, pid=8, workers=workers())),
            "rank.straggler",
        ),
    ],
)  # fmt: skip
def test_causes_follow_from_what_was_seen(what: Attached, cause: str | None) -> None:
    verdict = judge(what)
    assert verdict.cause == cause
    assert (cause is None) == ("20 % of the time has no name" in verdict.title)
    assert (0 < verdict.confidence < 1) == (cause is not None)


def test_a_wait_costs_a_gpu_at_most_the_time_it_ran_no_kernel() -> None:
    used = judge(seen(trainer(WAITING, workers=workers()), kind="cuda", sampled=host(utilisation_pct=80.0)))
    assert used.cause == "input.too_few_workers"
    assert used.share == pytest.approx(0.2)
    unknown = judge(seen(trainer(WAITING, workers=workers()), kind="cuda"))
    assert "not known" in unknown.title
    assert unknown.confidence < used.confidence


def test_the_rank_that_holds_the_others_up_is_the_one_the_verdict_is_about_with_what_to_do() -> None:
    both = seen(trainer({"backward": 1.0}, rank=0), trainer(WAITING, rank=1, pid=8, workers=workers()))
    assert both.leading is both.trainers[1]
    first, second = findings_of(both)[:2]
    assert (first.cause, second.cause) == ("rank.straggler", "input.too_few_workers")
    assert "rank 1" in first.title
    assert "50 % of its time" in first.title
    assert first.next[0].change == "On rank 1 (input.too_few_workers): Set `num_workers=5` instead of 2"
    assert "Workers busy" in [e.what for e in first.evidence]


def test_a_few_looks_at_a_wait_do_not_tell_its_kinds_apart() -> None:
    wait = {"waits": {"unpacking": 0.7, "waiting": 0.3}, "workers": workers(busy=0.5)}
    assert judge(seen(trainer(WAITING, looks=40, **wait))).cause == "input.handoff"
    few = judge(seen(trainer(WAITING, looks=38, **wait)))
    assert few.cause == "input.prefetch_depth"
    assert few.next[0].change.startswith("Prefetch more batches")


EVALUATING = {"data wait": 0.12, "forward": 0.6, "backward": 0.2, "optimizer": 0.08}
"""As a training does that evaluates after each epoch: from outside that looks like its forward passes."""


@pytest.mark.parametrize(
    ("given", "cause"),
    [({"seen": 28}, "input.worker_restart"), ({"seen": 2}, None), ({"seen": 4, "count": 4.0}, None)],
)
def test_idle_workers_are_never_too_few(given: dict[str, Any], cause: str | None) -> None:
    idle = workers(busy=0.01, cpu=Cpu(0.03, 0.0, 0.0), stages={"transform": 1.0}, **given)
    few = seen(trainer(EVALUATING, looks=72, waits={"waiting": 0.78, "starting workers": 0.22}, workers=idle))
    verdict = judge(few)
    assert verdict.cause == cause
    assert not any("num_workers" in each.change for each in verdict.next)
    assert verdict.next
    if cause is None:
        assert "waits 12 % of the time for data, but its workers do not show why" in verdict.title
    else:
        shown = {each.what: each for each in verdict.evidence}
        anew = shown["Iterators of the loader in these epochs"]
        assert (anew.value, anew.expected) == (14, "1")
        assert "persistent_workers=True" in verdict.next[0].change


@pytest.mark.parametrize(("kind", "classes"), [("cpu", {"forward", "sync"}), ("cuda", {"sync"})])
def test_on_a_processor_reading_values_within_a_model_is_its_computing(
    tmp_path: Path, kind: str, classes: set[str]
) -> None:
    read = stack(CALL, "/home/me/model.py:Net.forward", text="if mask.any().item():")
    looks = Counter({read: 30, stack(text="total += loss.item()"): 10, WAIT: 60})
    only = looked_at(tmp_path / kind, SeenThread(7, 7, looks), kind=kind).trainers[0]
    assert set(only.shares) - {"data wait"} == classes


def test_too_little_seen_gives_no_verdict_and_says_why() -> None:
    for what, why in (
        (seen(trainer(WAITING, looks=29, workers=workers())), "only 29 stack samples"),
        (seen(), "no Python process"),
        (seen(trainer({}), stacks_read=False), "stacks were not read"),
        (
            seen(trainer({"python": 1.0}, top={"python": (("f (a.py:1)", 1.0),)}), training_seen=False),
            "mostly in f (a.py:1)",
        ),
    ):
        verdict = judge(what)
        assert verdict.cause is None
        assert why in verdict.title


def test_without_stacks_an_idle_training_beside_busy_workers_is_still_told() -> None:
    without = workers(busy=None, looks=0, stages={})
    verdict = judge(seen(trainer({}, cpu=Cpu(0.1, 0.0, 0.0), workers=without), stacks_read=False))
    assert verdict.cause == "input.too_few_workers"
    assert verdict.confidence <= 0.5


def folder_of(path: Path, **info: Any) -> Path:
    """A recorded folder: a training that waits for one worker, which sleeps."""
    folder = create_run(
        path / "run", {"attach": {"pid": 7, "seconds": 10.0}, "command": ["python", "\x1b[2Jtrain.py"], **info}
    )
    sleeping = stack(NEXT, WORKER, FETCH, "/home/me/da\x1b[31mta.py:__getitem__", text="time.sleep(1)")
    backwards = stack(ENGINE)
    record_threads(
        folder,
        [
            SeenThread(7, 7, Counter({WAIT: 60, backwards: 40})),
            SeenThread(7, 9, Counter({stack(f"{TORCH}/utils/data/_utils/pin_memory.py:_pin_memory_loop"): 100})),
            SeenThread(8, 8, Counter({sleeping: 100})),
        ],
    )
    states = ProcessStates(
        7, 1, "python", "python train.py", None, 10.0, 100, {"S": 100}, 4 * 10**9, 4 * 10**9, 0, 0, 0, True
    )
    worker = replace(states, pid=8, parent=7, name="pt_data_worker", cpu_ns=10**8, main_cpu_ns=10**8)
    write_states(folder, [states, worker, replace(states, pid=9, parent=7, command="sampler", ours=True)])
    return folder


def test_a_recorded_folder_is_read_back_into_shares_workers_and_text_without_control_characters(tmp_path: Path) -> None:
    found = attached(open_run(folder_of(tmp_path, device={"kind": "cpu", "title": "the CPU"})))
    (only,) = found.trainers
    assert (only.pid, only.share("data wait"), only.share("backward"), only.pin_thread) == (7, 0.6, 0.4, True)
    assert isinstance(only.shares["data wait"], Estimate)
    assert only.workers is not None
    assert (only.workers.count, only.workers.busy, only.workers.stages) == (1.0, 1.0, {"wait": 1.0})
    assert only.workers.cpu.running == pytest.approx(0.01)
    assert found.others == ()
    findings = findings_of(found)
    verdict = verdict_of(found, findings)
    assert verdict.cause == "input.too_few_workers"
    assert "\x1b" not in rendered(attached_document(found, verdict, findings), 100)
    content = run_json.attached_report(found, verdict, findings)
    assert content["trainers"][0]["shares"]["data wait"]["share"] == 0.6
    assert content["verdict"]["cause"] == "input.too_few_workers"


def test_looks_from_before_the_training_count_for_nothing(tmp_path: Path) -> None:
    importing = [stack(*IMPORTS, f"{TORCH}/__init__.py:<module>")] * 20
    found = looked_at(tmp_path / "run", SeenThread(7, 7, Counter({WAIT: 30, CHECKING: 20})), before=importing)
    (only,) = found.trainers
    assert (only.looks, only.shares.keys()) == (50, {"data wait", "python"})


def test_a_folder_that_was_cut_short_is_still_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "attach-processes.json").unlink()
    found = attached(open_run(folder))
    assert found.trainers[0].share("data wait") == 0.6
    for path in folder.glob("stack-*.rec"):
        path.unlink()
    assert attached(open_run(folder)).trainers == ()
    assert judge(attached(open_run(folder))).cause is None


@pytest.mark.parametrize(
    ("making", "cpu", "budget", "wanted"),
    [
        (0.5, Cpu(0.95, 0.0, 0.0, 0.95), 8.0, 2),  # as long as computing: ceil(0.5 / 0.5 / 0.8)
        (0.7, Cpu(0.95, 0.0, 0.0, 0.95), 8.0, 3),
        (0.7, Cpu(0.95, 0.0, 0.0, 0.95), 2.0, 2),  # no more than the CPUs
        (0.7, Cpu(0.35, 0.0, 0.0, 0.35), 2.0, 3),  # which such samples use half of the time at most
        (0.7, Cpu(0.35, 0.6, 0.0, 0.35), 2.0, 2),  # unless they wait for those
        (0.7, Cpu(None, None, None), 2.0, 2),
    ],
)
def test_as_many_workers_are_advised_as_have_to_be_under_way(
    making: float, cpu: Cpu, budget: float, wanted: int
) -> None:
    shares = {"data making": making, "forward": 1 - making}
    found = judge(seen(trainer(shares, cpu=cpu), sampled=host(cpu_budget=budget)))
    assert found.cause == "input.serial"
    assert found.next[0].change.startswith(f"Set `num_workers={wanted}`")


SAVE = f"{TORCH}/serialization.py:save"
LOADER = f"{TORCH}/utils/data/dataloader.py"
QUEUE = f"{LIB}/multiprocessing/queues.py:Queue.get"
IDLE = stack(NEXT, WORKER, QUEUE)
STEP = f"{TORCH}/optim/optimizer.py:Optimizer.profile_hook_step.<locals>.wrapper"


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (WAIT, "data wait"),
        (stack(NEXT, f"{TORCH}/multiprocessing/reductions.py:rebuild_storage_fd"), "data wait"),
        (stack("/x/site-packages/tqdm/std.py:__iter__", *(f"{c.file}:{c.function}" for c in WAIT[1:])), "data wait"),
        (stack(NEXT, FETCH, "/home/me/data.py:__getitem__"), "data making"),
        (stack(NEXT, FETCH, "/home/me/data.py:__getitem__", CALL, text="x.to(torch.float)"), "data making"),
        (stack("/home/me/model.py:Net.forward", CALL, f"{TORCH}/nn/modules/linear.py:Linear.forward"), "forward"),
        (stack(CALL, "/home/me/model.py:Net.forward", text="return a + b"), "forward"),
        (stack(CALL, "/home/me/model.py:Net.forward", text="if mask.any().item():"), "sync"),
        (stack(text="total += loss.item()"), "sync"),
        (stack(text="x, y = x.to(device), y.to(device)"), "copy"),
        (stack("/x/accelerate/utils/operations.py:send_to_device"), "copy"),
        (stack(f"{TORCH}/cuda/__init__.py:synchronize"), "sync"),
        (stack(f"{TORCH}/_tensor.py:Tensor.backward", f"{TORCH}/autograd/__init__.py:backward", ENGINE), "backward"),
        (stack(STEP, f"{TORCH}/optim/adam.py:Adam.step"), "optimizer"),
        (stack(STEP, "/x/lightning/loops/optimization.py:closure", CALL), "forward"),
        (stack(SAVE, f"{TORCH}/serialization.py:_save", text="storage.cpu()"), "checkpoint"),
        (stack("/x/transformers/trainer.py:Trainer._save_checkpoint", "/x/a.py:b"), "checkpoint"),
        (stack(f"{LIB}/logging/__init__.py:Logger._log"), "logging"),
        (stack(text="print('epoch', epoch)"), "logging"),
        (stack(f"{TORCH}/distributed/distributed_c10d.py:barrier"), "ranks"),
        (stack(f"{TORCH}/_inductor/codecache.py:compile"), "compiling"),
        (stack("/home/me/train.py:bookkeeping", text="table = {}"), "python"),
        (stack(*IMPORTS, f"{TORCH}/distributed/distributed_c10d.py:<module>"), "importing"),
        (stack(*IMPORTS, f"{TORCH}/nn/functional.py:<module>", f"{TORCH}/_ops.py:<module>"), "importing"),
        (stack(NEXT, *IMPORTS, f"{TORCH}/_inductor/codecache.py:<module>"), "importing"),
        (stack(*IMPORTS, "/home/me/app.py:<module>", STEP, f"{TORCH}/optim/adam.py:Adam.step"), "optimizer"),
    ],
)  # fmt: skip
def test_the_innermost_telling_frame_decides_the_class(seen: CallStack, expected: str) -> None:
    assert stacks.class_of(seen) == expected


def test_an_import_is_told_by_the_outermost_package_and_no_training() -> None:
    inner = stack(*IMPORTS, f"{TORCH}/__init__.py:<module>", *IMPORTS, "/venv/lib/site-packages/sympy/core.py:<module>")
    assert stacks.leaf_of(inner) == "importing torch"


@pytest.mark.parametrize(
    ("seen", "trains"),
    [
        # A model that is built is no training yet.
        (stack(f"{TORCH}/nn/modules/linear.py:Linear.__init__", f"{TORCH}/nn/init.py:uniform_"), False),
        (stack(CALL, f"{TORCH}/nn/modules/linear.py:Linear.forward"), True),
        (stack(*IMPORTS, f"{TORCH}/nn/modules/module.py:<module>"), False),
        (WAIT, True),
        (IDLE, False),
    ],
)
def test_what_only_prepares_is_no_training(seen: CallStack, trains: bool) -> None:
    assert stacks.is_training(seen) is trains
    assert stacks.is_worker(seen) == (seen == IDLE)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([QUEUE, f"{TORCH}/multiprocessing/reductions.py:rebuild_storage_fd"], "unpacking"),
        ([f"{LOADER}:DataLoader._get_iterator", f"{LIB}/multiprocessing/popen_fork.py:_launch"], "starting workers"),
        ([f"{LOADER}:_shutdown_workers", f"{LIB}/multiprocessing/process.py:join"], "ending workers"),
        ([QUEUE], "waiting"),
    ],
)  # fmt: skip
def test_kinds_of_waiting_for_data_are_told(frames: list[str], expected: str) -> None:
    assert stacks.data_wait_kind(stack(NEXT, *frames)) == expected


DRAWING = [
    ("def evaluate(net, held):\n    with torch.no_grad():\n        for x, y in held: #here\n            net(x)", True),
    ("@torch.inference_mode()\ndef check(net, held):\n    return sum(net(x) for x in held) #here", True),
    ("def main():\n    with torch.no_grad():\n        x = next(held) #here\n        net(x)", True),
    ("@torch.no_grad\ndef check():\n    for x in tqdm(held): #here\n        score(net(x))", True),
    # What moves the training's next batch ahead gives it to nothing by a name of its own.
    ("@torch.no_grad()\ndef preload(self):\n    self.x = next(self.loader) #here\n    self.x = self.x.cuda()", False),
    ("def main():\n    for x in loader: #here\n        with torch.no_grad():\n            net(x)", False),
    ("@torch.no_grad()\ndef main():\n    for x in loader: #here\n        learn(x).backward()", False),
    ("def main():\n    for x in loader: #here\n        net(x)", False),
]


@pytest.mark.parametrize(("source", "validates"), DRAWING)
@pytest.mark.parametrize("making", [False, True])
def test_data_that_are_drawn_without_gradients_are_validation_s(
    tmp_path: Path, source: str, validates: bool, making: bool
) -> None:
    program = tmp_path / "program.py"
    program.write_text(source + "\n")
    lines = source.splitlines()
    number = next(at for at, line in enumerate(lines, 1) if "#here" in line)
    name = next(line for line in lines if line.startswith("def ")).removeprefix("def ").partition("(")[0]
    drawing = Call(name, str(program), number, lines[number - 1].strip())
    inner = stack(NEXT, FETCH, "/home/me/data.py:__getitem__") if making else WAIT
    looks = Counter({(drawing, *inner[1:]): 60, stack(ENGINE): 40})
    found = looked_at(tmp_path / "run", SeenThread(7, 7, looks))
    kind = "making" if making else "wait"
    assert found.trainers[0].share(f"validation {kind}") == (0.6 if validates else 0.0)
    assert found.trainers[0].share(f"data {kind}") == (0.0 if validates else 0.6)
    verdict = judge(found)
    assert (verdict.cause == "host.boundary") is validates
    if validates and making:
        (cause,) = (each.value for each in verdict.evidence if each.what.startswith("Cause of"))
        assert cause == "input.serial"
        assert verdict.next[0].change.startswith("For the validation loader: set `num_workers=")


@pytest.mark.parametrize(
    "frame", ["lightning/pytorch/loops/evaluation_loop.py:run", "transformers/trainer.py:evaluate"]
)
def test_libraries_evaluate_where_they_say_so(frame: str) -> None:
    assert stacks.is_validation(stack(f"/x/site-packages/{frame}", *(f"{c.file}:{c.function}" for c in WAIT[1:])))
    assert not stacks.is_validation(WAIT)


VALIDATING = {"validation wait": 0.5, **COMPUTING}


@pytest.mark.parametrize(
    ("what", "inner"),
    [
        (trainer(VALIDATING, workers=workers()), "input.too_few_workers"),
        (
            trainer(VALIDATING, validation_waits={"starting workers": 0.9}, workers=workers(seen=8)),
            "input.worker_restart",
        ),
        (trainer(VALIDATING, workers=workers(busy=0.01)), None),
    ],
)
def test_a_validation_s_waits_are_the_boundary_s_with_the_loader_s_cause_as_evidence(
    what: Trainer, inner: str | None
) -> None:
    verdict = judge(seen(what))
    assert (verdict.cause, verdict.share) == ("host.boundary", 0.5)
    assert [each.value for each in verdict.evidence if each.what.startswith("Cause of")] == ([inner] if inner else [])
    assert verdict.next[-1].change == "Validate less often, or on a part of the data"


@pytest.mark.parametrize(
    ("busy_pct", "change"),
    [(0.0, "For the validation loader: set `num_workers="), (99.0, "Run it where nothing else runs")],
)
def test_a_validation_that_others_hold_up_is_not_told_to_change_its_loader(busy_pct: float, change: str) -> None:
    waiting = {"validation wait": 0.5, **COMPUTING}
    queued = workers(cpu=Cpu(0.4, 0.5, 0.0))
    verdict = judge(seen(trainer(waiting, workers=queued), sampled=host(machine_busy_pct=busy_pct)))
    assert verdict.cause == "host.boundary"
    assert verdict.next[0].change.startswith(change)
