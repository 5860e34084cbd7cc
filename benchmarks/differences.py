"""What `diff` and `check` make of pairs of one setting, and of pairs of which one is 20 % slower.

The recordings are made up (`tests/support/pairs.py`): runs of one setting differ in speed by 3 %, and their steps
by more, each of which is like the one before. What is counted does not depend on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.pairs import ahead, noisy
from whyidle.analyse.diff.check import REGRESSION, Asked, against_runs
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.run.stall_breakdown import PARTS

RUN_NOISE = 0.03
SLOWER = 0.8
LIMIT_PCT = 5.0
Make = Callable[[Path, np.random.Generator, float, float], Path]


def _made(**how: float) -> Make:
    return lambda folder, rng, speed, scatter: ahead(
        folder, rng, compute_ms=10 / speed, run_noise=RUN_NOISE, step_noise=scatter, **how
    )


MAKERS: dict[str, Make] = {
    "on the processor": lambda folder, rng, speed, scatter: noisy(
        folder, rng, fetch_ms=10 / speed, compute_ms=25 / speed - 5, run_noise=RUN_NOISE, step_noise=scatter
    ),
    "loss read every step": _made(read_every=1),
    "every ten": _made(read_every=10),
    "never": _made(read_every=1000),
    "never, 200 ms between epochs": _made(read_every=1000, pause_ms=200),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--slower", type=int, default=50)
    asked = parser.parse_args()
    print(
        f"| training | steps differ by | {asked.pairs} of one setting: called different, a part, no pass | "
        f"{asked.slower} of which one is 20 % slower: called different | failed, unclear, passed |"
    )
    print("|---|---|---|---|---|")
    for name, make in MAKERS.items():
        for scatter in (0.02, 0.1, 0.2):
            print(f"| {name} | {100 * scatter:.0f} % | {_row(make, scatter, asked.pairs, asked.slower)} |", flush=True)


def _row(make: Make, scatter: float, pairs: int, slower: int) -> str:
    rng = np.random.default_rng(round(100 * scatter))
    called = parts = alarms = told = 0
    statuses: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(pairs + slower):
            speeds = (1.0, 1.0 if number < pairs else SLOWER)
            a, b = (
                side_of(side, [make(Path(folder) / f"{side}{number}", rng, speed, scatter)])
                for side, speed in zip("AB", speeds, strict=True)
            )
            times = Difference(a, b).times
            if number < pairs:
                called += times.significant
                parts += any(times.terms[part].significant for part in PARTS if part in times.terms)
                alarms += _status(a, b) != "passed"
            else:
                told += times.significant
                statuses[_status(a, b)] += 1
    which = ", ".join(str(statuses[status]) for status in ("failed", "unclear", "passed"))
    return f"{called}, {parts}, {alarms} | {told} | {which}"


def _status(a: Side, b: Side) -> str:
    return against_runs(Difference(a, b), "A", Asked({REGRESSION: LIMIT_PCT})).status


if __name__ == "__main__":
    main()
