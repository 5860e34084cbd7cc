"""The device's marks: pauses inside steps, steps too far behind, copies in several parts, events given back."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from support.crafted import facts_of_run
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import UNTOLD
from whyidle.capture import marks
from whyidle.capture.session import Session
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedEvent, EmulatedSpec
from whyidle.devices.protocol import Event, Stream
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from whyidle.report import live
from whyidle.report.contract import run as contract
from whyidle.report.documents.run import run_document
from whyidle.report.render import print_document
from whyidle.scenarios.planted import MS, Step, train

SPEC = EmulatedSpec("test", "Test", 10**12, 10e9, 5e9)
LATENCY = SPEC.launch_latency_ns


class Counting(EmulatedDevice):
    """Knows which of its marks are out."""

    def __init__(self) -> None:
        super().__init__(SPEC, VirtualClock(1_000 * MS))
        self.out: dict[int, EmulatedEvent] = {}

    def record(self, stream: Stream = None) -> EmulatedEvent:
        event = super().record(stream)
        self.out[id(event)] = event
        return event

    def release(self, event: Event) -> None:
        assert self.out.pop(id(event), None) is event, "given back twice, or never taken"


@pytest.fixture
def device() -> Counting:
    return Counting()


def opened(folder: Path, device: EmulatedDevice) -> Session:
    return Session(create_run(folder / "run", {"device": device.describe(), "ended": {"status": "ok"}}), device)


def stepping(
    steps: int, session: Session, device: EmulatedDevice, fetch_ns: int = 0, begins: bool = False
) -> Iterator[int]:
    """Steps of an epoch, each of which begins with a fetch."""
    for number in range(steps):
        session.steps.fetch_begin(0, number == 0, None)
        device.clock.advance(fetch_ns)
        session.steps.fetch_end(8, begins=begins)
        yield number


def test_a_wait_in_the_midst_of_a_step_is_a_pause_on_both_clocks(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    steps = session.steps
    for _ in stepping(3, session, device):
        steps.compute_begin()
        device.compute(4 * MS)
        steps.sync_begin()
        steps.sync_begin()  # .item() inside of something that waits anyway
        device.synchronize()
        steps.sync_end()
        device.clock.advance(2 * MS)
        steps.sync_end()
        steps.backward_begin()
        device.compute(3 * MS)
        steps.backward_end()
        device.synchronize()
    session.finish()
    pauses = open_run(tmp_path / "run").records(PAUSE)
    assert pauses["step"].tolist() == [0, 1, 2]
    assert (pauses["what"] == PauseKind.SYNC).all()
    assert (pauses["end_ns"] - pauses["begin_ns"]).tolist() == [6 * MS + LATENCY] * 3
    assert (pauses["device_end_ns"] - pauses["device_begin_ns"]).tolist() == [2 * MS + LATENCY] * 3
    rows = open_run(tmp_path / "run").records(STEP)
    assert (rows["sync_ns"] == 6 * MS + LATENCY).all()
    facts = facts_of_run(tmp_path / "run")
    # Before the first kernel starts, the host waits already.
    assert facts.parts.sync_ns == 3 * (2 * MS + LATENCY)
    assert facts.parts.compute_ns == 3 * 7 * MS
    assert facts.parts.paused_ns == 3 * (2 * MS + LATENCY)
    assert facts.parts.stepping_share > facts.parts.share("compute")
    assert device.out == {}


def test_a_read_that_waits_for_nothing_costs_nothing(tmp_path: Path) -> None:
    """`.item()` on a busy device blocks the host for most of the step, and the device for a launch latency."""
    plan = [Step(fetch_ns=MS // 10, compute_ns=10 * MS, sync=True)] * 100
    train(tmp_path / "run", [plan])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    assert analysis.facts.parts.share("sync") < 0.002
    assert analysis.verdict.cause == "none"
    # The host did wait: nearly all the time.
    waited = open_run(tmp_path / "run").records(STEP)["sync_ns"].sum()
    assert waited > 0.9 * analysis.facts.parts.wall_ns


def test_many_pauses_in_one_step_keep_their_host_stamps(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    steps = session.steps
    steps.fetch_begin(0, True, None)
    steps.fetch_end(8)
    steps.compute_begin()
    for _ in range(40):
        device.compute(MS)
        steps.sync_begin()
        device.synchronize()
        steps.sync_end()
    steps.optimizer_end()
    device.clock.advance(MS)
    session.finish()
    pauses = open_run(tmp_path / "run").records(PAUSE)
    assert len(pauses) == 40
    assert (pauses["device_end_ns"] != NOT_MEASURED).sum() == marks.MOST_PAUSES
    assert (pauses["end_ns"] - pauses["begin_ns"] == MS + LATENCY).all()
    assert device.out == {}


def test_each_part_of_a_batch_is_a_copy_of_its_own_wherever_it_comes(tmp_path: Path, device: Counting) -> None:
    """Two parts with work of the host between them, then a forward pass, then labels, then the rest."""
    session = opened(tmp_path, device)
    steps = session.steps
    part = [torch.zeros(10_000_000, dtype=torch.uint8)]
    for _ in stepping(2, session, device):
        steps.compute_begin()
        steps.copied(device.copy(part, pinned=True)[1])
        device.synchronize()
        device.clock.advance(7 * MS)
        steps.copied(device.copy(part, pinned=True)[1])
        device.compute(5 * MS)
        steps.copied(device.copy(part, pinned=True)[1])
        steps.backward_begin()
        device.compute(5 * MS)
        steps.backward_end()
        device.synchronize()
    session.finish()
    rows = open_run(tmp_path / "run").records(STEP)
    assert rows["copy_bytes"].tolist() == [10_000_000] * 2
    copy_ns = MS + SPEC.copy_latency_ns
    assert (rows["device_copy_end_ns"] - rows["device_copy_begin_ns"]).tolist() == [copy_ns] * 2
    pauses = open_run(tmp_path / "run").records(PAUSE)
    assert pauses["what"].tolist() == [PauseKind.QUEUED_COPY] * 4
    assert pauses["amount_bytes"].tolist() == [10_000_000] * 4
    # The computation begins behind the last part before it, and the labels interrupt it.
    assert (rows["device_begin_ns"] == pauses["device_end_ns"][::2]).all()
    facts = facts_of_run(tmp_path / "run")
    assert facts.pinned
    assert facts.parts.copy_ns == 2 * 3 * copy_ns
    assert facts.parts.compute_ns == 2 * 10 * MS
    assert facts.parts.host_ns == pytest.approx(2 * 7 * MS, abs=6 * LATENCY)
    assert device.out == {}


def test_a_step_without_backward_or_optimizer_ends_with_the_next_fetch(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    for _ in stepping(4, session, device, 10 * MS):
        session.steps.compute_begin()
        device.compute(3 * MS)
    device.synchronize()
    session.finish()
    rows = open_run(tmp_path / "run").records(STEP)
    # The mark behind the last one arrives on an idle device.
    assert (rows["device_end_ns"] - rows["device_begin_ns"]).tolist() == [3 * MS] * 3 + [3 * MS + LATENCY]


@pytest.mark.parametrize("ring", [2, 3, 16])
def test_steps_far_behind_are_dropped_counted_and_known_to_have_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring: int
) -> None:
    """The launch queue holds seventeen of these steps, the ring fewer: the device has work all the time."""
    monkeypatch.setattr(marks, "MAX_UNRESOLVED", ring)
    epoch = [Step(fetch_ns=MS, compute_ns=10 * MS)] * 100
    run = train(tmp_path / "run", [epoch, [Step(fetch_ns=400 * MS)] + epoch])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    parts, window = analysis.facts.parts, analysis.facts.window
    dropped = (window.steps["flags"] & StepFlag.MARKS_DROPPED) != 0
    assert dropped.sum() > 10
    assert (window.steps["device_end_ns"][dropped] == NOT_MEASURED).all()
    assert any(f"{dropped.sum()} steps have no device timestamps" in note for note in analysis.notes)
    truth = run.truth(window.begin_ns, window.end_ns)
    assert truth["input"] > 200 * MS
    for part, amount in truth.items():
        assert getattr(parts, f"{part}_ns") == pytest.approx(amount, abs=0.01 * window.wall_ns)


def test_a_device_clock_out_of_step_with_the_hosts_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [Step(fetch_ns=20 * MS, compute_ns=10 * MS)] * 60
    train(tmp_path / "right", [plan])
    assert not any("clock" in note for note in analyse(open_run(tmp_path / "right")).notes)
    monkeypatch.setattr(EmulatedEvent, "time_ns", lambda event: event.at_ns + 15 * MS)
    train(tmp_path / "wrong", [plan])
    assert any("device's clock" in note for note in analyse(open_run(tmp_path / "wrong")).notes)


def test_a_batch_that_is_passed_over_computes_nothing(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    for number in stepping(80, session, device, 10 * MS, begins=True):
        if number % 4 != 3:
            device.compute(5 * MS)
            session.steps.backward_end()
    session.finish()
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    parts, window = analysis.facts.parts, analysis.facts.window
    assert window.count == 76
    assert ((window.steps["flags"] & StepFlag.COMPUTED_NOTHING) != 0).sum() == 19
    assert parts.unresolved_steps == parts.unseen_ns == 0
    assert parts.share("compute") == pytest.approx(3 / 8, abs=0.02)
    assert device.out == {}


def test_a_copy_on_a_side_stream_never_interrupts_the_computation(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    part = [torch.zeros(50_000_000, dtype=torch.uint8)]
    for _ in stepping(10, session, device, begins=True):
        device.compute(12 * MS)
        for _ in range(2):
            session.steps.copied(device.copy(part, pinned=True, stream=device.side_stream())[1])
        session.steps.sync_begin(aside=True)
        device.clock.advance(4 * MS)
        session.steps.sync_end()
        session.steps.backward_end()
    session.finish()
    facts = facts_of_run(tmp_path / "run")
    assert facts.copied_ahead
    assert facts.parts.share("compute") > 0.99
    assert device.out == {}


def trained(
    session: Session, device: EmulatedDevice, steps: int, fetch_ns: int, compute_ns: int, epoch: int = 0
) -> None:
    for fetched in range(steps):
        session.steps.fetch_begin(epoch, fetched == 0, None)
        device.clock.advance(fetch_ns)
        session.steps.fetch_end(8)
        _, copy = device.copy([torch.zeros(1000, dtype=torch.uint8)], pinned=True)
        session.steps.copied(copy)
        session.steps.compute_begin()
        device.compute(compute_ns)
        session.steps.optimizer_end()
    session.steps.fetch_begin(epoch, False, None)
    session.steps.abandon_fetch()


def recorded(folder: Path) -> Records:
    return open_run(folder).records(STEP)


def test_a_step_lasts_from_fetch_to_fetch_and_has_the_devices_stamps(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    trained(session, device, 5, fetch_ns=3 * MS, compute_ns=10 * MS)
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


def test_drained_flags_tell_a_hidden_wait_from_one_that_cost_the_device(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    trained(session, device, 4, fetch_ns=3 * MS, compute_ns=10 * MS)
    trained(session, device, 4, fetch_ns=300 * MS, compute_ns=10 * MS, epoch=1)
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
    session = opened(tmp_path, device)
    trained(session, device, 8, MS, 1000 * MS)
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


def test_the_elements_of_a_steps_batches_are_added_and_their_flags_united(
    tmp_path: Path, device: EmulatedDevice
) -> None:
    shift, known, new = StepFlag.ELEMENTS_SHIFT, StepFlag.SHAPE_KNOWN, StepFlag.NEW_SHAPE
    session = opened(tmp_path, device)
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


def test_a_fetch_within_a_step_costs_a_device_what_it_idles_behind_it(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    steps, clock = session.steps, device.clock
    for _ in stepping(40, session, device, begins=True):
        device.compute(5 * MS)
        steps.fetch_within_begin()
        clock.advance(12 * MS)
        steps.fetch_within_end(12)
        device.compute(3 * MS)
        steps.optimizer_end()
        device.synchronize()
    session.finish()
    facts = facts_of_run(tmp_path / "run")
    assert facts.batch_size == 12
    # Of the 12 ms the device still computes for 5.
    assert facts.parts.share("input") == pytest.approx(7 / 15, abs=0.01)
    assert facts.parts.share("compute") == pytest.approx(8 / 15, abs=0.01)


def test_a_forward_pass_ahead_of_the_fetch_is_computing_on_a_device_too(tmp_path: Path, device: Counting) -> None:
    session = opened(tmp_path, device)
    steps, nodes = session.steps, 0
    steps.graph = lambda: nodes
    for _ in stepping(40, session, device, 9 * MS, begins=True):
        steps.backward_begin()
        device.compute(4 * MS)
        steps.optimizer_end()
        nodes += 5
        device.compute(3 * MS)  # the next batch's forward pass
    session.finish()
    analysis = analyse(open_run(tmp_path / "run"))
    facts = analysis.facts
    assert facts is not None
    # Both passes run while the next batch is fetched.
    assert facts.parts.share("compute") == pytest.approx(7 / 9, abs=0.01)
    assert facts.parts.share("input") == pytest.approx(2 / 9, abs=0.01)
    assert any("forward pass runs between" in note for note in analysis.notes)


@pytest.mark.parametrize("copies", [False, True])
def test_without_a_loader_nothing_is_told_apart_that_is_not_known(
    tmp_path: Path, device: Counting, copies: bool
) -> None:
    session = opened(tmp_path, device)
    for number in range(40):
        session.steps.fetch_begin(0, number == 0, None)
        session.steps.compute_begin()
        device.clock.advance(6 * MS)
        if copies:
            _, copy = device.copy([torch.zeros(10_000_000, dtype=torch.uint8)], pinned=True)
            session.steps.copied(copy)
        device.compute(9 * MS)
        session.steps.optimizer_end()
        device.synchronize()
    session.finish()
    analysis = analyse(open_run(tmp_path / "run"))
    facts, report = analysis.facts, contract.report(analysis)
    assert facts is not None
    assert facts.told_apart == copies
    assert (report["breakdown"]["compute_pct"] is None) == (report["device"]["busy_pct"] is None) == (not copies)
    assert report["breakdown"]["input_pct"] is None
    assert (UNTOLD in facts.shares) != copies
    assert sum(facts.shares.values()) == pytest.approx(1)
    if not copies:
        assert report["verdict"]["cause"] is None
        assert (report["device"]["au_pct"], report["device"]["gaps"]["count"]) == (None, None)
        shown = io.StringIO()
        print_document(run_document(analysis), Console(file=shown, width=120))
        assert "not told apart" in shown.getvalue()
        assert shown.getvalue().count("no fetch") == 1
        assert "device busy n/a" in live.line(RecentReader(tmp_path / "run").snapshot())
