"""Comparisons as `compare` leaves them: tables of cells, and runs to be compared."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from golden.singles import sets
from support.cells import NET_SETTING, NOTHING, SETTING, place, training_result
from support.crafted import add_events, train_on_cpu
from support.jobs import Rank, record
from support.planted_runs import elements, hosted, looked, pooled, retries, trained
from whyidle.analyse.cells.cost import Place, Price, setting_of
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import update_run
from whyidle.record.schema import NOT_MEASURED, EventKind
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step

DATA = Path(__file__).parents[1] / "data"


@dataclass
class Table:
    """A comparison in the making."""

    folder: Path
    cells: list[CellRecord] = field(default_factory=list)

    def cell(
        self,
        fetch_ms: float,
        compute_ms: float,
        *,
        pipeline: str = "workers",
        batch_size: int = 8,
        rounds: int = 2,
        steps: int = 40,
        status: str = "ok",
        error: str | None = None,
        results: Sequence[Mapping[str, Any] | None] = (),
        info: Mapping[str, Any] | None = None,
        **on: Any,
    ) -> None:
        """A cell whose runs differ by a hundredth, and by what they came to."""
        at, names = place(**on), []
        for number in range(len(results) or rounds):
            names.append(f"{len(self.cells)}-{pipeline}-b{batch_size}-r{number}")
            run = self.folder / names[-1]
            step = Step(fetch_ns=round(fetch_ms * MS), compute_ns=round(compute_ms * (1 + number / 100) * MS))
            trained(run, [[step] * steps], samples=batch_size)
            trial = {"scenario": "ssd", "net": at["net"], "pipeline": pipeline, "batch_size": batch_size}
            device = {"kind": "emulated", "title": f"emulated {at['device'].removeprefix('emulated:').upper()}"}
            update_run(run, {"trial": trial | {"repetition": number}, "device": device, **(info or {})})
            hosted(run, 1.2, 2, 70.0)
            if results and results[number] is not None:
                update_run(run, {"results": results[number]})
        self.cells.append(CellRecord(pipeline, batch_size, status, error, tuple(names), at))

    def planned(
        self, pipeline: str, size: int, rounds: int, train: Callable[[Path, int], object], stem: str, **on: Any
    ) -> None:
        """A cell whose runs are made alike by a plan of its own."""
        names = tuple(f"{stem}-b{size}-r{number}" for number in range(rounds))
        for name in names:
            train(self.folder / name, size)
        self.cells.append(CellRecord(pipeline, size, "ok", None, names, place(**on)))

    def without(self, pipeline: str, batch_size: int, status: str, error: str, **on: Any) -> None:
        """A cell that came to nothing."""
        self.cells.append(CellRecord(pipeline, batch_size, status, error, (), place(**on)))

    def write(self, setting: Mapping[str, Any]) -> None:
        write_comparison(self.folder, dict(setting), self.cells)


def loaders(at: Path) -> None:
    """Three loaders at three batch sizes; the slow one's larger batches cost more a sample, and not all cells ran."""
    table = Table(at / "table")
    for size in (8, 16, 32):
        table.cell(1, 2.0 * size, batch_size=size)
        table.cell(3.0 * size * size / 8, 2.0 * size, pipeline="naive", batch_size=size)
    table.cell(1.05, 16.2, pipeline="threads", rounds=1)
    table.without("threads", 16, "failed", "RuntimeError: DataLoader worker (pid 1) is killed")
    table.without("threads", 32, "oom", "needs 26.3 GB of 17.2 GB")
    table.without("dali-gpu", 8, "skipped", "needs a CUDA device")
    table.write(SETTING | {"notices": ["image corrupt: 3, left out"]})


def sizes(at: Path) -> None:
    """Loaders as names of what a larger batch does to them: nothing, computing that grows, a loader that is the
    floor, epochs of fewer batches than workers, clocks held down, garbage."""
    table = Table(at / "table")
    for size in (8, 16, 32):
        steps = 640 // size
        table.cell(NOTHING, 1.0 * size, pipeline="saturated", batch_size=size, steps=steps, rounds=3)
        grows = 1.0 * size * (1 + (size - 8) / 32)
        table.cell(NOTHING, grows, pipeline="compute-growth", batch_size=size, steps=steps, rounds=3)
        table.cell(3.0 * size, 1.0 * size, pipeline="loader-floor", batch_size=size, steps=steps, rounds=3)
        table.cell(3.0 * size, 8 + 0.5 * size, pipeline="loader-gains", batch_size=size, steps=steps, rounds=3)
        table.cell(NOTHING, 20 + 0.2 * size, pipeline="larger-is-faster", batch_size=size, steps=steps, rounds=3)

    def fills(run: Path, size: int) -> None:
        ns = [round((0.5 if number else 12) * size * MS) for number in range(160 // size)]
        trained(run, [[Step(each, size * MS) for each in ns]] * 4, samples=size)
        hosted(run, 1.0, 2, 60.0)

    def is_held_down(run: Path, size: int) -> None:
        slow = 1.0 if size == 8 else 1.4
        trained(run, [[Step(0, round(slow * size * MS), sync=True)] * (640 // size)], samples=size)
        state = {"sm_clock_mhz": round(1500 / slow), "sm_clock_max_mhz": 1500, "power_mw": 250_000}
        looked(run, state | {"throttle_reasons": 0 if size == 8 else 0x4}, utilisation_pct=99.0)

    for size in (8, 16, 32):
        table.planned("pipeline-fill", size, 3, fills, "filling")
    for size in (8, 16):
        table.planned("clock", size, 3, is_held_down, "clock")
    table.write(SETTING | {"repeats": 3})


def further_sizes(at: Path) -> None:
    """Further things that a larger batch does: workers without a batch, larger copies, retries of the allocator, and
    samples padded to the longest."""
    table = Table(at / "table")

    def few_batches(run: Path, batch: int) -> None:
        step = Step(16 * batch * MS, 3 * batch * MS, sync=True)
        pooled(run, [[step] * (128 // batch)] * 16, PlantedWorkers(8, 1), flags=None, samples=batch)

    def copies(run: Path, batch: int) -> None:
        nbytes = 10**6 if batch == 8 else 6 * 10**7
        step = Step(MS, batch * MS, copy_bytes=nbytes, pinned=False)
        trained(run, [[step] * (1280 // batch)], samples=batch)

    def tries_again(run: Path, batch: int) -> None:
        large, count = batch > 8, 1280 // batch
        plan = [Step(MS, batch * MS, sync=True, host_ns=60 * MS * (large and n % 4 == 0)) for n in range(count)]
        retries(trained(run, [plan], samples=batch), range(0, count, 4) if large else ())

    def padding(run: Path, batch: int) -> None:
        longest = 1.0 if batch == 8 else 1.5
        plan = [Step(MS, round(batch * longest * MS))] * (1280 // batch)
        elements(trained(run, [plan], samples=batch), round(1000 * batch * longest))

    for name, larger, train_at in (
        ("few-batches", 64, few_batches),
        ("copies", 16, copies),
        ("retries", 16, tries_again),
        ("padding", 32, padding),
    ):
        for size in (8, larger):
            table.planned(name, size, 2, train_at, name)
    table.write(SETTING)


def nets(at: Path) -> None:
    """A net on a slow and a fast device, with and without augmentation, and both sides of each alone."""
    table = Table(at / "table")
    for device, compute_ms in (("emulated:k80", 44.0), ("emulated:v100", 8.0)):
        for on in (False, True):
            table.cell(12 if on else 1, compute_ms, device=device, augment=on)
        table.cell(NOTHING, compute_ms, device=device, feed="synthetic", pipeline="synthetic", augment=False, rounds=1)
    for on in (False, True):
        table.cell(12 if on else 1, NOTHING, feed="loader-only", augment=on, rounds=1)
    table.write(NET_SETTING)


def unexpected(at: Path) -> None:
    """Trainings that take longer than the slower of their sides, of which one has no loader alone; other programs."""
    table = Table(at / "table")
    for net, measured in (("cnn1", 30.0), ("vgg", 20.0)):
        table.cell(measured, 5, net=net)
        table.cell(NOTHING, 5, feed="synthetic", pipeline="synthetic", net=net)
        table.cell(20, NOTHING, feed="loader-only", net=net)
    table.cell(9, 9, net="lstm")
    table.cell(NOTHING, 9, feed="synthetic", pipeline="synthetic", net="lstm")
    data = {"samples": 1200, "unit": "review", "stand_in": "the IMDb reviews"}
    table.write(NET_SETTING | {"datasets": {"cnn1": NET_SETTING["dataset"], "lstm": data}})


def stores(at: Path) -> None:
    """Stores, threads and workers besides nets: more axes than there are columns for."""
    table = Table(at / "table")
    for net in ("alexnet", "googlenet"):
        for store, fetch_ms in (("files", 20), ("lmdb", 2)):
            for pipeline, more in (("naive", 4), ("workers", 0)):
                table.cell(fetch_ms + more, 9, pipeline=pipeline, net=net, store=store, threads=4, rounds=1)
    table.cell(
        1,
        9,
        net="inception",
        device="emulated:v100",
        augment=False,
        store="lmdb",
        threads=8,
        workers=8,
        pipeline="prefetch",
        batch_size=256,
        rounds=1,
    )
    table.write(NET_SETTING | {"repeats": 1})


def ranks(at: Path) -> None:
    """One, two and four ranks at the same batch of each, and of all together."""
    table = Table(at / "table")

    def job(number: int, run: Path, size: int) -> None:
        exchange = (number - 1) * 0.8
        computing = Rank(backward_ns=round((6 * size / 8 + exchange) * MS))
        record(run, [computing] * number, 60, samples=size, device="emulated")
        told = {"ms": exchange, "bytes": 10**8, "gb_per_s": 12.0, "interconnect": "pcie3", "way": "ring"}
        more = {"device": {"kind": "emulated", "title": "emulated V100", "count": number}}
        more |= {"trial": {"scenario": "ssd", "ranks": number}} | ({"exchange": told} if number > 1 else {})
        update_run(run, more)

    for number, link in ((1, None), (2, "pcie3"), (4, "pcie3")):
        on = {"ranks": number, "device": "emulated:v100", "interconnect": link}
        for size in (8, 16):
            table.planned("workers", size, 2, partial(job, number), f"{number}-ranks", **on)
    device = {"kind": "emulated", "name": "emulated:v100", "title": "emulated V100", "count": 4}
    table.write(SETTING | {"experiment": "ranks", "question": "How does it scale?", "device": device})


def results(at: Path) -> None:
    """What trainings came to: accuracies that hold or fall as the batch grows, and what was taken for what."""
    table = Table(at / "table")
    matrix = [[90, 10, 0], [4, 95, 1], [0, 0, 100]]
    for size, precisions in ((8, (0.70, 0.72)), (64, (0.71, 0.70)), (192, (0.60, 0.61))):
        table.cell(
            1,
            9,
            batch_size=size,
            results=[
                training_result(p + 0.2, 3000 + 10 * p, precision=p, recall=0.6, confusion=matrix) for p in precisions
            ],
        )
    for plan in ("25", "50"):
        table.cell(1, 9, results=[training_result(0.936, 3098.0), training_result(0.938, 3100.0)], plan=plan)
    classes = {"classes": ["shirt", "T-shirt", "boot"]}
    table.write(NET_SETTING | {"dataset": NET_SETTING["dataset"] | classes})


def cost(at: Path) -> None:
    """Devices at their prices, and epochs until an accuracy."""
    table = Table(at / "table")
    rising = [{"seconds": 40.0 + n, "evaluation": {"accuracy": 0.80 + 0.03 * n, "loss": 0.4}} for n in range(6)]
    whole = {"train_s": 240.0, "epochs": rising, "evaluation": rising[-1]["evaluation"]}
    for device, compute_ms in (("emulated:k80", 40.0), ("emulated:v100", 6.0)):
        for fetch_ms, net in ((4.0, "mlp"), (12.0, "lstm")):
            table.cell(fetch_ms, compute_ms, device=device, net=net, results=[whole] * 2)
    places: list[Place] = [("emulated:k80", None, 1), ("emulated:v100", None, 1)]

    def price(device: str, threads: int | None, ranks: int) -> Price | None:
        per_hour = {"emulated:k80": 0.9, "emulated:v100": 3.06}[device]
        return Price(usd_per_hour=per_hour, provider="a cloud", date="2026-01", source="its list of prices")

    said = setting_of(price, places, 0.9, "k80")
    table.write(
        NET_SETTING
        | {"scenario": "cost", "experiment": "accuracy", "cost": said, "question": "What does an accuracy cost?"}
    )


def published_logs(at: Path) -> None:
    shutil.copytree(DATA / "woolf" / "logs", at / "logs")


def cut_short(at: Path) -> None:
    """Cells that never began, a run that was stopped, one that is gone, and a run that was named by hand."""
    table = Table(at / "table")
    table.cell(2, 9, status="pending")
    table.cell(5, 9, pipeline="naive", steps=12, status="stopped", error="stopped by Ctrl-C")
    table.cells.append(CellRecord("threads", 8, "pending", None, (), place()))
    table.cell(3, 9, pipeline="prefetch")
    shutil.rmtree(table.folder / table.cells[-1].runs[1])
    run = trained(table.folder / "by-hand", [[Step(fetch_ns=4 * MS)] * 40])
    table.cells.append(CellRecord("caffe", 8, "ok", None, (run.name,), place()))
    table.write(SETTING)


def nothing_ran(at: Path) -> None:
    table = Table(at / "table")
    table.without("workers", 8, "skipped", "not run: stopped by Ctrl-C")
    table.without("naive", 8, "failed", "ImportError: no module named lmdb")
    table.write(SETTING)


# Runs to be compared by `compare RUN RUN`.


def recorded_sizes(at: Path) -> None:
    """A training at batch 8 twice and at 16 and 32 once: the larger ones load longer."""
    for name, batch, per_sample_ms in (("a", 8, 3.0), ("b", 16, 6.0), ("c", 8, 3.0), ("d", 32, 7.0)):
        step = Step(round(batch * per_sample_ms * MS), batch * MS)
        command = ["python", "train.py", "--batch-size", str(batch)]
        trained(at / name, [[step] * (800 // batch)], samples=batch, command=command)
        hosted(at / name, 1.0, 4)


def recorded_workers(at: Path) -> None:
    """On the processor, with and without workers, and with notices."""
    for name, batch, workers, fetch_ms in (("a", 8, 0, 20.0), ("b", 8, 4, 6.0), ("c", 16, 0, 40.0), ("d", 16, 4, 11.0)):
        rank = Rank(fetch_ns=round(fetch_ms * MS), workers=workers)
        record(at / name, [rank], 80, samples=batch, world_size=None)
        command = ["python", "train.py", "--workers", str(workers), "--batch-size", str(batch)]
        update_run(at / name, {"command": command, "host": {"name": "alpha" if name < "c" else "beta", "cpus": 8}})


def crowded_sizes(at: Path) -> None:
    """Other programs used the CPUs while some of the runs were made."""
    for name, batch, busy_pct in (("a", 8, 40.0), ("b", 16, 100.0)):
        steps = [{"fetch": 4.0 * batch, "end": 9.0 * batch, "cpu_ms": 5.0 * batch}] * (800 // batch)
        run = train_on_cpu(at / name, steps)
        sets(samples=batch, skipped=0, skipped_samples=0)(run)
        add_events(run, [(START, EventKind.LOADER_WORKERS, 0, NOT_MEASURED)])
        update_run(run, {"command": ["python", "train.py"], "host": {"name": "x", "cpus": 2}})
        hosted(run, 0.9, 2, busy_pct, queued=0.3 if busy_pct > 90 else 0.0)


COMPARISONS: dict[str, Callable[[Path], None]] = {
    "compare-loaders": loaders,
    "compare-sizes": sizes,
    "compare-sizes-further": further_sizes,
    "compare-nets": nets,
    "compare-unexpected": unexpected,
    "compare-stores": stores,
    "compare-ranks": ranks,
    "compare-results": results,
    "compare-cost": cost,
    "compare-cut-short": cut_short,
    "compare-nothing-ran": nothing_ran,
}
RECORDED: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "recorded-sizes": (recorded_sizes, ("a", "b", "c", "d")),
    "recorded-workers": (recorded_workers, ("a", "b", "c", "d")),
    "recorded-crowded": (crowded_sizes, ("a", "b")),
}
