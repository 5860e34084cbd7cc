"""Runs recorded by every released version are read, with the figures they had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whyidle.analyse.run.analysis import analyse
from whyidle.record.comparison import read_comparison
from whyidle.record.files import read_json
from whyidle.record.run import open_run
from whyidle.record.schema import FORMAT_VERSION

DATA = Path(__file__).parents[2] / "data"


def test_there_is_a_recorded_run_of_this_version() -> None:
    assert (DATA / f"v{FORMAT_VERSION}").is_dir()


def test_version_1_is_read_with_the_figures_it_had() -> None:
    """100 steps, 20 ms of loading behind 10 ms of computing, 0.4 ms of pageable copy, on two CPUs in use. Recorded when
    the program was called stallscope."""
    assert '"format": "stallscope-run"' in (DATA / "v1" / "starved" / "run.json").read_text()
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
    assert analysis.info["whyidle"] == "0.1.0"


def test_json_of_the_earlier_name_reads_as_todays_wherever_it_stands(tmp_path: Path) -> None:
    result = {"format": "stallscope-tune", "version": 1, "binding_constraint": "stallscope"}
    (tmp_path / "tune.json").write_text(json.dumps({"format": "stallscope-tuning", "result": result}))
    assert read_json(tmp_path / "tune.json") == {
        "format": "whyidle-tuning",
        "result": result | {"format": "whyidle-tune"},
    }
    (tmp_path / "other.json").write_text('{"format": "stallscoped", "stallscope": [{"format": 1}]}')
    assert read_json(tmp_path / "other.json") == {"format": "stallscoped", "stallscope": [{"format": 1}]}


def test_a_comparison_of_the_earlier_name_is_read(tmp_path: Path) -> None:
    cell = {"pipeline": "naive", "batch_size": 8, "status": "ok", "error": None, "runs": ["a"]}
    written = {"format": "stallscope-comparison", "version": 1, "setting": {"scenario": "ssd"}, "cells": [cell]}
    (tmp_path / "comparison.json").write_text(json.dumps(written))
    setting, (read,) = read_comparison(tmp_path)
    assert (setting, read.pipeline, read.runs) == ({"scenario": "ssd"}, "naive", ("a",))
