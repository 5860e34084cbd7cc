"""The device's marks: pauses inside steps, steps too far behind, copies in several parts, events given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.crafted import facts_of_run
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.stall_breakdown import UNTOLD
from whyidle.capture import marks
from whyidle.capture.session import Session
from whyidle.devices.emulated import EmulatedDevice, EmulatedEvent, EmulatedSpec, VirtualClock
from whyidle.devices.protocol import Event, Stream
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from whyidle.report.contract import run as contract
from whyidle.scenarios.planted import MS, Step, train

SPEC = EmulatedSpec("test", "Test", 10**12, 10e9, 5e9)
LATENCY = SPEC.launch_latency_ns


class Training(EmulatedDevice):
    """A device that knows which of its marks are out, and a recording of what is told of the steps on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(SPEC, VirtualClock(1_000 * MS))
        self.out: dict[int, EmulatedEvent] = {}
        self.folder = create_run(folder / "run", {"device": self.describe(), "ended": {"status": "ok"}})
        self.session = Session(self.folder, self)
        self.tell = self.session.steps

    def record(self, stream: Stream = None) -> EmulatedEvent:
        event = super().record(stream)
        self.out[id(event)] = event
        return event

    def release(self, event: Event) -> None:
        assert self.out.pop(id(event), None) is event, "given back twice, or never taken"

    def steps(self, count: int, fetch_ns: int = 0, begins: bool = False, epoch: int = 0) -> Iterator[int]:
        """Steps of an epoch, each of which begins with a fetch."""
        for number in range(count):
            self.tell.fetch_begin(epoch, number == 0, None)
            self.clock.advance(fetch_ns)
            self.tell.fetch_end(8, begins=begins)
            yield number

    def part(self, nbytes: int, stream: Stream = None) -> None:
        """A part of a batch is copied."""
        self.tell.copied(self.copy([torch.zeros(nbytes, dtype=torch.uint8)], pinned=True, stream=stream)[1])

    def done(self) -> Records:
        """Its steps; no mark is out any longer."""
        self.session.finish()
        assert self.out == {}
        return open_run(self.folder).records(STEP)

    @property
    def pauses(self) -> Records:
        return open_run(self.folder).records(PAUSE)

    @property
    def facts(self) -> Facts:
        return facts_of_run(self.folder)


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_a_wait_in_the_midst_of_a_step_is_a_pause_on_both_clocks(training: Training) -> None:
    tell = training.tell
    for _ in training.steps(3):
        tell.compute_begin()
        training.compute(4 * MS)
        tell.sync_begin()
        tell.sync_begin()  # .item() inside of something that waits anyway
        training.synchronize()
        tell.sync_end()
        training.clock.advance(2 * MS)
        tell.sync_end()
        tell.backward_begin()
        training.compute(3 * MS)
        tell.backward_end()
        training.synchronize()
    assert (training.done()["sync_ns"] == 6 * MS + LATENCY).all()
    pauses, parts = training.pauses, training.facts.parts
    assert pauses["step"].tolist() == [0, 1, 2]
    assert (pauses["what"] == PauseKind.SYNC).all()
    assert (pauses["end_ns"] - pauses["begin_ns"]).tolist() == [6 * MS + LATENCY] * 3
    assert (pauses["device_end_ns"] - pauses["device_begin_ns"]).tolist() == [2 * MS + LATENCY] * 3
    # Before the first kernel starts, the host waits already.
    assert (parts.sync_ns, parts.compute_ns, parts.paused_ns) == (3 * (2 * MS + LATENCY), 21 * MS, parts.sync_ns)
    assert parts.stepping_share > parts.share("compute")


def test_a_read_that_waits_for_nothing_costs_nothing(tmp_path: Path) -> None:
    """`.item()` on a busy device blocks the host for most of the step, and the device for a launch latency."""
    train(tmp_path / "run", [[Step(fetch_ns=MS // 10, compute_ns=10 * MS, sync=True)] * 100])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    assert analysis.facts.parts.share("sync") < 0.002
    assert analysis.verdict.cause == "none"
    # The host did wait: nearly all the time.
    waited = open_run(tmp_path / "run").records(STEP)["sync_ns"].sum()
    assert waited > 0.9 * analysis.facts.parts.wall_ns


def test_many_pauses_in_one_step_keep_their_host_stamps(training: Training) -> None:
    for _ in training.steps(1, begins=True):
        for _ in range(40):
            training.compute(MS)
            training.tell.sync_begin()
            training.synchronize()
            training.tell.sync_end()
        training.tell.optimizer_end()
    training.clock.advance(MS)
    training.done()
    pauses = training.pauses
    assert (pauses["end_ns"] - pauses["begin_ns"]).tolist() == [MS + LATENCY] * 40
    assert (pauses["device_end_ns"] != NOT_MEASURED).sum() == marks.MOST_PAUSES


def test_each_part_of_a_batch_is_a_copy_of_its_own_wherever_it_comes(training: Training) -> None:
    """Two parts with work of the host between them, then a forward pass, then labels, then the rest."""
    for _ in training.steps(2, begins=True):
        training.part(10_000_000)
        training.synchronize()
        training.clock.advance(7 * MS)
        training.part(10_000_000)
        training.compute(5 * MS)
        training.part(10_000_000)
        training.tell.backward_begin()
        training.compute(5 * MS)
        training.tell.backward_end()
        training.synchronize()
    rows, pauses, facts = training.done(), training.pauses, training.facts
    copy_ns = MS + SPEC.copy_latency_ns
    assert rows["copy_bytes"].tolist() == [10_000_000] * 2
    assert (rows["device_copy_end_ns"] - rows["device_copy_begin_ns"]).tolist() == [copy_ns] * 2
    assert pauses["what"].tolist() == [PauseKind.QUEUED_COPY] * 4
    assert pauses["amount_bytes"].tolist() == [10_000_000] * 4
    # The computation begins behind the last part before it, and the labels interrupt it.
    assert (rows["device_begin_ns"] == pauses["device_end_ns"][::2]).all()
    assert (facts.pinned, facts.parts.copy_ns, facts.parts.compute_ns) == (True, 2 * 3 * copy_ns, 2 * 10 * MS)
    assert facts.parts.host_ns == pytest.approx(2 * 7 * MS, abs=6 * LATENCY)


def test_a_copy_on_a_side_stream_never_interrupts_the_computation(training: Training) -> None:
    for _ in training.steps(10, begins=True):
        training.compute(12 * MS)
        for _ in range(2):
            training.part(50_000_000, training.side_stream())
        training.tell.sync_begin(aside=True)
        training.clock.advance(4 * MS)
        training.tell.sync_end()
        training.tell.backward_end()
    training.done()
    assert training.facts.copied_ahead
    assert training.facts.parts.share("compute") > 0.99


def test_a_step_without_backward_or_optimizer_ends_with_the_next_fetch(training: Training) -> None:
    for _ in training.steps(4, 10 * MS, begins=True):
        training.compute(3 * MS)
    training.synchronize()
    rows = training.done()
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
    events = open_run(tmp_path / "run").records(EVENT)
    lost = (open_run(tmp_path / "run").records(STEP)["flags"] & StepFlag.MARKS_DROPPED != 0).sum()
    assert events["value"][events["what"] == EventKind.DEVICE_RING_FULL].tolist() == [lost]
    truth = run.truth(window.begin_ns, window.end_ns)
    assert truth["input"] > 200 * MS
    for part, amount in truth.items():
        assert getattr(parts, f"{part}_ns") == pytest.approx(amount, abs=0.01 * window.wall_ns)


def test_a_device_clock_out_of_step_with_the_hosts_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, off_ms in (("right", 0), ("wrong", 15)):
        monkeypatch.setattr(EmulatedEvent, "time_ns", lambda event, off=off_ms: event.at_ns + off * MS)
        train(tmp_path / name, [[Step(fetch_ns=20 * MS, compute_ns=10 * MS)] * 60])
        assert any("device's clock" in note for note in analyse(open_run(tmp_path / name)).notes) == (off_ms > 0)


def test_a_batch_that_is_passed_over_computes_nothing(training: Training) -> None:
    for number in training.steps(80, 10 * MS, begins=True):
        if number % 4 != 3:
            training.compute(5 * MS)
            training.tell.backward_end()
    training.done()
    parts, window = training.facts.parts, training.facts.window
    assert window.count == 76
    assert ((window.steps["flags"] & StepFlag.COMPUTED_NOTHING) != 0).sum() == 19
    assert parts.unresolved_steps == parts.unseen_ns == 0
    assert parts.share("compute") == pytest.approx(3 / 8, abs=0.02)


def test_drained_flags_tell_a_hidden_wait_from_one_that_cost_the_device(training: Training) -> None:
    for epoch, fetch_ms in enumerate((3, 300)):
        for _ in training.steps(4, fetch_ms * MS, begins=True, epoch=epoch):
            training.part(1000)
            training.compute(10 * MS)
            training.tell.optimizer_end()
        # The loader has no further batch.
        training.tell.fetch_begin(epoch, False, None)
        training.tell.abandon_fetch()
    training.synchronize()
    steps = training.done()
    assert (steps["fetch_end_ns"] - steps["fetch_begin_ns"]).tolist() == [3 * MS] * 4 + [300 * MS] * 4
    assert (steps["device_end_ns"] - steps["device_begin_ns"]).tolist() == [10 * MS] * 8
    assert steps["copy_bytes"].tolist() == [1000] * 8
    flags = steps["flags"]
    assert (flags & StepFlag.PINNED).all()
    assert ((flags & StepFlag.FIRST_OF_EPOCH) != 0).tolist() == [True, False, False, False] * 2
    assert not (flags[1:4] & StepFlag.DRAINED_AT_EXIT).any()
    assert (flags[5:] & StepFlag.DRAINED_AT_EXIT).all()
    assert not (flags[5:] & StepFlag.DRAINED_AT_ENTRY).any()
    assert not flags[0] & StepFlag.DRAINED_KNOWN


def test_the_elements_of_a_steps_batches_are_added_and_their_flags_united(training: Training) -> None:
    shift, known, new, most = StepFlag.ELEMENTS_SHIFT, StepFlag.SHAPE_KNOWN, StepFlag.NEW_SHAPE, StepFlag.MOST_ELEMENTS
    tell = training.tell
    for further in ((), (7,), (7, 9), (most, most), (0,)):
        tell.fetch_begin(0, True, None)
        tell.fetch_end(4, flags=known | 5 << shift)
        for number, elements in enumerate(further):
            told = known | new | elements << shift if elements else 0
            if number % 2:
                tell.fetch_end(4, flags=told)
            else:
                tell.fetch_within_begin()
                tell.fetch_within_end(4, told)
    flags = training.done()["flags"]
    assert [int(f) >> shift for f in flags] == [5, 12, 21, most, 5]
    assert [int(f) % (1 << shift) & (known | new) for f in flags] == [known, *[known | new] * 3, known]


def test_a_fetch_within_a_step_costs_a_device_what_it_idles_behind_it(training: Training) -> None:
    for _ in training.steps(40, begins=True):
        training.compute(5 * MS)
        training.tell.fetch_within_begin()
        training.clock.advance(12 * MS)
        training.tell.fetch_within_end(12)
        training.compute(3 * MS)
        training.tell.optimizer_end()
        training.synchronize()
    training.done()
    facts = training.facts
    assert facts.batch_size == 12
    # The device still computes for 5 of the 12 ms.
    assert facts.parts.share("input") == pytest.approx(7 / 15, abs=0.01)
    assert facts.parts.share("compute") == pytest.approx(8 / 15, abs=0.01)


def test_a_forward_pass_ahead_of_the_fetch_is_computing_on_a_device_too(training: Training) -> None:
    nodes = 0
    training.tell.graph = lambda: nodes
    for _ in training.steps(40, 9 * MS, begins=True):
        training.tell.backward_begin()
        training.compute(4 * MS)
        training.tell.optimizer_end()
        nodes += 5
        training.compute(3 * MS)  # the next batch's forward pass
    training.done()
    # Both passes run while the next batch is fetched.
    assert training.facts.parts.share("compute") == pytest.approx(7 / 9, abs=0.01)
    assert training.facts.parts.share("input") == pytest.approx(2 / 9, abs=0.01)
    assert any("forward pass runs between" in note for note in analyse(open_run(training.folder)).notes)


@pytest.mark.parametrize("copies", [False, True])
def test_without_a_loader_nothing_is_told_apart_that_is_not_known(training: Training, copies: bool) -> None:
    for number in range(40):
        training.tell.fetch_begin(0, number == 0, None)
        training.tell.compute_begin()
        training.clock.advance(6 * MS)
        if copies:
            training.part(10_000_000)
        training.compute(9 * MS)
        training.tell.optimizer_end()
        training.synchronize()
    training.done()
    facts, report = training.facts, contract.report(analyse(open_run(training.folder)))
    assert (facts.told_apart, UNTOLD in facts.shares) == (copies, not copies)
    assert sum(facts.shares.values()) == pytest.approx(1)
    for part, figure in (("breakdown", "compute_pct"), ("device", "busy_pct"), ("device", "au_pct")):
        assert (report[part][figure] is None) == (not copies)
    assert report["breakdown"]["input_pct"] is None
    assert (report["verdict"]["cause"] is None) == (not copies)
