"""What an audit of the CUDA paths found, on the stand-in for torch.cuda."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn.functional import cross_entropy
from torchvision import tv_tensors

from support.cuda import MS, US, GpuSpec, Machine, installed
from support.cuda.collectives import ProcessGroup, reduce_gradients
from support.cuda.programs import Prefetcher, loader, net, plain, prefetching
from support.cuda.recorded import Run, assert_true
from whyidle.analyse.run.facts import facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture.recording import recording
from whyidle.capture.tuning.sized import memory_use
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, STEP, EventKind, StepFlag

GPU = GpuSpec()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    loss = cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# Finding 1


def test_one_batch_is_looked_at_before_the_model_moves(run: Run) -> None:
    """As in PyTorch's quickstart."""

    def program(machine: Machine) -> None:
        for images, _ in loader(5):
            assert images.shape[0] == 4
            break
        plain(machine, 60 * MS)

    recorded = run(program)
    assert recorded.device == "cuda"
    assert_true(recorded)


def test_the_training_loader_is_asked_for_one_batch_first(run: Run) -> None:
    def program(machine: Machine) -> None:
        batches = loader(60, 60 * MS)
        next(iter(batches))
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in batches:
            step(model, optimizer, images.cuda(), labels.cuda())

    recorded = run(program)
    assert recorded.device == "cuda"
    assert_true(recorded)


def test_the_optimizer_is_made_before_the_model_moves(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.cuda()
        for images, labels in loader(60, 60 * MS):
            step(model, optimizer, images.cuda(), labels.cuda())

    recorded = run(program)
    assert recorded.device == "cuda"
    assert_true(recorded)


def test_accelerate_moves_batches_within_its_loader(run: Run) -> None:
    """The real one. The model moves after the optimizer was made, and batches move where they are fetched."""

    def program(machine: Machine) -> None:
        accelerator = Accelerator()
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, batches = accelerator.prepare(model, optimizer, loader(60, 60 * MS))
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


# Finding 2


def test_the_model_is_on_the_second_device(run: Run) -> None:
    recorded = run(lambda machine: plain(machine, 60 * MS, device="cuda:1"), GPU, GPU)
    assert recorded.device == "cuda:1"
    assert_true(recorded, recorded.machine.gpus[1])


def test_a_device_that_the_program_leaves_alone_is_left_alone(run: Run) -> None:
    recorded = run(lambda machine: plain(machine, 60 * MS, device="cuda:1"), GPU, GPU)
    assert not recorded.machine.gpus[0].has_context


@pytest.mark.parametrize(
    "first",
    [GpuSpec(exclusive_to_another=True), GpuSpec(used_by_others=GPU.memory_bytes - 10**6)],
    ids=["exclusive", "full"],
)
def test_the_first_device_cannot_be_used(run: Run, first: GpuSpec) -> None:
    recorded = run(lambda machine: plain(machine, 60 * MS, device="cuda:1"), first, GPU)
    assert recorded.device == "cuda:1"
    assert_true(recorded, recorded.machine.gpus[1])


def test_a_rank_of_ddp_that_does_not_set_its_device(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().to("cuda:1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        reduce_gradients(ProcessGroup(machine, 1), model, (2 * MS, 2 * MS))
        for images, labels in loader(60, 60 * MS):
            step(model, optimizer, images.to("cuda:1"), labels.to("cuda:1"))

    recorded = run(program, GPU, GPU)
    assert recorded.device == "cuda:1"
    assert not recorded.machine.gpus[0].has_context
    assert_true(recorded, recorded.machine.gpus[1])


def test_a_copy_to_another_device_than_the_trainings_is_no_batch_of_its(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 60 * MS):
            images[:1].to("cuda:1")
            step(model, optimizer, images.cuda(), labels.cuda())

    recorded = run(program, GPU, GPU)
    steps = open_run(recorded.folder).records(STEP)
    assert set(steps["copy_bytes"]) == {4 * 8 * 4}
    assert_true(recorded)


def test_the_memory_of_the_device_in_use_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(Machine(GPU, GPU), monkeypatch)
    kept = torch.zeros(1024, device="cuda:1")
    use = memory_use()
    assert (use.on_device, use.peak_bytes) == (True, kept.nbytes)


# Finding 3


def test_the_api_leaves_the_current_device_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = installed(Machine(GPU, GPU), monkeypatch)
    torch.cuda.set_device(1)
    with recording(tmp_path / "run", sampler=False):
        assert torch.cuda.current_device() == 1
    assert not machine.gpus[0].has_context


def test_the_api_initialises_nothing_in_a_training_on_the_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine = installed(Machine(GPU), monkeypatch)
    with recording(tmp_path / "run", sampler=False):
        plain(machine, device="cpu", steps=10)
    assert not torch.cuda.is_initialized()
    assert not machine.gpu.has_context


def test_the_api_goes_on_where_the_first_device_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = installed(Machine(GpuSpec(used_by_others=GPU.memory_bytes - 10**6), GPU), monkeypatch)
    with recording(tmp_path / "run", sampler=False):
        plain(machine, device="cuda:1", steps=10)


# Finding 4


def test_subclasses_of_tensors_keep_their_type(run: Run) -> None:
    kinds = []

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(20, 60 * MS):
            image = tv_tensors.Image(images[None])
            kinds.append(type(image.to("cuda")))
            step(model, optimizer, images.cuda(), labels.cuda())

    run(program)
    assert set(kinds) == {tv_tensors.Image}


# Finding 5


def test_the_computation_runs_on_another_stream_than_the_fetch(run: Run) -> None:
    def program(machine: Machine) -> None:
        side = torch.cuda.Stream()
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 20 * MS, pin_memory=True):
            with torch.cuda.stream(side):
                step(model, optimizer, images.cuda(non_blocking=True), labels.cuda(non_blocking=True))

    assert_true(run(program))


def test_the_fetch_runs_on_another_stream_than_the_computation(run: Run) -> None:
    def program(machine: Machine) -> None:
        side = torch.cuda.Stream()
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = iter(loader(60, 20 * MS, pin_memory=True))
        while True:
            with torch.cuda.stream(side):
                batch = next(batches, None)
            if batch is None:
                return
            step(model, optimizer, *(each.cuda(non_blocking=True) for each in batch))

    assert_true(run(program))


def test_all_of_it_runs_on_a_stream_that_is_not_current_when_the_recording_ends(run: Run) -> None:
    def program(machine: Machine) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            plain(machine, 60 * MS, pinned=True)

    assert_true(run(program))


# Finding 7


def test_fsdp2_waits_for_its_collectives(run: Run) -> None:
    """The calls of FSDP2's forward on one rank, of prefetched all-gathers: copy-in on one stream, the collective on
    another, then `current_stream().wait_event(all_gather_event)` and the copy-out (torch/distributed/fsdp/_fully_shard/
    _fsdp_collectives.py, `foreach_all_gather`, `foreach_all_gather_copy_out`)."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        copy_in, gather = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=-1)

        def unshard(_module: object, _args: object) -> None:
            with torch.cuda.stream(copy_in):
                torch.cuda._sleep(50 * US)
            gather.wait_stream(copy_in)
            with torch.cuda.stream(gather):
                torch.cuda._sleep(6 * MS)
                event = gather.record_event()
            torch.cuda.current_stream().wait_event(event)
            torch.cuda._sleep(50 * US)

        for layer in (model[0], model[2]):  # type: ignore[index]
            layer.register_forward_pre_hook(unshard)
        for images, labels in loader(60, 60 * MS):
            copy_in.wait_stream(torch.cuda.current_stream())
            gather.wait_stream(torch.cuda.current_stream())
            step(model, optimizer, images.cuda(), labels.cuda())

    assert_true(run(program))


def test_a_second_stream_computes_for_longer_than_the_first(run: Run) -> None:
    def program(machine: Machine) -> None:
        model, side = net().cuda(), torch.cuda.Stream()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 60 * MS):
            images, labels = images.cuda(), labels.cuda()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(50 * MS)
            loss = cross_entropy(model(images), labels)
            torch.cuda.current_stream().wait_stream(side)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert_true(run(program))


# Finding 8


def test_a_whole_step_is_a_graph(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = loader(63, 60 * MS, pin_memory=True)
        images, labels = (each.cuda() for each in next(iter(batches)))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(model, optimizer, images, labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        for new_images, new_labels in batches:
            images.copy_(new_images, non_blocking=True)
            labels.copy_(new_labels, non_blocking=True)
            graph.replay()

    recorded = run(program)
    assert recorded.facts.window.count >= 55
    assert_true(recorded)


def test_a_capture_among_the_steps_is_not_spoilt(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        still, graph = torch.ones(4, 8, device="cuda"), torch.cuda.CUDAGraph()
        for number, (images, labels) in enumerate(loader(60, 60 * MS)):
            step(model, optimizer, images.cuda(), labels.cuda())
            if number == 20:
                with torch.cuda.graph(graph):
                    cross_entropy(model(still), torch.zeros(4, dtype=torch.long, device="cuda")).backward()
            if number > 20:
                graph.replay()

    assert_true(run(program))


# Finding 9


def test_an_idle_device_is_seen_to_be_idle_when_a_batch_is_asked_for(run: Run) -> None:
    recorded = run(lambda machine: plain(machine, 20 * MS, 30 * MS, reads=True))
    flags = open_run(recorded.folder).records(STEP)["flags"][5:]
    assert ((flags & StepFlag.DRAINED_KNOWN) != 0).all()
    assert ((flags & StepFlag.DRAINED_AT_ENTRY) != 0).all()


# Finding 10


@pytest.mark.parametrize("reads", [False, True])
def test_marks_take_long_to_arrive(run: Run, reads: bool) -> None:
    """WSL, idle laptop GPUs. Steps are long, as stamps are known to within the time of a mark's arrival only."""
    slow = GpuSpec(arrival_ns=300 * US)
    assert_true(run(lambda machine: plain(machine, 600 * MS, 200 * MS, reads=reads), slow, step_ns=400 * MS))


@pytest.mark.parametrize(
    "drift",
    [-40e-6, 40e-6],
)
def test_the_clock_drifts_and_its_rate_is_not_known_yet(run: Run, drift: float) -> None:
    """In the first seconds of a recording; the driver answers a little late besides."""
    spec = GpuSpec(drift=drift, answer_late_ns=20 * US)
    assert_true(run(lambda machine: plain(machine, 60 * MS, 100 * MS, reads=True, steps=20), spec, step_ns=100 * MS))


@pytest.mark.parametrize("how", [{}, {"reads": True}, {"pinned": True}, {"pinned": True, "load_ns": 10 * MS}])
def test_all_streams_share_one_connection(run: Run, how: dict[str, Any]) -> None:
    loop = {"load_ns": 60 * MS, "after_ns": 20 * MS} | how
    assert_true(run(lambda machine: plain(machine, **loop), GpuSpec(one_connection=True)))


# Finding 11


def test_after_a_sticky_error_the_recording_ends_and_says_so(run: Run) -> None:
    def program(machine: Machine) -> None:
        plain(machine, 60 * MS)
        machine.assert_on_device()
        torch.cuda.synchronize()

    recorded = run(program, error=torch.AcceleratorError)
    assert recorded.error is not None
    events = open_run(recorded.folder).records(EVENT)["what"]
    assert EventKind.TRAINING_END in events
    assert len(open_run(recorded.folder).records(STEP)) == 60


def test_a_sticky_error_in_the_midst_is_the_programs_own(run: Run) -> None:
    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for number, (images, labels) in enumerate(loader(60, 60 * MS)):
            if number == 40:
                machine.assert_on_device()
            step(model, optimizer, images.cuda(), labels.cuda())

    recorded = run(program, error=torch.AcceleratorError)
    assert "device-side assert" in str(recorded.error)
    facts = facts_of(open_run(recorded.folder))
    assert facts is not None
    assert EventKind.TRAINING_END in open_run(recorded.folder).records(EVENT)["what"]


# Finding 14


def test_a_mark_makes_no_stream(run: Run) -> None:
    """An object of Python for each is half of what a mark costs."""
    recorded = run(lambda machine: plain(machine, steps=60))
    assert recorded.machine.streams_built < 60


# Finding 15


def waiting(machine: Machine, wait: Callable[[], object]) -> None:
    model = net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader(60, 20 * MS):
        step(model, optimizer, images.cuda(), labels.cuda())
        wait()
        machine.host(15 * MS)


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda: torch.cuda.synchronize(), id="cuda"),
        pytest.param(
            lambda: torch.accelerator.synchronize(),
            id="accelerator",
        ),
    ],
)
def test_a_call_that_waits_for_the_device_is_seen(run: Run, wait: Callable[[], object]) -> None:
    recorded = run(lambda machine: waiting(machine, wait))
    assert_true(recorded)
    steps = open_run(recorded.folder).records(STEP)
    assert (steps["sync_ns"] > 10 * MS).all()


def test_a_prefetcher_that_waits_by_the_event(run: Run) -> None:
    slow = GpuSpec(pinned_bytes_per_s=2_000)
    assert_true(run(lambda machine: prefetching(lambda side: side.record_event().wait()), slow))


def copying_beside(wait: Callable[[torch.cuda.Event], object]) -> None:
    model, side = net().cuda(), torch.cuda.Stream()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader(60, 20 * MS, pin_memory=True):
        with torch.cuda.stream(side):
            images, labels = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
            copied = side.record_event()
        wait(copied)
        step(model, optimizer, images, labels)


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda copied: torch.cuda.current_stream().wait_event(copied), id="stream.wait_event"),
        pytest.param(lambda copied: copied.wait(), id="event.wait"),
    ],
)
def test_the_computation_waits_for_a_copy_beside_it(run: Run, wait: Callable[[torch.cuda.Event], object]) -> None:
    assert_true(run(lambda machine: copying_beside(wait), GpuSpec(pinned_bytes_per_s=2_000)))


# Finding 16


def test_no_stamp_needs_a_negative_elapsed_time(run: Run) -> None:
    assert_true(run(lambda machine: plain(machine, 60 * MS, reads=True), GpuSpec(negative_elapsed=False)))


# Finding 17


def test_a_forked_worker_has_torchs_own_methods(run: Run) -> None:
    seen = []

    def program(machine: Machine) -> None:
        plain(machine, steps=10)
        child = os.fork()
        if child == 0:
            os._exit(hasattr(torch.Tensor.item, "__wrapped__"))
        seen.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    run(program)
    assert seen == [0]


# Work of the host between a batch and the first kernel


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize(
    "where",
    ["before the copy", "between copy and forward", "both"],
)
def test_a_stage_behind_the_loader_is_time_of_the_host(run: Run, where: str, pinned: bool) -> None:
    """Packing, tokenising, augmenting."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 20 * MS, pin_memory=pinned):
            if where != "between copy and forward":
                machine.host(35 * MS)
            images, labels = images.cuda(non_blocking=pinned), labels.cuda(non_blocking=pinned)
            if where != "before the copy":
                machine.host(35 * MS)
            step(model, optimizer, images, labels)

    assert_true(run(program))


def test_the_batch_is_packed_on_the_host(run: Run) -> None:
    """What is copied is not what the loader handed over."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for images, labels in loader(60, 20 * MS):
            machine.host(25 * MS)
            step(model, optimizer, torch.cat([images, images])[:4].cuda(), labels.cuda())

    assert_true(run(program))


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
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        machine.durations["mul"] = kernel_ms * MS
        for _, labels in loader(60, 60 * MS):
            machine.host(25 * MS)
            given = torch.ones(4, 8, device="cuda") * 2
            machine.host(15 * MS)
            step(model, optimizer, given, labels.cuda())

    recorded = run(program)
    assert recorded.notices == []
    off = dict.fromkeys(PARTS, 0.0) | {"compute": more, "host": -more}
    assert recorded.off_by() == pytest.approx(off, abs=0.1)


# Beyond the audit


def test_a_prefetcher_begins_an_epoch_while_the_queue_is_full(run: Run) -> None:
    """As in any training that the device limits: the host is a queue's length ahead."""

    def program(machine: Machine) -> None:
        model = net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = loader(8, MS, pin_memory=True)
        for _ in range(4):
            for images, labels in Prefetcher(batches, lambda side: torch.cuda.current_stream().wait_stream(side)):
                loss = cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    recorded = run(program, GpuSpec(queue_depth=48), step_ns=100 * MS)
    assert len(open_run(recorded.folder).records(STEP)) == 32
    assert_true(recorded)
