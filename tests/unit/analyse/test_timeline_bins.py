"""Time over time: bins lose nothing, lines keep their peaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.crafted import amend, train_on_cpu
from support.long_run import make
from support.trainings import Training, trainings
from whyidle.analyse.intervals import total
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import UNTOLD
from whyidle.analyse.timeline.timeline import (
    Timeline,
    TimelineLine,
    bins_of,
    downsampled,
    lines_of,
    stretches,
    timelines,
)
from whyidle.record.reader import measured
from whyidle.record.run import open_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.scenarios.planted import MS, Step, train


def timeline_of(folder: Path) -> Timeline:
    run = open_run(folder)
    (only,) = timelines(analyse(run), [run])
    return only


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Twelve minutes, of which some are bad."""
    return timeline_of(make(tmp_path_factory.mktemp("long") / "run", hours=0.2, bad_every=9_000))


@settings(suppress_health_check=[HealthCheck.data_too_large])
@given(training=trainings(), count=st.integers(1, 300))
def test_the_bins_of_a_part_sum_to_its_time_to_the_nanosecond(
    tmp_path_factory: pytest.TempPathFactory, training: Training, count: int
) -> None:
    epochs, workers, spec = training
    timeline = timeline_of(train(tmp_path_factory.mktemp("bins") / "run", epochs, workers=workers, spec=spec).folder)
    facts, bins = timeline.facts, bins_of(timeline, count)
    assert (bins.edges_ns[0], bins.edges_ns[-1]) == (facts.window.begin_ns, facts.window.end_ns)
    for part, amounts in bins.parts.items():
        assert amounts.min() >= 0
        assert int(amounts.sum()) == total(timeline.parts[part])
    unseen = np.diff(bins.edges_ns) - sum(bins.parts.values())
    assert unseen.min() >= 0
    assert int(unseen.sum()) == facts.parts.unseen_ns
    if facts.parts.unseen_ns == 0:
        assert {part: int(a.sum()) for part, a in bins.parts.items()} == {
            part: getattr(facts.parts, f"{part}_ns") for part in bins.parts
        }
    assert bins.steps.sum() == pytest.approx(facts.window.count)
    assert bins.steps.min() >= -1e-9
    assert bins.samples.sum() == pytest.approx(facts.window.samples)


def test_a_step_behind_the_window_is_in_no_stretch(hours: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, seconds = np.array(hours.steps), (hours.end_ns - hours.begin_ns) / 1e9
    steps["fetch_begin_ns"][-1] = hours.end_ns
    monkeypatch.setattr(Timeline, "steps", steps)
    ((last, _, _),) = stretches(hours, seconds)
    assert last == steps["step"][-2]


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
    assert sum(parts[pause].sum() for parts in bins.parts.values()) < 0.1 * np.diff(bins.edges_ns)[pause].sum()


def test_without_fetches_what_is_not_told_apart_has_bins_of_its_own(tmp_path: Path) -> None:
    train_on_cpu(tmp_path / "run", [{}] * 60)

    def unfed(steps: np.ndarray) -> None:
        steps["fetch_end_ns"] = NOT_MEASURED

    amend(tmp_path / "run", unfed)
    timeline = timeline_of(tmp_path / "run")
    bins = bins_of(timeline, 50)
    assert "compute" not in bins.parts
    assert int(bins.parts[UNTOLD].sum()) == timeline.facts.window.wall_ns


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


def test_what_was_measured_has_lines_and_the_machine_is_in_cpus_as_the_training_is(hours: Timeline) -> None:
    share = np.nanmean(measured(hours.host_samples["machine_busy_pct"])) / 100

    def of(cpus: int | None) -> dict[str, TimelineLine]:
        timeline = replace(hours, facts=replace(hours.facts, machine_cpus=cpus))
        return {line.name: line for line in lines_of(timeline, 500)}

    lines = of(8)
    assert {"step", "ready", "capacity", "utilisation:0", "memory:0", "power:0", "cpus", "machine"} <= set(lines)
    assert "sm:0" not in lines
    assert np.nanmean(lines["cpus"].values) == pytest.approx(4.6, rel=0.1)
    assert np.nanmean(lines["machine"].values) == pytest.approx(8 * share, rel=0.1)
    assert "machine" not in of(None)
