"""How far whyidle's figures are from the truth: `make truth` prints the table of errors.

Four truths, none of them told by the analysis itself:

- virtual clock: what the engines of the emulated device and the training loop did, in random trainings;
- real clock, emulated device: the same with planted delays really slept, against the delays achieved;
- real clock, plain PyTorch loops on the processor, unchanged but for stamps of their own;
- differential: the same training with cached batches, and the loader alone. What a run loses against the cached one is
  what waiting for data costs; the loader sleeps in worker processes, so that it shares no CPU with the training.
  Where it does share the CPU the two differ by contention, which is reported apart.

Errors are in percentage points of wall time, for the worst of the six parts of each run.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import whyidle
from benchmarks import machine
from support.trainings import Training, trainings
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture.active import recorded
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.emulated import Clock, EmulatedDevice, EmulatedSpec
from whyidle.record.run import create_run, open_run
from whyidle.scenarios.planted import MS, Step, train, truth_of
from whyidle.scenarios.training import EmulatedNet, EmulatedOptimizer

VIRTUAL = 1000
RUNS = 30
STEPS = 60
BATCH = 4
ROUNDS = 5
SPEC = EmulatedSpec("bench", "Bench", 10**12, 10e9, 4e9)


def facts(folder: Path) -> Facts:
    found = facts_of(open_run(folder))
    assert found is not None
    return found


def error(found: Facts, truth: dict[str, int]) -> float:
    """The largest error of a part, in percentage points of wall time."""
    return 100 * max(abs(getattr(found.parts, f"{part}_ns") - truth[part]) for part in PARTS) / found.parts.wall_ns


def virtual(folder: Path) -> list[float]:
    errors: list[float] = []

    quick: dict[str, Any] = {"deadline": None, "database": None, "phases": [Phase.generate]}

    @settings(max_examples=VIRTUAL, suppress_health_check=list(HealthCheck), **quick)
    @given(training=trainings())
    def one(training: Training) -> None:
        epochs, workers, spec = training
        run = train(folder / f"virtual-{len(errors)}", epochs, workers=workers, spec=spec)
        found = facts(run.folder)
        errors.append(error(found, run.truth(found.window.begin_ns, found.window.end_ns)))

    one()
    return errors


def emulated(folder: Path, source: random.Random, runs: int = RUNS) -> list[float]:
    """Delays planted in fetch, copy, host, waits and validation, really slept beside an emulated device."""
    errors = []
    for number in range(runs):
        base = Step(
            compute_ns=source.choice([4, 10, 20]) * MS,
            copy_bytes=source.choice([0, 4_000_000, 20_000_000]),
            pinned=source.random() < 0.5,
            ahead=source.random() < 0.3,
            before_ns=source.choice([0, 0, 2 * MS]),
            host_ns=source.choice([0, 0, 5 * MS]),
            within_ns=MS,
        )
        fetch = source.choice([1, 8, 20]) * MS
        plan = []
        for step in range(STEPS):
            changes = {
                "fetch_ns": int(fetch * min(10.0, source.paretovariate(2))),
                "sync": step % 10 == 9,
                "sync_within": number % 3 == 0,
                "micro": number % 4 == 0 and step % 2 == 0,
                "boundary_ns": 80 * MS if step == STEPS - 1 else 0,
            }
            plan.append(Step(**vars(base) | changes))
        epochs = [plan[: STEPS // 2], plan[STEPS // 2 :]]
        run = train(folder / f"emulated-{number}", epochs, spec=SPEC, clock=Clock())
        found = facts(run.folder)
        errors.append(error(found, run.truth(found.window.begin_ns, found.window.end_ns)))
    return errors


class Sleeping(Dataset[torch.Tensor]):
    """Samples that take a while without using the CPU, or with it."""

    def __init__(self, samples: int, sleep_s: float, burn_s: float = 0.0) -> None:
        self.samples, self.sleep_s, self.burn_s = samples, sleep_s, burn_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.sleep_s:
            time.sleep(self.sleep_s)
        end = time.thread_time() + self.burn_s
        while time.thread_time() < end:
            pass
        return torch.full((16,), float(index))


def plain(folder: Path, source: random.Random, runs: int = RUNS) -> list[float]:
    """Ordinary loops on the processor, observed through hooks."""
    errors = []
    for number in range(runs):
        workers = source.choice([0, 0, 2])
        data = Sleeping(BATCH * STEPS // 2, source.choice([0.0005, 0.002, 0.005]))
        loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
        checking = DataLoader(Sleeping(16, 0.003), batch_size=BATCH)
        stage_s, host_s, products = source.choice([0.0, 0.003]), source.choice([0.0, 0.004]), source.choice([1, 20, 60])
        at = create_run(folder / f"plain-{number}", {"ended": {"status": "ok"}})
        with recorded(at, CpuDevice()):
            spans = list(_plain_training(loader, checking, stage_s, host_s, products))
        found = facts(at)
        errors.append(error(found, truth_of(spans, found.window.begin_ns, found.window.end_ns)))
    return errors


class Net(torch.nn.Module):
    """Computes as long as so many products of matrices take."""

    def __init__(self, products: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
        self.products = products
        self.weight = torch.randn(200, 200)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(self.products * self.training):
            torch.mm(self.weight, self.weight)
        return self.layer(batch)  # type: ignore[no-any-return]


def _plain_training(
    loader: DataLoader[torch.Tensor], checking: DataLoader[torch.Tensor], stage_s: float, host_s: float, products: int
) -> Iterator[tuple[str, int, int]]:
    """Two epochs of a loop with its own stamps: (what, begin_ns, end_ns).

    Args:
        stage_s: what it does with a batch before it calls its model.
        host_s: what it does after each step.
    """
    now = time.monotonic_ns
    net = Net(products)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(2):
        begin = now()
        for batch in loader:
            yield "fetch", begin, now()
            optimizer.zero_grad()
            if stage_s:
                time.sleep(stage_s)
            called = now()
            net(batch).square().mean().backward()
            optimizer.step()
            yield "compute", called, now()
            if host_s:
                time.sleep(host_s)
            begin = now()
        begin = now()
        net.eval()
        with torch.no_grad():
            for batch in checking:
                net(batch)
        net.train()
        yield "boundary", begin, now()


Batches = Callable[[], Iterable[object]]


@dataclass(frozen=True)
class Trained:
    """One training: ms a step, ms of it computing, and the reported exposed input in percent."""

    step_ms: float
    computing_ms: float
    input_pct: float


@dataclass(frozen=True)
class Round:
    """The loader alone (ms a step), the training with cached batches and with the loader."""

    alone_ms: float
    cached: Trained
    real: Trained

    @property
    def lost_pct(self) -> float:
        """What waiting for data costs, told by wall clocks alone."""
        return 100 * (1 - self.cached.step_ms / self.real.step_ms)


def differential(folder: Path, batch_ms: float, emulated: bool, rounds: int = ROUNDS) -> list[Round]:
    """Interleaved rounds with a batch that takes one of two workers so long: sleeping beside an emulated device, or
    burning CPU beside a training on the processor."""
    seconds = batch_ms / 1e3 / BATCH
    data = Sleeping(BATCH * STEPS, seconds, 0.0) if emulated else Sleeping(BATCH * STEPS, 0.0, seconds)
    return [_one_round(folder / f"{batch_ms}-{emulated}-{number}", data, emulated) for number in range(rounds)]


def _one_round(folder: Path, data: Sleeping, emulated: bool) -> Round:
    loader = DataLoader(data, batch_size=BATCH, num_workers=2, persistent_workers=True)
    for _ in range(2):  # the first starts the workers
        begin = time.monotonic_ns()
        for _ in loader:
            pass
    alone = (time.monotonic_ns() - begin) / STEPS / 1e6
    cached = _trained(folder / "cached", lambda: whyidle.watch(iter([None] * STEPS), batch_size=BATCH), emulated)
    return Round(alone, cached, _trained(folder / "real", lambda: loader, emulated))


def _trained(folder: Path, batches: Batches, emulated: bool) -> Trained:
    device = EmulatedDevice(SPEC) if emulated else CpuDevice()
    create_run(folder, {"device": device.describe(), "ended": {"status": "ok"}})
    weight = torch.randn(400, 400)

    def compute() -> None:
        if isinstance(device, EmulatedDevice):
            device.compute(10 * MS, kernels=60)
        else:
            for _ in range(10):
                torch.mm(weight, weight)

    net = EmulatedNet()
    optimizer = EmulatedOptimizer(net)
    with recorded(folder, device):
        for _ in batches():
            net(compute, lambda: None).backward()
            optimizer.step(lambda: None)
        device.synchronize()
    found = facts(folder)
    step_ms = found.parts.wall_ns / found.window.count / 1e6
    return Trained(step_ms, step_ms * found.parts.share("compute"), 100 * found.parts.share("input"))


def _print_differential(folder: Path) -> None:
    print(f"\nDifferential truth: median of {ROUNDS} interleaved rounds, ms a step; two workers, {STEPS} steps")
    head = f"{'alone':>8} {'cached':>8} {'real':>8} {'1-cached/real':>14} {'reported input':>15} {'apart':>7}"
    print(f"{'emulated device, the loader sleeps':<44} {head}")
    for batch_ms in (5, 16, 22, 30, 60):
        rows = differential(folder, batch_ms, emulated=True)
        print(f"{f'  a batch takes a worker {batch_ms} ms':<44} {_differences(rows)}")
    print(f"{'processor, the loader burns CPU beside it':<44} {head} {'computing slower by':>20}")
    for batch_ms in (5, 15, 40):
        rows = differential(folder, batch_ms, emulated=False)
        slower = np.median([r.real.computing_ms / r.cached.computing_ms for r in rows])
        print(f"{f'  a batch takes {batch_ms} ms of CPU':<44} {_differences(rows)} {100 * slower - 100:>18.0f} %")


def _differences(rows: list[Round]) -> str:
    each = [
        (r.alone_ms, r.cached.step_ms, r.real.step_ms, r.lost_pct, r.real.input_pct, abs(r.lost_pct - r.real.input_pct))
        for r in rows
    ]
    alone, cached, real, lost, reported, apart = np.median(each, axis=0)
    return f"{alone:>8.2f} {cached:>8.2f} {real:>8.2f} {lost:>12.1f} % {reported:>13.1f} % {apart:>7.1f}"


def _row(name: str, errors: list[float], target: str) -> None:
    p50, p95, worst = np.quantile(errors, (0.5, 0.95, 1.0))
    print(f"{name:<44} {len(errors):>5} {p50:>8.4f} {p95:>8.4f} {worst:>8.4f}   {target}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    source = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(f"{machine()}, torch {torch.__version__}")
    print("Largest error of a part of the wall time, in percentage points of it")
    print(f"{'':<44} {'runs':>5} {'median':>8} {'95 %':>8} {'worst':>8}   target")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _row("virtual clock, random trainings", virtual(folder), "worst 0.1")
        _row("real clock, emulated device, planted delays", emulated(folder, source), "median 0.3, worst 1")
        _row("real clock, plain loops on the processor", plain(folder, source), "median 0.3, worst 1")
        _print_differential(folder)


if __name__ == "__main__":
    main()
