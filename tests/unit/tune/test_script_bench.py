"""The bench that starts a program: against a program without torch that answers as a training would."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from whyidle.capture.tuning.guard import Guard, WouldOverwrite
from whyidle.commands.tune import said_of_writes
from whyidle.errors import WhyidleError
from whyidle.record.run import open_run
from whyidle.record.tuning import ANSWERS, ORDERS, LoaderSettings
from whyidle.tune import training
from whyidle.tune.training import RUN, BenchEnded, Launch, NothingToTune, ScriptBench, TrialFailed, end_all, members

ANSWERS_ORDERS = """
import json, os, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from whyidle.record.tuning import Channel
folder = Path(os.environ["WHYIDLE_RUN"])
line = Channel.of_training(folder)
own = {"num_workers": 0, "batch_size": 4}
def ready():
    line.send("ready", settings=own, batches_per_epoch=10, samples=40, fixed={"in_order": "why not"}, steps=60)
def orders(closes=lambda workers: None):
    ready()
    while (order := line.receive(1000))["say"] != "stop":
        if order["say"] == "close": closes(order["settings"].num_workers)
        else: yield order, order["settings"].num_workers
def block(order):
    times = {"begin_ns": 0, "end_ns": int(1e9), "wait_ns": 0}
    line.send("block", block={"settings": order["settings"], "batches": 20, "samples": 80, **times})
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def bench(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ScriptBench, Path]]:
    """Runs whatever is in program.py."""
    monkeypatch.setattr(training, "STOP_SECONDS", 1.0)
    program = tmp_path / "program.py"
    with ScriptBench(launch_of(program), tmp_path / "out", lambda: None, said.append) as bench:
        yield bench, program


def launch_of(program: Path, budget_s: float | None = None) -> Launch:
    return Launch(
        [sys.executable, str(program)],
        lambda folder, tune: {**os.environ, RUN: str(folder), "OPTIONS": json.dumps(dict(tune))},
        budget_s=budget_s,
    )


def write(program: Path, text: str) -> None:
    program.write_text(ANSWERS_ORDERS + text)


LOOP = """
for order, workers in orders():
    block(order)
"""


def test_orders_are_answered_by_blocks_and_nothing_is_left_at_the_end(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    write(program, "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n" + LOOP)
    four = LoaderSettings(4, 2, batch_size=4)
    assert running.baseline == LoaderSettings(0, batch_size=4)
    assert (running.ready.batches_per_epoch, running.ready.fixed) == (10, {"in_order": "why not"})
    assert running.measure(four, 0.5).settings == four
    assert running.measure(four.without_loader(), 0.5).settings.held
    assert running.steps == 60 + 20 + 20
    folder = running.run_folder
    assert len(members(f"{RUN}={folder}")) == 2
    running.end()
    assert members(f"{RUN}={folder}") == {}
    assert not (folder / ORDERS).exists()
    assert not (folder / ANSWERS).exists()
    assert open_run(folder).info["ended"]["status"] == "stopped"


def test_temporary_folders_of_processes_that_are_killed_are_removed(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    listens = "from multiprocessing.connection import Listener\nfrom whyidle.capture.tuning import guard\n"
    listens += "guard.install(str(folder), json.loads(os.environ['OPTIONS']))\nkept = Listener(family='AF_UNIX')\n"
    write(program, listens + "print(kept.address, flush=True)\nready()\ntime.sleep(1000)\n")
    assert running.ready.steps == 60
    address = Path((running.run_folder / "output.txt").read_text().strip())
    assert address.parent.is_dir()
    running.end()
    assert not address.parent.exists()


FAILS = """
for order, workers in orders():
    if workers == 3: line.send("oom", settings=order["settings"], why="no memory")
    elif workers == 5: os.kill(os.getpid(), 7)
    else: block(order)
"""


def test_settings_that_do_not_work_are_told_from_a_training_that_ended(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    write(program, FAILS)
    with pytest.raises(TrialFailed, match="no memory") as failed:
        running.measure(LoaderSettings(3, 2), 0.1)
    assert failed.value.out_of_memory
    assert running.measure(LoaderSettings(2, 2), 0.1).batches == 20
    assert running.starts == 1
    with pytest.raises(TrialFailed, match=r"SIGBUS.*/dev/shm"):
        running.measure(LoaderSettings(5, 2), 0.1)
    # Tried once more without the other settings, whose queues could have been to blame.
    assert running.starts == 2
    assert running.measure(LoaderSettings(2, 2), 0.1).batches == 20
    assert running.starts == 3


STOPS_AT = """
for number, (order, workers) in enumerate(orders()):
    if number == 2 or workers == 7:
        line.send("failed", settings=order["settings"], why="ValueError: tried to step 21 times", ended=True)
        sys.exit(1)
    block(order)
"""


def test_a_training_whose_steps_are_used_up_is_no_fault_of_the_settings(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    write(program, STOPS_AT)
    for workers in (2, 3, 4):
        assert running.measure(LoaderSettings(workers, 2), 0.1).batches == 20
    assert running.starts == 2
    # Those with which it ends twice have failed.
    with pytest.raises(TrialFailed, match="tried to step 21 times") as failed:
        running.measure(LoaderSettings(7, 2), 0.1)
    assert (failed.value.out_of_memory, running.starts) == (False, 3)


SHARED = """
loaders = set()
for order, workers in orders(loaders.discard):
    loaders.add(workers)
    if sum(loaders) > 8:
        loaders.discard(workers)
        line.send("oom", settings=order["settings"], why="out of shared memory")
    else: block(order)
"""


def test_what_fits_alone_is_not_out_of_memory_for_the_queues_of_others(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    write(program, SHARED)
    for workers in (0, 4, 6, 4, 6, 8):
        assert running.measure(LoaderSettings(workers, 2 if workers else None, batch_size=4), 0.1).batches == 20
    with pytest.raises(TrialFailed, match="shared memory") as failed:
        running.measure(LoaderSettings(9, 2, batch_size=4), 0.1)
    assert failed.value.out_of_memory
    assert running.starts == 1


def test_settings_with_which_it_hangs_fail(bench: tuple[ScriptBench, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running, program = bench
    write(program, LOOP.replace("block(order)", "time.sleep(1000) if workers == 5 else block(order)"))
    assert running.ready.steps == 60
    with monkeypatch.context() as soon, pytest.raises(TrialFailed, match=r"did not answer.*with these settings.*hangs"):
        soon.setattr(training, "ANSWER_SECONDS", 1.0)
        running.measure(LoaderSettings(5, 2), 0.1)
    assert running.measure(LoaderSettings(2, 2), 0.1).batches == 20
    assert running.starts == 2


@pytest.mark.parametrize(("budget", "before"), [(30.0, 15.0), (1000.0, 60.0), (None, 60.0)])
def test_it_is_taken_over_within_half_the_budget(tmp_path: Path, budget: float | None, before: float) -> None:
    program = tmp_path / "program.py"
    write(program, "print(os.environ['OPTIONS'], flush=True)\n" + LOOP)
    with ScriptBench(launch_of(program, budget), tmp_path / "out", lambda: None, lambda _: None) as bench:
        assert bench.ready.steps == 60
        assert json.loads((bench.run_folder / "output.txt").read_text())["before_s"] == before


def test_a_training_that_ends_by_itself_is_started_again(bench: tuple[ScriptBench, Path], said: list[str]) -> None:
    running, program = bench
    write(
        program, "asked = []\n" + LOOP.replace("block(order)", "len(asked) and sys.exit(0); asked.append(block(order))")
    )
    for _ in range(3):
        assert running.measure(LoaderSettings(2, 2), 0.1).batches == 20
    assert running.starts == 3
    assert sum("starting it again" in line for line in said) == 2
    with pytest.raises(BenchEnded, match="3 times"):
        running.measure(LoaderSettings(2, 2), 0.1)


REFUSED = """
(folder / "tuning.writes").write_text(json.dumps({"path": "/data/model.pt", "kind": "refused"}) + "\\n")
line.send("refused", why="PermissionError: guarded", steps=0)
"""


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("raise ValueError('no such thing')\n", WhyidleError, r"(?s)exit code 1.*Its last output.*no such thing"),
        (REFUSED, NothingToTune, r"overwrite /data/model\.pt.*--overwrite"),
    ],
)
def test_a_program_that_dies_or_refuses_at_once_says_why(
    bench: tuple[ScriptBench, Path], text: str, error: type[Exception], why: str
) -> None:
    running, program = bench
    write(program, text)
    with pytest.raises(error, match=why):
        _ = running.ready


def test_what_a_launcher_leaves_behind_still_counts(bench: tuple[ScriptBench, Path]) -> None:
    running, program = bench
    inner = program.with_name("inner.py")
    write(inner, LOOP)
    program.write_text(f"import subprocess, sys\nsubprocess.Popen([sys.executable, {str(inner)!r}])\n")
    assert running.measure(LoaderSettings(2, 2), 0.1).batches == 20
    assert running.starts == 1


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_waits_until_it_is_ended(bench: tuple[ScriptBench, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    running, program = bench
    write(program, "ready()\nwhile True: time.sleep(1)\n")
    assert running.ready.steps == 60
    folder = running.run_folder

    def interrupted(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        end_all(*arguments)

    monkeypatch.setattr(training, "end_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.end()
    assert members(f"{RUN}={folder}") == {}


def test_files_that_were_there_are_not_the_user_s_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, run = tmp_path / "here", tmp_path / "run"
    here.mkdir()
    run.mkdir()
    monkeypatch.chdir(here)
    old, new = here / "old.csv", here / "new.csv"
    old.write_text("mine")
    os.utime(old, (1e9, 1e9))
    guard = Guard(str(run), time.time(), False)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    guard.opens(new, append)
    new.write_text("theirs")
    for path in (old, new):
        guard.opens(path, append)
    # A worker, which does not know that the file is old: it has been added to since.
    old.write_text("mine and theirs")
    Guard(str(run), time.time() - 60, False).opens(old, append | os.O_TRUNC)
    many = [("new", f"/data/{number}") for number in range(9)] + [("refused", "/data/kept")]
    assert "/data/3, /data/4 and 4 more. They are yours" in said_of_writes(many)[0]
    assert said_of_writes(training.writes(run)) == [
        f"The training wrote new files: {new}. They are yours to remove.",
        f"The training added to files that were there, or opened them to change them: {old}.",
    ]


def test_whoever_works_in_a_folder_for_temporary_files_keeps_the_files_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, other, run = tmp_path / "work", tmp_path / "other", tmp_path / "run"
    for folder in (work, other, run):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(work)
    guard = Guard(str(run), time.time() + 10, overwrite=False)
    for folder in (work, other, run):
        (folder / "model.pt").write_bytes(b"weights")
    guard.opens(str(other / "model.pt"), os.O_WRONLY | os.O_TRUNC)
    guard.opens(str(run / "model.pt"), os.O_WRONLY | os.O_TRUNC)
    with pytest.raises(WouldOverwrite, match="existed before"):
        guard.opens("model.pt", os.O_WRONLY | os.O_TRUNC)


def test_a_function_that_writes_past_python_is_looked_at_however_it_is_given_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, folder in (("TMPDIR", "cache"), ("HF_HOME", "cache"), ("CCACHE_BASEDIR", "project")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    (tmp_path / "project").mkdir()
    path = tmp_path / "project" / "model.safetensors"
    path.write_bytes(b"weights")

    def serialize_file(tensors: object, filename: object) -> object:
        return filename

    module = SimpleNamespace(serialize_file=serialize_file)
    Guard(str(tmp_path / "run"), time.time() + 10, overwrite=False).cover(module, serialize_file, 1, "filename")
    for given in (str(path), path, os.fsencode(path)):
        with pytest.raises(WouldOverwrite):
            module.serialize_file({}, given)
        with pytest.raises(WouldOverwrite):
            module.serialize_file({}, filename=given)
    assert module.serialize_file({}, filename=str(tmp_path / "new")) == str(tmp_path / "new")
