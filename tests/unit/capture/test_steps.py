"""The step recorder on an emulated device with a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from whyidle.capture import marks
from whyidle.capture.session import Session
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.record.reader import RecordFile, Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, STEP, EventKind, StepFlag

MS = 1_000_000


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice(EmulatedSpec("test", "Test", 10**9, 10e9, 5e9), VirtualClock(1_000 * MS))


def fetches(session: Session, device: EmulatedDevice, number: int, fetch_ns: int, epoch: int = 0) -> Iterator[None]:
    """Asks for so many batches and for one more, which there is not."""
    for fetched in range(number):
        session.steps.fetch_begin(epoch, fetched == 0, None)
        device.clock.advance(fetch_ns)
        session.steps.fetch_end(8)
        yield
    session.steps.fetch_begin(epoch, number == 0, None)
    session.steps.abandon_fetch()


def train(session: Session, device: EmulatedDevice, steps: int, fetch_ns: int, compute_ns: int, epoch: int = 0) -> None:
    for _ in fetches(session, device, steps, fetch_ns, epoch):
        _, copy = device.copy([torch.zeros(1000, dtype=torch.uint8)], pinned=True)
        session.steps.copied(copy)
        session.steps.compute_begin()
        device.compute(compute_ns)
        session.steps.optimizer_end()


def recorded(folder: Path) -> Records:
    return open_run(folder).records(STEP)


def test_a_step_lasts_from_fetch_to_fetch_and_has_the_devices_stamps(tmp_path: Path, device: EmulatedDevice) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    train(session, device, 5, fetch_ns=3 * MS, compute_ns=10 * MS)
    device.synchronize()
    session.finish()
    steps = recorded(tmp_path / "run")
    assert steps["step"].tolist() == [0, 1, 2, 3, 4]
    assert (steps["fetch_end_ns"] - steps["fetch_begin_ns"]).tolist() == [3 * MS] * 5
    assert (steps["step_end_ns"][:-1] == steps["fetch_begin_ns"][1:]).all()
    assert (steps["device_end_ns"] - steps["device_begin_ns"]).tolist() == [10 * MS] * 5
    assert (steps["samples"] == 8).all()
    assert (steps["copy_bytes"] == 1000).all()
    assert (steps["flags"] & StepFlag.PINNED).all()
    assert [bool(f & StepFlag.FIRST_OF_EPOCH) for f in steps["flags"]] == [True, False, False, False, False]


def test_drained_flags_tell_a_hidden_wait_from_one_that_cost_the_device(tmp_path: Path, device: EmulatedDevice) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    train(session, device, 4, fetch_ns=3 * MS, compute_ns=10 * MS)
    train(session, device, 4, fetch_ns=300 * MS, compute_ns=10 * MS, epoch=1)
    session.finish()
    flags = recorded(tmp_path / "run")["flags"]
    hidden, exposed = flags[1:4], flags[5:]
    assert not (hidden & StepFlag.DRAINED_AT_EXIT).any()
    assert (exposed & StepFlag.DRAINED_AT_EXIT).all()
    assert not (exposed & StepFlag.DRAINED_AT_ENTRY).any()
    assert not flags[0] & StepFlag.DRAINED_KNOWN


def test_a_full_ring_drops_events_counts_them_and_keeps_the_steps(
    tmp_path: Path, device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MAX_UNRESOLVED", 3)
    session = Session(create_run(tmp_path / "run", {}), device)
    train(session, device, 8, MS, 1000 * MS)
    device.synchronize()
    session.finish()
    steps = recorded(tmp_path / "run")
    assert len(steps) == 8
    # One more than the ring holds: the step in flight is not in the ring yet when the next one begins.
    lost = int((steps["device_end_ns"] == NOT_MEASURED).sum())
    events = open_run(tmp_path / "run").records(EVENT)
    counted = events[events["what"] == EventKind.DEVICE_RING_FULL]["value"]
    assert lost > 0
    assert counted.tolist() == [lost]


def test_steps_are_on_disk_before_the_session_ends(tmp_path: Path, device: EmulatedDevice) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    seen = []
    for _ in fetches(session, device, 4, MS):
        session.steps.compute_begin()
        session.steps.optimizer_end()
        session._steps.flush()
        (path,) = (tmp_path / "run").glob("step-*.rec")
        seen.append(len(RecordFile(path).all()))
    session.finish()
    assert seen == [0, 1, 2, 3]


def test_the_elements_of_a_steps_batches_are_added_and_their_flags_united(
    tmp_path: Path, device: EmulatedDevice
) -> None:
    shift, known, new = StepFlag.ELEMENTS_SHIFT, StepFlag.SHAPE_KNOWN, StepFlag.NEW_SHAPE
    session = Session(create_run(tmp_path / "run", {}), device)
    steps = session.steps
    for further in ((), (7,), (7, 9), (StepFlag.MOST_ELEMENTS, StepFlag.MOST_ELEMENTS), (0,)):
        steps.fetch_begin(0, True, None)
        steps.fetch_end(4, flags=known | 5 << shift)
        for number, elements in enumerate(further):
            told = known | new | elements << shift if elements else 0
            if number % 2:
                steps.fetch_end(4, flags=told)
            else:
                steps.fetch_within_begin()
                steps.fetch_within_end(4, told)
    session.finish()
    flags = recorded(tmp_path / "run")["flags"]
    assert [int(f) >> shift for f in flags] == [5, 12, 21, StepFlag.MOST_ELEMENTS, 5]
    assert [int(f) % (1 << shift) & (known | new) for f in flags] == [known, *[known | new] * 3, known]
