"""Metrics have one name each, and are the same wherever they are told; whether batches differ in size."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whyidle.analyse.ranks.figures import figure
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.facts import largest_samples
from whyidle.analyse.run.loader_stats import SlowSample
from whyidle.analyse.run.metrics import METRICS
from whyidle.record.run import open_run
from whyidle.record.schema import STEP, StepFlag
from whyidle.report.contract.encode import builtins
from whyidle.report.contract.run import report
from whyidle.report.export.scalars import of_run as scalars_of_run
from whyidle.scenarios.planted import MS, Step, train


def test_metrics_share_no_names_or_words_and_those_for_prometheus_have_a_sentence_and_a_name_for_loggers() -> None:
    for read in ("name", "label", "logged", "gauge"):
        names = Counter(name for metric in METRICS.values() if (name := getattr(metric, read)))
        assert [name for name, times in names.items() if times > 1] == []
    assert [m.name for m in METRICS.values() if m.gauge and not (m.meaning and m.logged)] == []


def test_a_figure_is_the_same_wherever_it_is_told(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    analysis = analyse(open_run(tmp_path / "run"))
    json, logged = builtins(report(analysis)), scalars_of_run(analysis)
    told = {**json["device"], **json["input"], **json["quality"]}
    known = {name: value for name in METRICS if (value := figure(analysis, name)) is not None}
    assert {"busy_pct", "au_pct", "overhead_pct"} <= set(known)
    assert {name: told[name] for name in known if name in told} == {name: known[name] for name in known if name in told}
    for metric in METRICS.values():
        assert logged.get(metric.logged) == (known.get(metric.name) if metric.logged else None)


def facts(elements: list[int], samples: list[int], known: bool = True) -> Any:
    steps = np.zeros(len(elements), dtype=STEP.dtype)
    flags = [(StepFlag.SHAPE_KNOWN if known else 0) | each << StepFlag.ELEMENTS_SHIFT for each in elements]
    steps["flags"], steps["samples"] = flags, samples
    slowest = (SlowSample(9.0, 71, None), SlowSample(8.0, None, None), SlowSample(7.0, 3, None))
    return SimpleNamespace(window=SimpleNamespace(steps=steps), loader=SimpleNamespace(slowest=slowest))


@pytest.mark.parametrize(
    ("known", "largest"),
    [
        (facts([800, 800, 1600, 880], [8] * 4), (71, 3)),  # of padded sequences
        (facts([800, 800, 300], [8, 8, 3]), None),  # of images, and a smaller last batch
        (facts([800, 1600], [8, 8], known=False), None),
        (None, None),
    ],
)
def test_samples_that_differ_in_size_are_named_by_the_slowest(known: Any, largest: tuple[int, ...] | None) -> None:
    assert largest_samples(known) == largest
