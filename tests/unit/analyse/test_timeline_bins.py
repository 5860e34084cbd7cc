"""Time over time: bins lose nothing, what is kept in full is chosen well, lines keep their peaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import amend
from support.long_run import is_bad, make
from whyidle.analyse.intervals import total
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import UNTOLD
from whyidle.analyse.timeline import detail
from whyidle.analyse.timeline.bins import bins_of, gap_spans, idle_of
from whyidle.analyse.timeline.detail import busy_of_workers, kept_batches, kept_spans, overlapping, stretches_of
from whyidle.analyse.timeline.lines import TimelineLine, downsampled, lines_of
from whyidle.analyse.timeline.marks import marks_of
from whyidle.analyse.timeline.timeline import Timeline, timelines
from whyidle.record.reader import measured
from whyidle.record.run import open_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.scenarios.planted import MS, Step, train

lengths = st.integers(0, 30 * MS)
planned = st.builds(
    Step,
    fetch_ns=lengths,
    compute_ns=st.integers(1, 30 * MS),
    host_ns=lengths,
    copy_bytes=st.integers(0, 10**7),
    sync=st.booleans(),
    boundary_ns=st.sampled_from((0, 0, 0, 50 * MS)),
)


def timeline_of(folder: Path) -> Timeline:
    run = open_run(folder)
    (only,) = timelines(analyse(run), [run])
    return only


OFTEN = 9_000


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Twelve minutes, of which some are bad."""
    return timeline_of(make(tmp_path_factory.mktemp("long") / "run", hours=0.2, bad_every=OFTEN))


@given(epochs=st.lists(st.lists(planned, min_size=2, max_size=25), min_size=1, max_size=3), count=st.integers(1, 300))
def test_the_bins_of_a_part_sum_to_its_time_to_the_nanosecond(epochs: list[list[Step]], count: int) -> None:
    with TemporaryDirectory() as folder:
        train(Path(folder) / "run", epochs)
        timeline = timeline_of(Path(folder) / "run")
    facts, bins = timeline.facts, bins_of(timeline, count)
    assert (bins.edges_ns[0], bins.edges_ns[-1]) == (facts.window.begin_ns, facts.window.end_ns)
    for part, amounts in bins.parts.items():
        assert amounts.min() >= 0
        assert int(amounts.sum()) == total(timeline.parts[part])
    assert bins.unseen.min() >= 0
    assert int(bins.unseen.sum()) == facts.parts.unseen_ns
    assert sum(int(a.sum()) for a in bins.parts.values()) + int(bins.unseen.sum()) == facts.parts.wall_ns
    if facts.parts.unseen_ns == 0:
        assert {part: int(a.sum()) for part, a in bins.parts.items()} == {
            part: getattr(facts.parts, f"{part}_ns") for part in bins.parts
        }
    assert bins.steps.sum() == pytest.approx(facts.window.count)
    assert bins.steps.min() >= -1e-9
    assert bins.samples is not None
    assert bins.samples.sum() == pytest.approx(facts.window.samples)
    spans = gap_spans(facts)
    assert (spans[:, 1] - spans[:, 0]).tolist() == facts.parts.gaps_ns.tolist()
    assert (int(bins.gaps.sum()), int(bins.longest_gap.max())) == (
        len(facts.parts.gaps_ns),
        facts.parts.gaps_ns.max(initial=0),
    )


def test_steps_that_nobody_looked_at_count_where_they_ran(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=5 * MS)] * 40])

    def skip(steps: np.ndarray) -> None:
        steps["skipped"][20], steps["skipped_samples"][20] = 30, 240
        for name in steps.dtype.names:
            if name.endswith("_ns") and name not in ("sync_ns", "gc_ns", "cpu_ns", "overhead_ns"):
                later = steps[name][20:]
                later[later != NOT_MEASURED] += 30 * 15 * MS

    amend(tmp_path / "run", skip)
    timeline = timeline_of(tmp_path / "run")
    bins = bins_of(timeline, 100)
    pause = (bins.edges_ns[:-1] > timeline.steps["device_end_ns"][19]) & (
        bins.edges_ns[1:] < timeline.steps["device_begin_ns"][20]
    )
    assert bins.steps.sum() == pytest.approx(timeline.facts.window.count) == pytest.approx(67)
    assert bins.steps[pause].sum() == pytest.approx(30, rel=0.1)
    assert bins.unseen[pause].sum() > 0.9 * np.diff(bins.edges_ns)[pause].sum()


def test_without_fetches_what_is_not_told_apart_has_bins_of_its_own(tmp_path: Path) -> None:
    from support.crafted import train_on_cpu

    train_on_cpu(tmp_path / "run", [{}] * 60)

    def unfed(steps: np.ndarray) -> None:
        steps["fetch_end_ns"] = NOT_MEASURED

    amend(tmp_path / "run", unfed)
    timeline = timeline_of(tmp_path / "run")
    bins = bins_of(timeline, 50)
    assert "compute" not in bins.parts
    assert int(bins.parts[UNTOLD].sum()) == timeline.facts.window.wall_ns
    assert bins.gaps.sum() == idle_of(bins.parts, 50).sum() == 0


def test_a_short_run_is_kept_whole_and_a_long_one_at_its_begin_its_worst_and_its_end(hours: Timeline) -> None:
    (whole,) = stretches_of(hours, 10**9)
    assert (whole.begin_ns, whole.end_ns, whole.why) == (hours.begin_ns, hours.end_ns, "whole")
    first, worst, last = stretches_of(hours, 3_000)
    assert [first.why, worst.why, last.why] == ["begin", "worst", "end"]
    assert hours.begin_ns == first.begin_ns < first.end_ns <= worst.begin_ns < worst.end_ns <= last.begin_ns
    assert last.end_ns == hours.end_ns
    kept = sum(len(kept_spans(s, [first, worst, last])) for s in hours.parts.values())
    kept += int(overlapping(hours.steps["fetch_begin_ns"], hours.steps["step_end_ns"], [first, worst, last]).sum())
    assert 1_500 < kept < 3_100

    def idle(begin: int, end: int) -> float:
        bins = bins_of(hours, 2_000)
        inside = (bins.edges_ns[:-1] >= begin) & (bins.edges_ns[1:] <= end)
        return float(idle_of(bins.parts, 2_000)[inside].sum()) / (end - begin)

    assert idle(worst.begin_ns, worst.end_ns) > 1.2 * idle(hours.begin_ns, hours.end_ns)


@given(st.lists(st.lists(st.integers(0, 30)), min_size=1, max_size=3), st.integers(0, 15), st.integers(16, 31))
def test_moments_of_several_kinds_are_as_if_sorted_together(kinds: list[list[int]], begin: int, end: int) -> None:
    together = sorted(at for each in kinds for at in each if begin <= at < end)
    made = detail._Begins([np.array(each, dtype=np.int64) for each in kinds], begin, end)
    assert len(made) == len(together)
    assert made.numbers(np.arange(len(together))).tolist() == together
    edges = np.arange(begin, end)
    assert made.before(edges).tolist() == [sum(at < edge for at in together) for edge in edges.tolist()]


def test_the_worst_stretch_is_where_the_workers_fell_behind(hours: Timeline) -> None:
    worst = next(s for s in stretches_of(hours, 3_000) if s.why == "worst")
    steps = hours.steps
    inside = steps["step"][(steps["fetch_begin_ns"] >= worst.begin_ns) & (steps["step_end_ns"] <= worst.end_ns)]
    assert len(inside) > 100
    assert is_bad(inside, OFTEN).mean() > 0.9


def test_of_the_other_batches_those_that_took_longest_are_kept(hours: Timeline) -> None:
    stretches = stretches_of(hours, 3_000)
    kept = kept_batches(hours, stretches, 100)
    batches = hours.lanes.batches
    took = batches["end_ns"] - batches["begin_ns"]
    outside = ~overlapping(batches["begin_ns"], batches["end_ns"], stretches)
    left_out = np.setdiff1d(np.flatnonzero(outside), kept)
    assert 0 < (outside[kept]).sum() <= 100 + (batches["end_ns"] <= hours.begin_ns).sum()
    assert took[left_out].max() <= np.sort(took[kept][outside[kept]])[-50]
    assert set(np.flatnonzero(~outside)) <= set(kept)


def test_how_busy_workers_were_sums_to_the_time_they_made_batches(hours: Timeline) -> None:
    batches = hours.lanes.batches
    for worker, share in busy_of_workers(hours, 321).items():
        mine = batches[batches["worker"] == worker]
        inside = np.clip(mine["end_ns"], hours.begin_ns, hours.end_ns) - np.clip(
            mine["begin_ns"], hours.begin_ns, hours.end_ns
        )
        made = share.mean() * (hours.end_ns - hours.begin_ns)
        assert made == pytest.approx(inside.sum(), rel=1e-6)


def test_a_line_keeps_its_peaks_and_breaks_where_nothing_was_measured() -> None:
    random = np.random.default_rng(1)
    t = np.arange(100_000, dtype=np.int64) * 200 * MS
    values = random.normal(50, 5, len(t))
    values[[777, 54_321]] = 1000.0, -1000.0
    values[60_000:70_000] = np.nan
    kept_t, kept = downsampled(t, values, 2_000)
    assert len(kept) <= 2_001
    assert (np.nanmax(kept), np.nanmin(kept)) == (1000.0, -1000.0)
    (gap,) = np.flatnonzero(np.isnan(kept))
    assert kept_t[gap - 1] < t[60_000]
    assert kept_t[gap + 1] >= t[70_000]
    assert (np.diff(kept_t) > 0).all()


def test_what_was_not_measured_has_no_line(hours: Timeline, tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 30])
    assert {line.name for line in lines_of(timeline_of(tmp_path / "run"), 100)} == {"step"}
    names = {line.name: line.measured for line in lines_of(hours, 500)}
    assert {"step", "ready", "capacity", "utilisation:0", "memory:0", "power:0", "cpus", "machine"} <= set(names)
    assert "sm:0" not in names
    cpus = next(line for line in lines_of(hours, 500) if line.name == "cpus")
    assert np.nanmean(cpus.values) == pytest.approx(4.6, rel=0.1)


def test_what_the_machine_uses_is_in_cpus_as_what_the_training_uses(hours: Timeline) -> None:
    share = np.nanmean(measured(hours.host_samples["machine_busy_pct"])) / 100

    def of(cpus: int | None) -> list[TimelineLine]:
        timeline = replace(hours, facts=replace(hours.facts, machine_cpus=cpus))
        return [line for line in lines_of(timeline, 500) if line.name == "machine"]

    (line,) = of(8)
    assert np.nanmean(line.values) == pytest.approx(8 * share, rel=0.1)
    assert of(None) == []


def test_epochs_boundaries_and_the_warm_up_are_marked_and_the_longest_of_many_are_kept(tmp_path: Path) -> None:
    epoch = [Step()] * 20 + [Step(boundary_ns=70 * MS)]
    train(tmp_path / "run", [epoch] * 4)
    timeline = timeline_of(tmp_path / "run")
    marks, left_out = marks_of(timeline, {}, 100)
    kinds = [mark.kind for mark in marks]
    assert (kinds[0], kinds.count("epoch"), left_out) == ("warm-up", 4, 0)
    boundaries = [mark for mark in marks if mark.kind == "boundary"]
    assert boundaries
    assert all(mark.end_ns - mark.begin_ns >= 70 * MS for mark in boundaries)
    assert marks_of(timeline, {}, 1)[1] == left_out + len(marks) - len(set(kinds))
