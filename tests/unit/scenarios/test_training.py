"""A scenario's training as a recording sees it: an ordinary program, also where the device is emulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.cuda import Machine, installed
from support.cuda.machine import INPUT
from support.gpu_programs import WIDTH, compute, net
from whyidle.devices.choose import choose
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.emulated import EmulatedDevice, VirtualClock
from whyidle.devices.profiles import load
from whyidle.devices.protocol import Copy
from whyidle.pipelines.protocol import Batch, Queue, Trace
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, NOT_MEASURED, PAUSE, SPAN, STEP, PauseKind, SpanKind, StepFlag
from whyidle.scenarios.copying import BatchCopier
from whyidle.scenarios.feeds import NoTraining
from whyidle.scenarios.loader import watched
from whyidle.scenarios.recorded import recorded_on
from whyidle.scenarios.training import EmulatedTraining, TorchTraining, Training

MS = 1_000_000
FETCH_NS = 30 * MS
SIZE, STEPS, EPOCHS = 8, 6, 2
V100 = load("v100")


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice(V100.spec(), VirtualClock(1_000 * MS), profile=V100)


class Loader:
    """Makes each of its batches when it is asked for. `ahead`: and begins to copy the one after it."""

    name = "test"

    def __init__(
        self, copier: BatchCopier, batches: int, make: Callable[[], Batch], ahead: bool, queue: Queue | None = None
    ) -> None:
        self._copier, self._batches, self._make, self._ahead = copier, batches, make, ahead
        self.queue = queue

    def __len__(self) -> int:
        return self._batches

    def epoch(self, number: int) -> Iterator[Batch]:
        following = self._make()
        for left in reversed(range(self._batches)):
            batch = following
            if left:
                following = self._make()
                if self._ahead:
                    following = self._copier.start(self._copier.pin(following))
            yield batch

    def close(self) -> None: ...


def train(folder: Path, device: EmulatedDevice, training: Training, ahead: bool = False, log_every: int = 4) -> None:
    def made() -> Batch:
        begin = device.clock.now()
        device.clock.wait_until(begin + FETCH_NS)
        trace = Trace(worker=1, begin_ns=begin, end_ns=begin + FETCH_NS, read_ns=MS, decode_ns=2 * MS, threads=4)
        return Batch(torch.zeros(SIZE, 5), torch.zeros(SIZE), tuple(range(SIZE)), trace)

    copier = BatchCopier(device)
    create_run(folder, {"device": device.describe()})
    with recorded_on(device, folder):
        loader = watched(Loader(copier, STEPS, made, ahead, Queue(3, lambda: 2)))
        done = 0
        for _ in range(EPOCHS):
            for batch in loader:
                training.step(copier.deliver(batch))
                done += 1
                if done % log_every == 0:
                    training.read_loss()
        device.synchronize()


@pytest.mark.parametrize("begun_ahead", [False, True])
def test_on_an_emulated_device_steps_have_the_stamps_of_what_was_queued(
    tmp_path: Path, device: EmulatedDevice, begun_ahead: bool
) -> None:
    train(tmp_path / "run", device, EmulatedTraining(device, V100, "ssd300", SIZE), begun_ahead)
    run = open_run(tmp_path / "run")
    steps, spans = run.records(STEP), run.records(SPAN)
    number = STEPS * EPOCHS

    def flagged(flag: StepFlag) -> list[bool]:
        return list((steps["flags"] & flag) > 0)

    assert steps["samples"].tolist() == [SIZE] * number
    assert steps["epoch"].tolist() == [0] * STEPS + [1] * STEPS
    assert flagged(StepFlag.FIRST_OF_EPOCH) == ([True] + [False] * (STEPS - 1)) * EPOCHS
    assert all(flagged(StepFlag.OPTIMIZER))
    # The first of an epoch is copied once it came: the second is on its way then.
    assert (
        flagged(StepFlag.COPIED_AHEAD) == flagged(StepFlag.PINNED) == ([False] + [begun_ahead] * (STEPS - 1)) * EPOCHS
    )
    # Forward, backward and optimizer of the profile, one behind the other.
    computed = spans[spans["what"] == SpanKind.COMPUTE]
    assert len(computed) == 3 * number
    durations = (computed["end_ns"] - computed["begin_ns"]).reshape(number, 3).sum(axis=1)
    assert np.abs(durations - V100.step_ns("ssd300", SIZE)).max() <= 3
    assert np.abs(steps["device_end_ns"] - steps["device_begin_ns"] - durations).max() <= 3
    # The copy of each batch: a mark on an idle stream is reached when it arrives there.
    assert steps["copy_bytes"].tolist() == [SIZE * 6 * 4] * number
    copied = np.sort(spans[spans["what"] == SpanKind.COPY]["end_ns"])
    assert set(np.sort(steps["device_copy_end_ns"]) - copied) <= {0, device.spec.launch_latency_ns}
    # Batches have what their loader stamped on them.
    batches = run.records(BATCH)
    assert batches["step"].tolist() == list(range(number))
    stamped = {"worker": 1, "threads": 4, "decode_ns": 2 * MS, "collate_ns": NOT_MEASURED, "batch_bytes": SIZE * 6 * 4}
    assert {name: set(batches[name]) for name in stamped} == {name: {value} for name, value in stamped.items()}
    assert set(batches["end_ns"] - batches["begin_ns"]) == {FETCH_NS}
    assert set(steps["queue_ready"][1:STEPS]) == {2}
    # The waits for the loss and for the end.
    syncs = run.records(PAUSE)[run.records(PAUSE)["what"] == PauseKind.SYNC]
    assert syncs["step"].tolist() == [3, 7, 11]
    assert begun_ahead or len(syncs) == len(run.records(PAUSE))
    # A loader alone has steps too.
    train(tmp_path / "alone", device, NoTraining())
    steps = open_run(tmp_path / "alone").records(STEP)
    assert set((steps["fetch_end_ns"] - steps["fetch_begin_ns"])[1 : STEPS - 1]) == {FETCH_NS}


class OwnMemory(CpuDevice):
    """The processor, as if it were a device with memory of its own; notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def copy(self, tensors: Any, *, pinned: bool = False, stream: Any = None) -> Any:
        self.asked.append("copy")
        return super().copy(tensors, pinned=pinned, stream=stream)

    def wait_for(self, copy: Copy, tensors: Any) -> None:
        self.asked.append("wait")


@pytest.mark.parametrize("ahead", [False, True])
def test_what_is_left_to_do_on_the_device_is_done_once_after_the_copy(ahead: bool) -> None:
    device = OwnMemory()
    copier = BatchCopier(device)

    def double(inputs: torch.Tensor) -> torch.Tensor:
        device.asked.append("compute")
        return inputs * 2

    batch = Batch(torch.ones(3), torch.zeros(3), (0, 1, 2), on_device=double)
    arrived = copier.deliver(copier.start(batch) if ahead else batch)
    assert device.asked == (["copy", "wait", "compute"] if ahead else ["copy", "compute"])
    assert arrived.inputs.tolist() == [2.0] * 3
    assert arrived.on_device is None
    assert copier.own_memory is False, "the processor has none"


BATCHES = 8


@pytest.mark.parametrize("ahead", [False, True])
def test_copies_of_a_loader_of_ours_are_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool
) -> None:
    """On a GPU, played by the stand-in, whoever begins them."""

    def made() -> Batch:
        machine.host(5 * MS, INPUT)
        return Batch(torch.zeros(4, WIDTH), torch.zeros(4, dtype=torch.int64), tuple(range(4)))

    machine = installed(Machine(), monkeypatch)
    machine.durations = compute(20 * MS)
    device = choose("cuda")
    copier, model = BatchCopier(device), net().to("cuda")
    training = TorchTraining(
        model,
        lambda trained, batch: torch.nn.functional.cross_entropy(trained(batch.inputs), batch.targets),
        torch.optim.SGD(model.parameters(), 0.1),
    )
    folder = create_run(tmp_path / "run", {"device": device.describe()})
    with recorded_on(device, folder):
        loader = watched(Loader(copier, BATCHES, made, ahead))
        for _ in range(EPOCHS):
            for number, batch in enumerate(loader):
                training.step(copier.deliver(batch))
                if number == 3:
                    training.read_loss()
    steps, pauses = open_run(folder).records(STEP), open_run(folder).records(PAUSE)["what"].tolist()
    # The first batch of an epoch is copied in its own step: as torch is asked, each tensor for itself.
    flags = ([False] + [ahead] * (BATCHES - 1)) * EPOCHS
    assert ((steps["flags"] & StepFlag.COPIED_AHEAD) > 0).tolist() == flags
    inputs_bytes = 4 * WIDTH * 4
    whole = inputs_bytes + (4 * 8 if ahead else 0)
    assert steps["copy_bytes"].tolist() == ([inputs_bytes] + [whole] * (BATCHES - 1)) * EPOCHS
    counts = {what: pauses.count(what) for what in (PauseKind.COPY, PauseKind.SYNC, PauseKind.STREAM_WAIT)}
    further, waits = (EPOCHS, EPOCHS * (BATCHES - 1)) if ahead else (EPOCHS * BATCHES, 0)
    assert counts == {PauseKind.COPY: further, PauseKind.SYNC: EPOCHS, PauseKind.STREAM_WAIT: waits}
    assert not list(folder.glob("*notices*"))
