"""A tuning of a script, as it may have ended, and what it may say of batch sizes: figures that are made up."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

from whyidle.analyse.statistics import Estimate
from whyidle.record.tuning import LoaderSettings
from whyidle.tune.search.result import BatchAdvice, SearchEnd, Trial, Tuned
from whyidle.tune.search.tuning import Tuning


def trial(settings: LoaderSettings, rate: float | None, predicted: float | None = None, **more: Any) -> Trial:
    made = Trial(settings, "ok", None, rate and Estimate(rate, rate * 0.9, rate * 1.1), rate, predicted, 12.0, 6)
    return replace(made, **more)


NOW = trial(LoaderSettings(0), 412.0, 400.0)
BEST = trial(LoaderSettings(4, 4, pin_memory=True, persistent_workers=True), 754.0, 800.0)
SLOWER = trial(LoaderSettings(2, 2), 601.0, 640.0, dropped="20 % slower than 4 workers")
FAILED = trial(LoaderSettings(8, 2), None, 760.0, status="failed", error="RuntimeError: no\nroom", blocks=0)
TUNED = Tuned(
    baseline=NOW,
    best=BEST,
    trials=(NOW, SLOWER, FAILED, BEST),
    speedup=Estimate(1.83, 1.76, 1.90),
    headroom=0.92,
    ended=SearchEnd.DECIDED,
    because="4 workers are 83 % faster",
    binding="cpu",
    not_tested=("in_order: not asked for",),
    noise=0.031,
    wall_s=64.2,
)
RESULT = Tuning("python train.py", {"kind": "cpu", "title": "A processor"}, TUNED, None, 16, 1432)
ADVICE = BatchAdvice(
    b_max=64,
    b_95=32,
    rates={16: Estimate(754.0, 700.0, 800.0), 32: Estimate(990.0, 900.0, 1080.0), 64: Estimate(1000.0, nan, nan)},
    memory_bytes={32: 400_000_000, 64: 800_000_000},
    failed={128: "out of memory"},
    alpha_ns=2.1e6,
    beta_ns=1.1e5,
    off_line=(16,),
    settings=LoaderSettings(2, 2),
    notes=("not looked for any further",),
    loader_bound=True,
)
