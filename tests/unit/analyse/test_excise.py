"""Spans of time cut out of records: what is left is as if they had never been."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.trainings import Training, trainings
from whyidle.analyse.intervals import EMPTY
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.drop_intervals import STAMPS, CutRun, Cuts, excised
from whyidle.analyse.run.headroom import without_stretches
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.columns import copied
from whyidle.record.reader import Records
from whyidle.record.run import Run, open_run
from whyidle.record.schema import (
    BATCH,
    DEVICE,
    EVENT,
    HEADER_BYTES,
    HOST,
    NOT_MEASURED,
    PAUSE,
    STEP,
    EventKind,
    Kind,
    StepFlag,
)
from whyidle.scenarios.planted import MS, START, Step, train

NO_STEPS = np.empty(0, dtype=np.int64)
NOTHING = Cuts(EMPTY, NO_STEPS)
QUICK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def inserted(kind: Kind, records: Records, spans: list[tuple[int, int]]) -> Records:
    """Records of the same run if nothing had happened for so long at each of these times: (when, for how long)."""
    records = copied(records)
    for at, lasts in sorted(spans, reverse=True):
        for name in STAMPS[kind.name]:
            later = (records[name] >= at) & (records[name] != NOT_MEASURED)
            records[name][later] += lasts
    return records


def cuts(spans: list[tuple[int, int]]) -> Cuts:
    """The cuts that undo it."""
    edges, gone = [], 0
    for at, lasts in sorted(spans):
        edges.append((at + gone, at + gone + lasts))
        gone += lasts
    return Cuts(np.array(edges, dtype=np.int64).reshape(-1, 2), NO_STEPS)


def planted(folder: Path, training: Training) -> Run:
    epochs, workers, spec = training
    train(folder, epochs, spec=spec, workers=workers)
    return open_run(folder)


def counted(kind: Kind, times: list[int], **values: list[int]) -> Records:
    records = np.full(len(times), 0, dtype=kind.dtype)
    for field in kind.fields[1:]:
        records[field.name] = NOT_MEASURED if field.type == "i8" else 50.0
    records["t_ns"] = times
    for name, each in values.items():
        records[name] = each
    return records


def test_the_stamps_of_all_kinds_are_known() -> None:
    """A new field that says when is to be moved; if it is none, this list stays as it is."""
    known = "step 15, batch 2, transform 0, content 0, pause 4, device 1, host 1, memory 1, span 2, event 2"
    assert ", ".join(f"{kind} {len(names)}" for kind, names in STAMPS.items()) == f"{known}, stack 1"


@QUICK
@given(trainings(), st.data())
def test_what_was_inserted_is_cut_out_again(
    tmp_path_factory: pytest.TempPathFactory, training: Training, draw: st.DataObject
) -> None:
    run = planted(tmp_path_factory.mktemp("run") / "run", training)
    steps = run.records(STEP)
    first, last = int(steps["fetch_begin_ns"][0]) + 1, int(steps["step_end_ns"].max()) - 1
    when = st.tuples(st.integers(first, max(first, last)), st.integers(1, 10**12))
    spans = draw.draw(st.lists(when, min_size=1, max_size=4, unique_by=lambda span: span[0]))
    for kind in (STEP, PAUSE, BATCH, EVENT):
        records = run.records(kind)
        assert np.array_equal(excised(kind, records, NOTHING), records)
        assert np.array_equal(excised(kind, inserted(kind, records, spans), cuts(spans)), records), kind.name


def test_percentages_of_a_time_that_is_partly_cut_are_not_measured() -> None:
    records = counted(HOST, [0, 100, 200, 300, 400], tree_cpu_ns=[0, 10, 20, 1000, 1010])
    kept = excised(HOST, records, Cuts(np.array([[150, 250]]), NO_STEPS))
    assert kept["t_ns"].tolist() == [0, 100, 200, 300]
    assert np.isnan(kept["steal_pct"]).tolist() == [False, False, True, False]
    # Half of what it rose by between 100 and 200, and half of that between 200 and 300.
    assert kept["tree_cpu_ns"].tolist() == [0, 10, 1000 - 5 - 490, 1010 - 5 - 490]


def test_windows_of_a_device_go_with_the_cut_they_lie_in() -> None:
    records = counted(DEVICE, [100, 200, 300], device=[0, 0, 0], window_ns=[100] * 3, thermal_ns=[5, NOT_MEASURED, 25])
    kept = excised(DEVICE, records, Cuts(np.array([[110, 220]]), NO_STEPS))
    assert kept["t_ns"].tolist() == [100, 190]
    assert kept["thermal_ns"].tolist() == [5, 25 - 11]


def test_steps_let_pass_before_a_cut_are_told_by_the_next_step() -> None:
    steps = np.zeros(4, dtype=STEP.dtype)
    for name in STAMPS["step"]:
        steps[name] = NOT_MEASURED
    steps["step"] = [0, 6, 7, 8]
    steps["fetch_begin_ns"], steps["step_end_ns"] = [0, 90, 100, 110], [10, 100, 110, 120]
    steps["skipped"], steps["skipped_samples"], steps["skipped_end_ns"][1] = [0, 5, 0, 0], [0, 40, 0, 0], 60
    cut = Cuts(np.array([[60, 110]]), np.array([6, 7]))
    kept = excised(STEP, steps, cut)
    assert kept["step"].tolist() == [0, 8]
    assert kept["skipped"].tolist() == [0, 5]
    assert kept["skipped_samples"].tolist() == [0, 40]
    assert kept["skipped_end_ns"][1] == 60
    assert kept["fetch_begin_ns"].tolist() == [0, 60]


def mark(folder: Path, rows: np.ndarray, flag: int) -> None:
    """Set a flag of stored steps."""
    path = next(folder.glob("step-*.rec"))
    stored = np.memmap(path, STEP.dtype, "r+", HEADER_BYTES, int((path.stat().st_size - HEADER_BYTES) // 256))
    stored["flags"][rows] |= flag
    stored.flush()


@QUICK
@given(trainings(), st.data())
def test_the_parts_of_what_is_left_sum_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory, training: Training, draw: st.DataObject
) -> None:
    run = planted(tmp_path_factory.mktemp("run") / "run", training)
    steps = run.records(STEP)
    first = draw.draw(st.integers(1, len(steps) - 2))
    last = draw.draw(st.integers(first, min(first + 40, len(steps) - 2)))
    ran = len(steps) + int(steps["skipped"].sum()) + _after(run)
    mark(run.folder, np.arange(first, last + 1), draw.draw(st.sampled_from([StepFlag.HEADROOM, StepFlag.RECOVERY])))
    found = analyse(run)
    if found.facts is None or found.facts.cut_steps:
        return
    parts, window = found.facts.parts, found.facts.window
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns
    assert all(getattr(parts, f"{part}_ns") >= 0 for part in PARTS)
    apart = without_stretches(run, None)[0]
    assert isinstance(apart, CutRun)
    # Those that were marked, and those in which the device still caught up.
    assert len(apart.cuts.steps) >= last - first + 1
    assert window.count + window.warmup_steps == ran - len(apart.cuts.steps)


def _after(run: Run) -> int:
    events = run.records(EVENT)
    return int(events["value"][events["what"] == EventKind.SKIPPED_STEPS].sum())


def test_a_training_with_a_stretch_is_judged_as_one_without(tmp_path: Path) -> None:
    """Every second step of the one, and so of the other, waits 15 ms for 10 ms of work."""
    usual = Step(fetch_ns=15 * MS, compute_ns=10 * MS, sync=True)
    ready = Step(fetch_ns=0, compute_ns=10 * MS, sync=True)
    fill = Step(fetch_ns=24 * 15 * MS, compute_ns=10 * MS, sync=True)
    train(tmp_path / "without", [[usual] * 120])
    train(tmp_path / "with", [[usual] * 60 + [fill] + [ready] * 27 + [usual] * 60])
    run = open_run(tmp_path / "with")
    mark(run.folder, np.arange(60, 84), StepFlag.HEADROOM)
    mark(run.folder, np.arange(84, 88), StepFlag.RECOVERY)
    apart, headroom, notes = without_stretches(run, None)
    plain, cut = analyse(open_run(tmp_path / "without")), analyse(run)
    assert cut.facts.window.count + cut.facts.window.warmup_steps == 120
    for part in PARTS:
        assert cut.facts.parts.share(part) == pytest.approx(plain.facts.parts.share(part), abs=0.001), part
    assert cut.facts.samples_per_s == pytest.approx(plain.facts.samples_per_s, rel=0.001)
    assert cut.facts.parts.wall_ns == pytest.approx(plain.facts.parts.wall_ns, rel=0.002)
    assert cut.verdict.cause == plain.verdict.cause
    assert "24 steps" in notes[0]
    assert apart.records(STEP)["fetch_begin_ns"][0] >= START
    # What the stretch shows is what the partition says of the rest.
    assert headroom.speedup == pytest.approx(1 / (1 - plain.facts.parts.share("input")), rel=0.02)


def told(what: int, readings: list[tuple[int, int]]) -> Records:
    """Events that tell a counter: (when, how much)."""
    records = counted(EVENT, [when for when, _ in readings], value=[value for _, value in readings])
    records["what"] = what
    return records


S = 10**9
THREADS, RETRIES = EventKind.PYTHON_THREADS, EventKind.ALLOCATOR_RETRIES


@pytest.mark.parametrize(
    ("what", "readings", "cut", "kept"),
    [
        # Busy for a tenth of the time, and three times as much as that within the cut.
        (
            THREADS,
            [(0, 0), (100, 10), (200, 310), (300, 610), (400, 620), (500, 630)],
            (100, 300),
            [(0, 0), (100, 10), (200, 20), (300, 30)],
        ),
        # Told a little after they happened, and only then: the time since the last ones says nothing.
        (RETRIES, [(2 * S, 1), (15 * S, 5), (16 * S, 9), (40 * S, 10)], (10 * S, 20 * S), [(2 * S, 1), (30 * S, 2)]),
        # The first ones of all, told just after the cut that they happened in.
        (RETRIES, [(20 * S, 4), (25 * S, 5)], (10 * S, 20 * S), [(10 * S, 0), (15 * S, 1)]),
    ],
)
def test_what_a_counter_rose_by_in_a_cut_goes_with_it(
    what: int, readings: list[tuple[int, int]], cut: tuple[int, int], kept: list[tuple[int, int]]
) -> None:
    others = told(EventKind.EPOCH_BEGIN, [(0, 7), (readings[-1][0], 9)])
    found = excised(EVENT, np.concatenate((others, told(what, readings))), Cuts(np.array([cut]), NO_STEPS))
    of_counter = found[found["what"] == what]
    assert list(zip(of_counter["t_ns"].tolist(), of_counter["value"].tolist(), strict=True)) == kept
    assert found["value"][found["what"] == EventKind.EPOCH_BEGIN].tolist() == [7, 9]
