"""The report's section on how batches are made."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from support.crafted import facts_of_run
from support.rendered import rendered
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import Timed
from whyidle.analyse.run.worker_records import SlowSample, TransformCost
from whyidle.report.document import Document
from whyidle.report.documents.workers import workers_blocks

DATA = Path(__file__).parents[2] / "data" / "v1" / "starved"


@pytest.fixture(scope="module")
def recorded() -> Facts:
    return facts_of_run(DATA)


def shown(facts: Facts, input_share: float | None = None, **loader: Any) -> str:
    parts = facts.parts
    if input_share is not None:
        parts = dataclasses.replace(parts, input_ns=round(input_share * parts.wall_ns))
    facts = dataclasses.replace(facts, parts=parts, loader=dataclasses.replace(facts.loader, **loader))
    return rendered(Document(tuple(workers_blocks(facts))), 100)


def percents(text: str) -> list[float]:
    return [float(line.split(" %")[0].split()[-1]) for line in text.splitlines() if " %" in line]


WAITING = {"unsplit_pct": 99.0, "read_pct": 0.0, "collate_pct": 1.0, "cpu_pct": 6.0, "run_queue_pct": 4.0}


def test_the_stages_sum_to_all_and_the_largest_is_the_true_one(recorded: Facts) -> None:
    text = shown(recorded, **WAITING).split("Making batches, of the time spent on it:")[1]
    assert sum(percents(text)) == pytest.approx(100, abs=0.2)
    assert "waiting otherwise  90.0 %" in text


def test_what_is_not_told_apart_is_the_rest(recorded: Facts) -> None:
    untold = {"unsplit_pct": None, "decode_pct": None, "transform_pct": None, "read_pct": 30.0, "collate_pct": 10.0}
    text = shown(recorded, **untold, cpu_pct=None).split("Making batches")[1]
    assert "the rest   60.0 %  not told apart" in text


def test_where_data_costs_little_or_a_sample_takes_microseconds_few_lines_say_it(recorded: Facts) -> None:
    assert len(shown(recorded).splitlines()) > 8
    for text in (shown(recorded, input_share=0.04), shown(recorded, make_ms_per_sample=0.012)):
        assert len(text.splitlines()) <= 6
        assert "reading" not in text
    assert "12 µs" in shown(recorded, make_ms_per_sample=0.012)


def test_only_samples_that_are_slow_are_listed(recorded: Facts) -> None:
    samples = tuple(SlowSample(ms, number, None) for number, ms in enumerate((40.0, 10.0, 2.0)))
    text = shown(recorded, slowest=samples, make_ms_per_sample=5.0)
    assert "index 0" in text
    assert "index 1" not in text
    assert "Slow samples" not in shown(recorded, slowest=samples[2:], make_ms_per_sample=1.9)
    assert "Slow samples" not in shown(recorded, slowest=(SlowSample(0.9, 0, None),), make_ms_per_sample=0.2)


def test_transforms_and_all_else_make_up_a_sample(recorded: Facts) -> None:
    costs = tuple(TransformCost(f"T{n}", 10, 0.5) for n in range(7))
    text = shown(recorded, transforms=costs, timed=Timed(10, 10.0, 3.5)).split("Transforms")[1].split("Slow")[0]
    assert "(10 ms while timed)" in text
    assert "2 others" in text
    assert "all else" in text
    assert sum(percents(text)) == pytest.approx(100, abs=0.2)


def test_figures_are_not_broken_across_lines(recorded: Facts) -> None:
    for line in shown(
        dataclasses.replace(
            recorded, waits=dataclasses.replace(recorded.waits, blocked_ns=recorded.waits.total_ns // 5)
        ),
        **WAITING,
    ).splitlines():
        assert not line.lstrip().startswith(("%", "ms", "kB", "µs"))
