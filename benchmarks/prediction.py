"""How wrong the replay is about settings it has not seen: prints tables in markdown.

The truth is a grid that `python -m benchmarks.tuning.grid` measured in plain PyTorch (`--grid`). Of each workload one
run is recorded by `whyidle run` with the default setting (2 workers, prefetch 2) and one without workers; from each
alone every setting of the grid is predicted. Beside it: two closed forms that know nothing of a loader's order, fed
with the same recorded times, hand-over and sharing of memory included, and what the grid's own rounds differ by.
The choice is the cheapest setting predicted within 2 % of the best; it is judged by the grid.

Record soon after the grid, on the same machine: what changed in between counts as an error here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.tuning.blocks import Grid, Point, read
from whyidle.analyse.predict.observed import workload_of
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.replay import Workload
from whyidle.analyse.run.facts import facts_of
from whyidle.record.run import open_run
from whyidle.record.tuning import LoaderSettings

TRAIN = Path(__file__).parent / "tuning" / "programs" / "train.py"
RECORDED: tuple[Point, ...] = ((2, 2), (0, None))
SECONDS = 8.0
"""Of a recorded training."""
MODELS = ("replay", "bounds", "M/M/1/K")
Choices = dict[tuple[int, str, str], tuple[Point, float]]
"""By workers of the recorded run, workload and model: the setting, and what of the best's rate is missing."""


@dataclass(frozen=True)
class Row:
    """One setting of the grid."""

    workload: str
    recorded: int
    """Workers of the recorded run."""
    point: Point
    measured: float
    predicted: dict[str, float]
    """Samples/s by model."""
    within: bool
    """Whether the measured rate lies in the replay's interval."""

    def error(self, model: str) -> float:
        return abs(self.predicted[model] / self.measured - 1)


def _times(workload: Workload) -> tuple[float, float, float]:
    """Mean ns of a batch: making it in a worker, the CPU part of that, and training on it."""
    cpu = float(workload.cpu_ns.mean()) + workload.sharing_ns
    own = float(workload.host_ns.mean()) + workload.drawing_ns
    return cpu + float((workload.wait_ns + workload.read_ns).mean()), cpu, own


def _alone(workload: Workload) -> float:
    """Without workers."""
    made, _, own = _times(workload)
    return workload.batch_size * 1e9 / (made - workload.sharing_ns + own)


def least_time(making: float, workers: int, step: float, handoff: float, cpu: float, cpus: float) -> float:
    """Least time a batch can take: no queue, order or spread makes it less (operational bounds)."""
    return max(step + handoff, making / workers, cpu / cpus)


def empty_wait(making: float, workers: int, step: float, queue: int) -> float:
    """Mean wait for a batch whatever its order, with times that vary like exponential ones (M/M/1/K, as tf.data's
    tuner has it)."""
    produces = making / workers
    if produces == 0:
        return 0.0
    ratio = step / produces
    empty = 1 / (queue + 1) if abs(ratio - 1) < 1e-9 else (1 - ratio) / (1 - ratio ** (queue + 1))
    return empty * produces


def bound(workload: Workload, settings: LoaderSettings) -> float:
    """Samples/s of whichever of loader, training and processors is the slowest."""
    if settings.num_workers == 0:
        return _alone(workload)
    made, cpu, own = _times(workload)
    least = least_time(made, settings.num_workers, own, workload.handoff_ns, cpu, workload.cpus)
    return workload.batch_size * 1e9 / least


def queue(workload: Workload, settings: LoaderSettings) -> float:
    """Samples/s by M/M/1/K, tf.data's model: batches come and go at random, and W times prefetch fit the queue."""
    if settings.num_workers == 0:
        return _alone(workload)
    made, _, own = _times(workload)
    own += workload.handoff_ns
    waits = empty_wait(made, settings.num_workers, own, settings.outstanding)
    return workload.batch_size * 1e9 / (own + waits)


def record(workload: str, point: Point, rate: float, batch: int, seconds: float, folder: Path) -> None:
    """A run of the training, of about so many seconds at the rate that the grid measured."""
    workers, ahead = point
    settings = ["--workers", str(workers)] + ([] if ahead is None else ["--prefetch", str(ahead)])
    batches = max(60, round(seconds * rate / batch))
    train = [sys.executable, str(TRAIN), "--workload", workload, "--batches", str(batches), *settings]
    command = [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str(folder), "--", *train]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")


def observed(folder: Path) -> Workload:
    run = open_run(folder)
    facts = facts_of(run)
    if facts is None:
        raise SystemExit(f"{folder}: no step was recorded")
    # The grid measures within an epoch.
    return replace(workload_of(run, facts), batches_per_epoch=None)


def judged(grid: Grid, recorded: Point, workload: Workload) -> Iterator[Row]:
    """Every setting of the grid."""
    forms: dict[str, Callable[[Workload, LoaderSettings], float]] = {"bounds": bound, "M/M/1/K": queue}
    settings = [replace(workload.settings.with_workers(w), prefetch_factor=ahead) for w, ahead in grid.points]
    for point, asked, told in zip(grid.points, settings, predict(workload, settings), strict=True):
        measured = grid.rate(point)
        predicted = {"replay": told.samples_per_s} | {name: form(workload, asked) for name, form in forms.items()}
        yield Row(grid.workload, recorded[0], point, measured, predicted, told.low <= measured <= told.high)


def chosen(rows: Sequence[Row], model: str) -> Point:
    """The cheapest that is predicted within 2 % of the best."""
    best = max(row.predicted[model] for row in rows)
    near = [row.point for row in rows if row.predicted[model] >= 0.98 * best]
    return min(near, key=lambda point: (point[0], point[1] or 0))


def noise(grid: Grid) -> list[float]:
    """By how much one round is off the mean of the others, of each setting."""
    off = []
    for judge in grid.rounds:
        others = [each for each in grid.rounds if each != judge]
        if others:
            off += [abs(grid.rate(point, [judge]) / grid.rate(point, others) - 1) for point in grid.points]
    return off


def spread(errors: Sequence[float]) -> str:
    """Median and 90th percentile."""
    if not errors:
        return "n/a"
    return f"{100 * float(np.median(errors)):.1f} / {100 * float(np.quantile(errors, 0.9)):.1f}"


def tables(rows: Sequence[Row], choices: Choices, noises: dict[str, list[float]]) -> Iterator[str]:
    """Markdown."""
    for recorded in dict.fromkeys(row.recorded for row in rows):
        of_run = [row for row in rows if row.recorded == recorded]
        yield f"\nFrom one run with {recorded} workers: error, median / p90, %\n"
        yield f"| workload | settings | {' | '.join(MODELS)} | rerun noise | within the 90 % interval |"
        yield "|---|---|" + "---|" * (len(MODELS) + 2)
        for name in [*dict.fromkeys(row.workload for row in of_run), None]:
            part = [row for row in of_run if name in (None, row.workload)]
            off = [each for key, values in noises.items() if name in (None, key) for each in values]
            errors = " | ".join(spread([row.error(model) for row in part]) for model in MODELS)
            inside = 100 * fmean(row.within for row in part)
            yield f"| {name or 'all'} | {len(part)} | {errors} | {spread(off)} | {inside:.0f} % |"
        yield "\nIts choice: workers, prefetch (% below the grid's best)\n"
        yield f"| workload | {' | '.join(MODELS)} |"
        yield "|---|" + "---|" * len(MODELS)
        for name in dict.fromkeys(row.workload for row in of_run):
            picks = (choices[recorded, name, model] for model in MODELS)
            cells = (f"{point[0]}, {point[1] or '-'} ({100 * missing:.1f})" for point, missing in picks)
            yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=Path, required=True, metavar="FILE", help="written by benchmarks.tuning.grid")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a recorded run (default: {SECONDS:g})")
    options = parser.parse_args()
    told, grids = read(options.grid)
    rows: list[Row] = []
    choices: Choices = {}
    with tempfile.TemporaryDirectory() as made:
        for name, grid in grids.items():
            batch = told["workloads"][name]["batch_size"]
            for point in RECORDED:
                folder = Path(made) / f"{name}-{point[0]}"
                record(name, point, grid.rate(point), batch, options.seconds, folder)
                of_run = list(judged(grid, point, observed(folder)))
                rows += of_run
                for model in MODELS:
                    pick = chosen(of_run, model)
                    choices[point[0], name, model] = pick, grid.regret(pick)
            print(f"{name} done", file=sys.stderr, flush=True)
    noises = {name: noise(grid) for name, grid in grids.items()}
    print(f"{told['machine']}, {told['date']}; {told['command']}")
    print("\n".join(tables(rows, choices, noises)))


if __name__ == "__main__":
    main()
