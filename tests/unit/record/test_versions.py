"""Runs recorded by every released version are read, with the figures they had."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.analyse.analysis import analyse
from stallscope.record.run import open_run
from stallscope.record.schema import FORMAT_VERSION

DATA = Path(__file__).parents[2] / "data"


def test_there_is_a_recorded_run_of_this_version() -> None:
    assert (DATA / f"v{FORMAT_VERSION}").is_dir()


def test_version_1_is_read_with_the_figures_it_had() -> None:
    """100 steps, 20 ms of loading behind 10 ms of computing, 0.4 ms of pageable copy, on two CPUs in use."""
    analysis = analyse(open_run(DATA / "v1" / "starved"))
    facts = analysis.facts
    assert facts is not None
    assert (len(facts.window.steps), facts.window.warmup_steps, facts.samples) == (95, 5, 760)
    assert facts.samples_per_s == pytest.approx(391.9, abs=0.1)
    assert facts.parts.share("input") == pytest.approx(0.490, abs=0.001)
    assert facts.parts.share("copy") == pytest.approx(0.020, abs=0.001)
    assert facts.sampled.utilisation_pct == 48.0
    assert facts.sampled.tree_cpus == pytest.approx(1.9)
    assert facts.sampled.cpu_budget == 2.0
    assert facts.sampled.sm_active_pct is None
    assert facts.loader.workers == 2
    assert analysis.verdict.cause == "input.cpu_exhausted"
    assert analysis.dropped_records == 0
