"""What observing a training costs it: whyidle beside torch.profiler and TraceML, on one plain PyTorch loop.

A block is some steps under one observer, beside a bare block right before or after it; a round is such a pair for each
observer, in random order. What an observer adds is the difference within a pair, so that what else the machine does
hits all alike. Figures are medians over rounds with where 90 % of bootstrapped medians lie. Bare blocks that are
compared with bare ones say how far from nothing a difference is that means nothing.

Steps are filled up to their length with matrix products. Columns named *around* leave the time within these out:
their noise is many times what whyidle costs, and its hooks do nothing there. What torch.profiler and the threads
of TraceML cost within them is in the other columns only. *CPU, thread* is CPU time of the thread that trains,
*CPU, process* of all threads.

Observers that stay in their process (TraceML) are measured in processes of their own, that train blocks in turns, and
are compared with a bare one and with one that whyidle's hooks watch.

With `--device cuda` wall times run from an idle GPU to an idle GPU. Where the host runs ahead of the GPU they hide what
hooks cost it: CPU times and the shortest steps show that.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import torch

from whyidle.devices.choose import choose
from whyidle_bench.rivals.cost import MedianInterval, median_interval

from . import turns
from .child import TRACEML
from .loop import Block, Length, Training, fitted
from .observers import (
    ALWAYS_ON,
    CONTROL,
    CYCLE_STEPS,
    EVERY_STEP,
    HOOKS,
    IN_ONE_PROCESS,
    NONE,
    SCHEDULED,
    Account,
    Observers,
)
from .processes import Child, TraceMl, added_by_processes, children, install_traceml, start_up

LONG_MS = 50.0
LENGTHS_MS = (0.2, 1.0, 10.0, 100.0)
"""Asked for; what was achieved is in each table. The loop alone takes about a quarter of a millisecond."""
WITH_WORKERS_MS = (1.0, 10.0)
WORKERS = 2
DISCARD_NS = 20_000_000
LEAST_DISCARD = 3
"""Steps at the begin of a block that do not count: this long, but at least so many."""
TARGET_US = {"cpu": 15.0, "cuda": 60.0}
TARGET_PERCENT = 1.0
THINNED_BELOW_MS = 2.0
START_TARGET_S = 0.05
TURN_S = 3.0
SEE_FILLING = (SCHEDULED, ALWAYS_ON)
"""Observers that see the products, so that part of their cost lies within them."""
GENERATIONS = 3
"""How often processes are started anew: one is faster than another for no reason but where its memory lies."""
Pairs = dict[str, tuple[Block, Block]]
"""By observer: a block under it, and the bare one beside it."""
COLUMNS = {
    "wall": "wall",
    "cpu": "CPU, thread",
    "threads": "CPU, process",
    "wall_around": "wall, around",
    "cpu_around": "CPU, around",
}
"""What a block says of a step, and its name in the table. `around` leaves out what fills the step."""


@dataclass(frozen=True)
class Row:
    """What an observer adds to a step, in µs by column."""

    observer: str
    added: Mapping[str, MedianInterval]
    percent: float
    """Of the bare step's wall time: the larger of wall and CPU time added, around what fills the step where that saw
    nothing of the observer."""
    note: str = ""


@dataclass(frozen=True)
class Table:
    """One length of step."""

    target_ms: float
    workers: int
    products: int
    step_us: float
    """A bare step by the wall clock, median over rounds."""
    step_cpu_us: float
    rounds: int
    steps: int
    """In a block."""
    where: str
    rows: Sequence[Row]

    def row(self, observer: str) -> Row | None:
        return next((row for row in self.rows if row.observer == observer), None)

    def lines(self) -> Iterator[str]:
        loader = f"{self.workers} workers" if self.workers else "loader in the training"
        yield (
            f"\nSteps of {self.step_us / 1e3:.3g} ms ({self.step_cpu_us / 1e3:.3g} ms of CPU), {loader}, {self.where}: "
            f"{self.rounds} rounds of {self.steps} steps, {self.products} products a step"
        )
        header = "".join(f"{name:>23}" for name in COLUMNS.values())
        yield f"{'added µs a step':<28}{header}{'% of step':>11}"
        for row in self.rows:
            figures = "".join(f"{row.added[column]!s:>23}" for column in COLUMNS)
            yield f"{row.observer:<28}{figures}{row.percent:>11.2f}{'   ' + row.note if row.note else ''}"


def rows_of(rounds: Sequence[Pairs]) -> tuple[list[Row], Block]:
    """A row for each observer, and the median bare block."""
    bare = sorted((alone for each in rounds for _, alone in each.values()), key=lambda block: block.wall_ns)
    middle = bare[len(bare) // 2]
    rows = []
    for observer in rounds[0]:
        pairs = [[block.per_step_us() for block in each[observer]] for each in rounds]
        added = {column: median_interval([seen[column] - alone[column] for seen, alone in pairs]) for column in COLUMNS}
        share = 100 * cost_us(added, observer in SEE_FILLING) / middle.per_step_us()["wall"]
        rows.append(Row(observer, added, share))
    return rows, middle


def cost_us(added: Mapping[str, MedianInterval], sees_filling: bool = False) -> float:
    """The larger of wall and CPU time, medians."""
    if sees_filling:
        return max(added["wall"].median, added["cpu"].median)
    return max(added["wall_around"].median, added["cpu_around"].median)


def block_size(step_us: float, block_s: float) -> tuple[int, int]:
    """(steps, steps before that do not count): whole cycles of torch.profiler's schedule."""
    cycles = max(1, round(block_s * 1e6 / step_us / CYCLE_STEPS))
    return cycles * CYCLE_STEPS, max(LEAST_DISCARD, round(DISCARD_NS / 1e3 / step_us))


def rounds_of(names: Sequence[str], rounds: int, train: Callable[[str], Block], source: random.Random) -> list[Pairs]:
    """Each block beside a bare one of its own, before or after it.

    There is one more round than is returned: its blocks meet cold caches.
    """
    done = []
    for _ in range(rounds + 1):
        pairs = {}
        for name in source.sample(names, len(names)):
            order = source.sample([name, NONE], 2)
            blocks = [train(each) for each in order]
            pairs[name] = (blocks[order.index(name)], blocks[order.index(NONE)])
        done.append({name: pairs[name] for name in names})
    return done[1:]


def in_one_process(options: argparse.Namespace) -> list[Table]:
    """A table for each length, observers switched within this process."""
    source, observers = random.Random(options.seed), Observers(options.device)
    trainings: dict[int, Training] = {}
    tables = []
    try:
        for workers, target_ms in options.lengths:
            if workers not in trainings:
                trainings[workers] = Training(workers, options.device)
            training = trainings[workers]
            length = fitted(training, target_ms)
            probe = training.block(length, max(3, round(100 / target_ms)), 2)
            size = block_size(probe.per_step_us()["wall"], options.block_s)
            observers.forget()
            # A block of the longest steps cannot be short.
            rounds = options.rounds if target_ms < LONG_MS else -(-options.rounds // 5)
            blocks = rounds_of(IN_ONE_PROCESS, rounds, partial(_watched, observers, training, length, size), source)
            rows, bare = rows_of(blocks)
            rows = [_with_note(row, observers.accounts.get(row.observer)) for row in rows]
            wall, cpu = (bare.per_step_us()[name] for name in ("wall", "cpu"))
            counts = (len(blocks), size[0], "one process")
            tables.append(Table(target_ms, workers, length.products, wall, cpu, *counts, rows))
            print("\n".join(tables[-1].lines()), flush=True)
    finally:
        observers.close()
    return tables


def _watched(observers: Observers, training: Training, length: Length, size: tuple[int, int], name: str) -> Block:
    with observers.watching(name) as watch:
        return training.block(length, *size, watch.around, watch.after)


def _with_note(row: Row, account: Account | None) -> Row:
    if account is None or not account.us_per_step:
        return row
    note = f"says {np.median(account.us_per_step):.1f} µs itself"
    looked_at = float(np.median(account.looked_at))
    if looked_at < 1:
        note += f", {100 * looked_at:.1f} % of steps looked at"
    if account.sampler_wall_s:
        note += f"; sampler {100 * account.sampler_cpu_s / account.sampler_wall_s:.1f} % of a CPU"
    return Row(row.observer, row.added, row.percent, note)


def in_processes(options: argparse.Namespace, traceml: TraceMl, before: Sequence[Table]) -> list[Table]:
    """The same steps again, with a process for each observer."""
    source = random.Random(options.seed)
    names = [CONTROL, HOOKS, *([TRACEML] if traceml.python else [])]
    collected: list[list[Pairs]] = [[] for _ in before]
    dropped = 0
    for _ in range(options.generations):
        with children([NONE, *names], options.device, traceml.python) as started:
            for table, blocks in zip(before, collected, strict=True):
                train = _trainer(started, table, block_size(table.step_us, options.block_s))
                blocks += rounds_of(names, -(-table.rounds // options.generations), train, source)
        dropped += sum(child.dropped for child in started.values())
    tables = []
    for table, blocks in zip(before, collected, strict=True):
        rows, bare = rows_of(blocks)
        step = bare.per_step_us()
        where = f"{options.generations} times {len(names) + 1} processes"
        figures = {"step_us": step["wall"], "step_cpu_us": step["cpu"], "rounds": len(blocks), "steps": bare.steps}
        tables.append(replace(table, **figures, where=where, rows=rows))
        print("\n".join(tables[-1].lines()), flush=True)
    if dropped:
        print(f"{TRACEML} said {dropped} times that its queue was full and that it dropped a step.")
    return tables


def _trainer(started: dict[str, Child], table: Table, size: tuple[int, int]) -> Callable[[str], Block]:
    length = Length(table.target_ms, table.products)
    return lambda name: started[name].block(table.workers, length, *size)


def verdicts(tables: Sequence[Table], start: dict[str, MedianInterval], device: str) -> list[tuple[str, bool, str]]:
    """(target, whether it was met, the figures it was judged by)"""
    judged, limit = [], TARGET_US["cuda" if device.startswith("cuda") else "cpu"]
    for table in tables:
        place = f"{table.step_us / 1e3:.3g} ms steps, {table.workers} workers"
        every, ours = table.row(EVERY_STEP), table.row(HOOKS)
        if every is None or ours is None:
            continue
        cost = cost_us(every.added)
        judged.append((f"at most {limit:.0f} µs a step looked at, {place}", cost <= limit, _both(every)))
        if table.step_us < THINNED_BELOW_MS * 1e3:
            judged.append((f"thins itself out and says so, {place}", "looked at" in ours.note, ours.note))
        if table.target_ms == 10 or table.step_us < THINNED_BELOW_MS * 1e3:
            judged.append((f"under {TARGET_PERCENT:g} %, {place}", ours.percent < TARGET_PERCENT, _both(ours)))
    wall, cpu = start["wall"].median, start["cpu"].median
    text = f"wall {wall:.3f} s, CPU {cpu:.3f} s"
    return [*judged, (f"under {START_TARGET_S} s added at the start", max(wall, cpu) < START_TARGET_S, text)]


def _both(row: Row) -> str:
    wall, cpu = row.added["wall_around"], row.added["cpu_around"]
    return f"wall {wall}, CPU {cpu} µs; {row.percent:.2f} % of the step"


class _Load:
    """What else this machine does."""

    def __init__(self) -> None:
        self._before = psutil.cpu_times()
        self._load = os.getloadavg()

    def __str__(self) -> str:
        after = psutil.cpu_times()
        spent = sum(after) - sum(self._before)
        stolen = getattr(after, "steal", 0.0) - getattr(self._before, "steal", 0.0)
        load = ", ".join(f"{each[0]:.2f}" for each in (self._load, os.getloadavg()))
        return f"load average over a minute at begin and end {load}; {100 * stolen / max(spent, 1e-9):.1f} % stolen"


def _machine(device: str) -> str:
    on = ", ".join(choose(each).describe()["title"] for each in dict.fromkeys((device, "cpu")))
    return f"{on}, {os.cpu_count()} CPUs, Python {platform.python_version()}, torch {torch.__version__}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What observing a training costs it.")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument("--quick", action="store_true", help="a few short blocks: rough figures in seconds")
    told = "measure TraceML too: installed by pip into an environment of its own, e.g. traceml-ai==0.5.0"
    parser.add_argument("--traceml", nargs="?", const="traceml-ai", metavar="REQUIREMENT", help=told)
    parser.add_argument("--rounds", type=int, default=30, help="of the shorter steps (default: 30)")
    parser.add_argument("--block", type=float, default=0.15, dest="block_s", metavar="S", help="length of a block")
    parser.add_argument("--seed", type=int, default=1, help="of the order of blocks")
    told = "only this: N pairs of whole processes for each observer"
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help=told)
    told = "only this: hooks in and out in turns within a training, N rounds"
    parser.add_argument("--turns", type=int, default=0, metavar="N", help=told)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    options.generations, options.start_rounds = GENERATIONS, 10
    options.lengths = [(0, length) for length in LENGTHS_MS] + [(WORKERS, length) for length in WITH_WORKERS_MS]
    if options.quick:
        options.rounds, options.block_s, options.generations, options.start_rounds = 5, 0.03, 1, 1
        options.lengths = [(0, 0.2), (0, 10.0)]
    return options


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    load = _Load()
    print(_machine(options.device))
    print(" ".join(["python -m benchmarks.overhead", *sys.argv[1:]]))
    with tempfile.TemporaryDirectory() as place:
        traceml = TraceMl(None)
        if options.traceml is not None:
            traceml = install_traceml(options.traceml, Path(place) / "traceml")
            print(f"TraceML {traceml.version}" if traceml.python else f"TraceML not measured: {traceml.error}")
        if options.turns:
            for line in turns.added(options.turns, TURN_S, options.device, options.seed):
                print(line, flush=True)
            print(f"\n{load}")
            return
        if options.pairs:
            names = [HOOKS, EVERY_STEP, ALWAYS_ON, *([TRACEML] if traceml.python else [])]
            print("\n".join(added_by_processes(names, options.pairs, options.device, traceml.python, options.seed)))
            _say_start(options)
            print(f"\n{load}")
            return
        tables = in_one_process(options)
        if traceml.python is not None:
            try:
                tables += in_processes(options, traceml, tables)
            except RuntimeError as error:
                print(f"TraceML not measured: {error}")
    start = _say_start(options)
    judged = verdicts(tables, start, options.device)
    print("\nTargets, by the larger of wall and CPU time added around what fills the step")
    for target, met, figures in judged:
        print(f"{'met   ' if met else 'MISSED'}  {target}: {figures}")
    print(f"\n{load}")
    if options.json is not None:
        figures = {"tables": list(map(asdict, tables)), "start_s": {name: asdict(each) for name, each in start.items()}}
        targets = [dict(zip(("target", "met", "figures"), each, strict=True)) for each in judged]
        options.json.write_text(json.dumps(figures | {"targets": targets}, indent=1))


def _say_start(options: argparse.Namespace) -> dict[str, MedianInterval]:
    """Measure what start-up adds, and print it."""
    seconds = start_up(options.start_rounds, options.device)
    start = {name: median_interval(values) for name, values in seconds.items()}
    print(f"\nAdded by start-up, seconds beyond importing torch, {options.start_rounds} interleaved rounds")
    for name, each in start.items():
        print(f"{name:<28}{each.median:>8.3f} [{each.low:.3f} {each.high:.3f}]")
    return start


if __name__ == "__main__":
    main()
