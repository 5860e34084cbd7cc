"""A tuning of a script, as it may have ended, and what it may say of batch sizes: figures that are made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whyidle.record.tuning import LoaderSettings
from whyidle.tune.result import BatchAdvice, SearchEnd, Trial, Tuning, WorkersCost


def trial(settings: LoaderSettings, rate: float | None, predicted: float | None = None, **more: Any) -> Trial:
    ends = (None, None) if rate is None else (rate * 0.9, rate * 1.1)
    settings = replace(settings, batch_size=settings.batch_size or 16)
    return replace(Trial(settings, "ok", None, rate, *ends, predicted, 12.0, 6), **more)


NOW = trial(LoaderSettings(0), 412.0, 400.0)
BEST = trial(
    LoaderSettings(4, 4, pin_memory=True, persistent_workers=True),
    *(754.0, 800.0),
    cost=WorkersCost(1_230_000_000, 1.64, 0.41),
)
SLOWER = trial(LoaderSettings(2, 2), 601.0, 640.0, dropped="20 % slower than 4 workers")
FAILED = trial(LoaderSettings(8, 2), None, 760.0, status="failed", error="RuntimeError: no\nroom", blocks=0)
RESULT = Tuning(
    what="python train.py",
    device={"kind": "cpu", "title": "A processor"},
    batch_size=16,
    baseline=NOW,
    best=BEST,
    trials=(NOW, SLOWER, FAILED, BEST),
    speedup=1.83,
    speedup_low=1.76,
    speedup_high=1.90,
    headroom=0.92,
    ended=SearchEnd.DECIDED,
    because="4 workers are 83 % faster",
    binding_constraint="cpu",
    not_tested=("in_order: not asked for",),
    noise=0.031,
    wall_s=64.2,
    steps=1432,
)
ADVICE = BatchAdvice(
    b_max=64,
    b_95=32,
    samples_per_s={16: 754.0, 32: 990.0, 64: 1000.0},
    intervals={16: (700.0, 800.0), 32: (900.0, 1080.0)},
    memory_bytes={32: 400_000_000, 64: 800_000_000},
    failed={128: "out of memory"},
    notes=("not looked for any further",),
    loader_bound=True,
)
