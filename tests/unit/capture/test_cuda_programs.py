"""Whole programs on the stand-in for torch.cuda, recorded with the real hooks: the report says what the engines did."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from support import gpu_programs
from support.cuda import MS, US, GpuSpec, Machine, installed
from support.cuda.machine import BOUNDARY
from support.cuda.recorded import Run, assert_true
from support.gpu_programs import BATCH, WAITS, Data, Learner, Prefetcher, follows, loader, moved, net, plain
from whyidle.analyse.run.facts import facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture.marks import MAX_UNRESOLVED
from whyidle.capture.recording import recording
from whyidle.capture.tuning.processes import memory_use
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, STEP, EventKind, StepFlag

GPU = GpuSpec()
FULL = GpuSpec(used_by_others=GPU.memory_bytes - 10**6)
SLOW_LINK = GpuSpec(pinned_bytes_per_s=2_000)
"""A batch has 160 bytes."""


@pytest.mark.parametrize(
    ("how", "spec", "step_ms"),
    [
        ({"load_ns": 70 * MS}, {}, 40),
        ({"load_ns": 70 * MS, "pinned": True}, {}, 40),
        ({"load_ns": 10 * MS, "pinned": True}, {}, 40),
        ({"waits": WAITS["item"]}, {}, 40),
        ({"waits": WAITS["item"], "after_ns": 30 * MS}, {}, 40),
        ({"load_ns": 10 * MS, "after_ns": 80 * MS, "pinned": True}, {}, 40),
        ({}, {"pageable_bytes_per_s": 10_000}, 40),
        ({"pinned": True}, {"pinned_bytes_per_s": 20_000}, 40),
        ({"load_ns": 70 * MS}, {"answer_late_ns": MS // 2}, 40),
        ({"load_ns": 700 * MS, "steps": 100}, {"drift": 50e-6}, 400),
        # The rate is not known yet in the first seconds; the driver answers a little late besides.
        (
            {"load_ns": 60 * MS, "after_ns": 100 * MS, "waits": WAITS["item"], "steps": 20},
            {"drift": -40e-6, "answer_late_ns": 20 * US},
            100,
        ),
        # WSL, idle laptop GPUs: stamps are known to within the time of a mark's arrival only.
        ({"load_ns": 600 * MS, "after_ns": 200 * MS}, {"arrival_ns": 300 * US}, 400),
        ({"load_ns": 600 * MS, "after_ns": 200 * MS, "waits": WAITS["item"]}, {"arrival_ns": 300 * US}, 400),
    ],
)
def test_a_plain_loop(run: Run, how: dict[str, Any], spec: dict[str, Any], step_ms: int) -> None:
    recorded = run(lambda _: plain(**how), GpuSpec(**spec), step_ns=step_ms * MS)
    assert recorded.device == "cuda"
    assert recorded.machine.streams_built < 60  # a mark makes no object of Python
    assert_true(recorded)


PROGRAMS: list[Any] = []
Program = Callable[[Machine], None]


def told(program: Program, spec: GpuSpec = GPU, step_ms: int = 40) -> Program:
    """A program is reported as its engines worked, on a device of this kind with steps of so long."""
    PROGRAMS.append(pytest.param(program, spec, step_ms, id=program.__name__))
    return program


for shared in (
    gpu_programs.accumulates,
    gpu_programs.scaled,
    gpu_programs.computes_on_another_stream,
    gpu_programs.all_on_another_stream,
    gpu_programs.looks_at_a_batch_first,
    gpu_programs.captures_among_its_steps,
    gpu_programs.replays_whole_steps,
):
    told(shared)


@told
def has_a_teacher(_: Machine) -> None:
    """A module that learns nothing is called first."""
    learner, teacher = Learner(), net().cuda()
    for batch in loader(60, 60 * MS):
        images, _labels = moved(batch)
        with torch.no_grad():
            wanted = teacher(images)
        learner.optimizer.zero_grad()
        (learner.model(images) - wanted).square().mean().backward()
        learner.optimizer.step()


@told
def validates(machine: Machine) -> None:
    learner, training, validation = Learner(), loader(25, 60 * MS), loader(5, 60 * MS)
    for _ in range(4):
        for batch in training:
            learner.step(*moved(batch))
        with machine.at(BOUNDARY):
            with torch.no_grad():
                for images, labels in validation:
                    cross_entropy(learner.model(images.cuda()), labels.cuda()).item()
            machine.host(50 * MS, BOUNDARY)


@told
def computes_on_two_streams(_: Machine) -> None:
    learner, other, side = Learner(), net().cuda(), torch.cuda.Stream()
    learner.optimizer.add_param_group({"params": other.parameters()})
    for batch in loader(60, 60 * MS):
        images, labels = moved(batch)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            beside = cross_entropy(other(images), labels)
        loss = cross_entropy(learner.model(images), labels)
        follows(side)
        learner.optimizer.zero_grad()
        (loss + beside).backward()
        learner.optimizer.step()


@told
def waits_in_its_layers(_: Machine) -> None:
    """As FSDP2 does for its collectives (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py)."""
    learner, gather = Learner(), torch.cuda.Stream(priority=-1)

    def unshard(_module: object, _args: object) -> None:
        with torch.cuda.stream(gather):
            torch.cuda._sleep(6 * MS)
            event = gather.record_event()
        torch.cuda.current_stream().wait_event(event)

    for layer in (learner.model[0], learner.model[2]):  # type: ignore[index]
        layer.register_forward_pre_hook(unshard)
    for batch in loader(60, 60 * MS):
        gather.wait_stream(torch.cuda.current_stream())
        learner.step(*moved(batch))


@told
def fetches_on_another_stream(_: Machine) -> None:
    learner, side, batches = Learner(), torch.cuda.Stream(), iter(loader(60, 20 * MS, pin_memory=True))
    while True:
        with torch.cuda.stream(side):
            batch = next(batches, None)
        if batch is None:
            return
        learner.step(*moved(batch, pinned=True))


@told
def moves_its_model_late(_: Machine) -> None:
    learner = Learner("cpu")
    learner.model.cuda()
    for batch in loader(60, 60 * MS):
        learner.step(*moved(batch))


@told
def catches_an_error(_: Machine) -> None:
    learner = Learner()
    for number, (images, labels) in enumerate(loader(60, 60 * MS)):
        try:
            learner.step(images.cuda() if number % 10 else images, labels.cuda())
        except RuntimeError:
            continue  # tensors of two devices


@told
def packs_on_the_host(machine: Machine) -> None:
    """What is copied is not what the loader handed over."""
    learner = Learner()
    for images, labels in loader(60, 20 * MS):
        machine.host(25 * MS)
        learner.step(torch.cat([images, images])[:4].cuda(), labels.cuda())


@partial(told, step_ms=150)
def runs_out_of_memory_while_it_copies_ahead(_: Machine) -> None:
    """What was kept for the copies is freed: they allocate anew, within the call that copies."""
    learner = Learner(kind=torch.optim.AdamW)
    for number, (images, labels) in enumerate(Prefetcher(loader(8, MS, pin_memory=True), follows)):
        if number == 4:
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(10**10, dtype=torch.uint8, device="cuda")
            continue
        learner.step(images, labels)


def copies_ahead(_: Machine, waits: Callable[[torch.cuda.Stream], None] = follows) -> None:
    learner = Learner()
    for images, labels in Prefetcher(loader(60, 20 * MS, pin_memory=True), waits):
        learner.step(images, labels)


for link in (SLOW_LINK, GpuSpec(pinned_bytes_per_s=4_000), GpuSpec(pinned_bytes_per_s=20_000)):
    told(copies_ahead, link)


@partial(told, spec=SLOW_LINK)
def copies_ahead_and_waits_for_an_event(machine: Machine) -> None:
    copies_ahead(machine, lambda side: side.record_event().wait())


def copies_beside(wait: Callable[[torch.cuda.Event], object]) -> None:
    learner, side = Learner(), torch.cuda.Stream()
    for batch in loader(60, 20 * MS, pin_memory=True):
        with torch.cuda.stream(side):
            images, labels = moved(batch, pinned=True)
            copied = side.record_event()
        wait(copied)
        learner.step(images, labels)


@partial(told, spec=SLOW_LINK)
def a_stream_waits_for_a_copy_beside_it(_: Machine) -> None:
    copies_beside(lambda copied: torch.cuda.current_stream().wait_event(copied))


@partial(told, spec=SLOW_LINK)
def a_copy_beside_the_computation_is_waited_for(_: Machine) -> None:
    copies_beside(lambda copied: copied.wait())


@pytest.mark.parametrize(("program", "spec", "step_ms"), PROGRAMS)
def test_what_a_program_does_is_told_as_it_was(run: Run, program: Program, spec: GpuSpec, step_ms: int) -> None:
    recorded = run(program, spec, step_ns=step_ms * MS)
    assert recorded.device == "cuda"
    assert recorded.facts.window.count >= (15 if step_ms == 40 else 1)
    assert_true(recorded)


def test_accelerate_moves_batches_within_its_loader(run: Run) -> None:
    """The real one. The model moves after the optimizer was made, and batches move where they are fetched."""

    def program(machine: Machine) -> None:
        accelerator, learner = Accelerator(), Learner("cpu")
        model, optimizer, batches = accelerator.prepare(learner.model, learner.optimizer, loader(60, 60 * MS))
        for images, labels in batches:
            loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        recorded = run(program)
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert recorded.device == "cuda"
    assert_true(recorded)


def test_a_prefetcher_begins_an_epoch_while_the_queue_is_full(run: Run) -> None:
    """As in any training that the device limits: the host is a queue's length ahead."""

    def program(_: Machine) -> None:
        learner, batches = Learner(), loader(8, MS, pin_memory=True)
        for _epoch in range(4):
            for images, labels in Prefetcher(batches, follows):
                learner.step(images, labels)

    recorded = run(program, GpuSpec(queue_depth=48), step_ns=100 * MS)
    assert len(open_run(recorded.folder).records(STEP)) == 32
    assert_true(recorded)


def test_steps_that_a_device_far_behind_has_not_come_to_get_no_stamps_and_those_behind_them_do(run: Run) -> None:
    def program(machine: Machine) -> None:
        for _ in range(2):
            plain(5 * MS, steps=100, pinned=True)
            torch.cuda.synchronize()

    recorded = run(program, GpuSpec(queue_depth=1 << 14), step_ns=100 * MS)
    stamps = open_run(recorded.folder).records(STEP)["device_begin_ns"]
    assert len(stamps) == 200
    # The device has done five of each hundred when the host is through.
    assert (stamps == NOT_MEASURED).sum() == pytest.approx(2 * (95 - MAX_UNRESOLVED), abs=2)
    assert_true(recorded)


class Broken(Data):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if index == 40 * BATCH:
            raise ValueError("a broken file")
        return super().__getitem__(index)


def ends_without_memory(machine: Machine) -> None:
    plain(60 * MS)
    torch.empty(10**10, dtype=torch.uint8, device="cuda")


def ends_with_its_data(_: Machine) -> None:
    learner = Learner()
    for batch in DataLoader(Broken(60, 15 * MS), batch_size=BATCH):
        learner.step(*moved(batch))


def ends_with_an_assertion(machine: Machine) -> None:
    plain(60 * MS)
    machine.assert_on_device()
    torch.cuda.synchronize()


def asserts_in_its_midst(machine: Machine) -> None:
    learner = Learner()
    for number, batch in enumerate(loader(60, 60 * MS)):
        if number == 40:
            machine.assert_on_device()
        learner.step(*moved(batch))


@pytest.mark.parametrize(
    ("program", "error", "said", "steps"),
    [
        (ends_without_memory, torch.OutOfMemoryError, "out of memory", 60),
        (ends_with_its_data, ValueError, "a broken file", 40),
        (ends_with_an_assertion, torch.AcceleratorError, "device-side assert", 60),
        (asserts_in_its_midst, torch.AcceleratorError, "device-side assert", 40),
    ],
)
def test_an_error_ends_the_program_and_the_recording(
    run: Run, program: Program, error: type[Exception], said: str, steps: int
) -> None:
    recorded = run(program, error=error)
    assert said in str(recorded.error)
    there = open_run(recorded.folder)
    assert EventKind.TRAINING_END in there.records(EVENT)["what"]
    assert steps <= len(there.records(STEP)) <= steps + 1
    assert facts_of(there) is not None
    if error is not torch.AcceleratorError:
        assert_true(recorded)


@pytest.mark.parametrize(("first", "touched"), [(GPU, False), (FULL, False), (GPU, True)])
def test_the_model_is_on_the_second_device(run: Run, first: GpuSpec, touched: bool) -> None:
    """`touched`: by the program itself, whose first device is taken for the training's until it has learnt."""

    def program(machine: Machine) -> None:
        if touched:
            torch.ones(1).cuda()
        plain(60 * MS, device="cuda:1")

    recorded = run(program, first, GPU)
    assert recorded.device == "cuda:1"
    assert recorded.machine.gpus[0].has_context == touched
    assert_true(recorded, recorded.machine.gpus[1])


def test_a_copy_to_another_device_than_the_trainings_is_no_batch_of_its(run: Run) -> None:
    def program(_: Machine) -> None:
        learner = Learner()
        for images, labels in loader(60, 60 * MS):
            images[:1].to("cuda:1")
            learner.step(images.cuda(), labels.cuda())

    recorded = run(program, GPU, GPU)
    assert set(open_run(recorded.folder).records(STEP)["copy_bytes"]) == {4 * 8 * 4}
    assert_true(recorded)


def test_the_memory_of_the_device_in_use_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(Machine(GPU, GPU), monkeypatch)
    kept = torch.zeros(1024, device="cuda:1")
    use = memory_use()
    assert (use.on_device, use.peak_bytes) == (True, kept.nbytes)


@pytest.mark.parametrize(("device", "first"), [("cpu", GPU), ("cuda:1", GPU), ("cuda:1", FULL)])
def test_the_api_leaves_devices_that_are_not_used_as_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, first: GpuSpec
) -> None:
    machine = installed(Machine(first, GPU), monkeypatch)
    if device != "cpu":
        torch.cuda.set_device(1)
    with recording(tmp_path / "run", sampler=False):
        plain(device=device, steps=10)
    assert torch.cuda.is_initialized() == (device != "cpu")
    assert torch.cuda.current_device() == (device != "cpu")
    assert not machine.gpu.has_context


@pytest.mark.parametrize("wait", WAITS)
def test_a_call_that_waits_for_the_device_is_seen(run: Run, wait: str) -> None:
    recorded = run(lambda _: plain(20 * MS, 15 * MS, waits=WAITS[wait]))
    assert_true(recorded)
    assert (open_run(recorded.folder).records(STEP)["sync_ns"] > 10 * MS).all()


def test_no_call_of_ours_waits_for_the_device_but_one_at_the_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        alone = installed(Machine(), patch)
        plain(10 * MS, pinned=True)
    recorded = run(lambda _: plain(10 * MS, pinned=True))
    assert recorded.machine.synchronised - alone.synchronised <= 1


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize(("before_ms", "after_ms"), [(35, 0), (0, 35), (35, 35)])
def test_a_stage_behind_the_loader_is_time_of_the_host(run: Run, before_ms: int, after_ms: int, pinned: bool) -> None:
    """Packing, tokenising, augmenting."""
    assert_true(run(lambda _: plain(20 * MS, before_ns=before_ms * MS, moved_ns=after_ms * MS, pinned=pinned)))


@pytest.mark.parametrize(
    ("kernel_ms", "more"),
    [
        pytest.param(5, -100 * 5 / 100, id="they have ended when the copy comes"),
        pytest.param(20, 100 * 25 / 105, id="the copy finds them at work"),
    ],
)
def test_of_kernels_without_gradients_it_is_not_known_when_they_ran(run: Run, kernel_ms: int, more: float) -> None:
    """As docs/how-it-measures.md says: all from the hand-over of the batch to the copy is the host's, or all of it is
    computing. `more`: points of computing that the report says more than there are, and less of the host."""

    def program(machine: Machine) -> None:
        learner = Learner()
        machine.durations["mul"] = kernel_ms * MS
        for _, labels in loader(60, 60 * MS):
            machine.host(25 * MS)
            given = torch.ones(4, 8, device="cuda") * 2
            machine.host(15 * MS)
            learner.step(given, labels.cuda())

    recorded = run(program)
    assert recorded.notices == []
    off = dict.fromkeys(PARTS, 0.0) | {"compute": more, "host": -more}
    assert recorded.off_by() == pytest.approx(off, abs=0.1)


def test_an_idle_device_is_seen_to_be_idle_when_a_batch_is_asked_for(run: Run) -> None:
    recorded = run(lambda _: plain(20 * MS, 30 * MS, waits=WAITS["item"]))
    flags = open_run(recorded.folder).records(STEP)["flags"][5:]
    assert (flags & StepFlag.DRAINED_KNOWN != 0).all()
    assert (flags & StepFlag.DRAINED_AT_ENTRY != 0).all()
