"""A comparison: rows (cell, round, run) and what groups of cells that differ in some axes say.

A row is one run of a cell in a round, with where it ran and its figures. A cell is the rows of one training's settings;
its figures are medians over them, with the lowest and the highest. Loader and batch size are axes of a cell like net,
device or workers. A place that a cell does not tell (`None`, or no such axis) is one place. Batch sizes, scaling,
augmentation and the differential test are groupings of cells by axes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from ...errors import WhyidleError
from ...record.comparison import CellRecord, read_comparison
from ...record.run import is_run, open_run
from ..causes.diagnosis import LEAST_STEPS
from ..causes.finding import Finding
from ..diff.settings import FORK, SPAWN, what_was_set, where_it_ran
from ..diff.sides import analysed
from ..ranks import figures as ranks_figures
from ..ranks.figures import rate_of
from ..run.analysis import Analysis, analyse, lacking_of
from ..run.facts import Facts
from ..run.window import measured_or
from ..statistics import Range, median_place, range_of
from .batch_size import HINDERING_CPUS, BatchVerdict, batch_verdict

PIPELINE, BATCH_SIZE = "pipeline", "batch_size"
OF_LOADING = ("augment", "store", "workers")
"""Axes on which a cell whose batches come from memory stands nowhere."""
CHOICES = ("workers", "store")
"""Axes that are a choice of loading, as loader and batch size are: among cells that differ in these alone one wins."""
SHORT_S = 5.0
"""Seconds below which a single run says little of costs: starting, caches and the scheduler weigh as much."""
SEEN_NS = 1_000_000_000
"""Length of a run from which it is known what other programs used: in a shorter one, workers of its own that the
sampler has not seen yet would count as theirs."""
NAME = "training"
"""Name of the loader of recorded runs where nothing tells loaders apart."""

T = TypeVar("T")
"""A cell, or a result about one, which it has as `cell`."""


@dataclass(frozen=True)
class RunRow:
    """One run of a cell."""

    run: str
    """Its folder."""
    round: int | None = None
    """Round of an interleaved comparison; `None` where not known."""
    analysis: Analysis | None = None
    """`None` of a run that is gone, failed or did too little."""

    @property
    def host(self) -> str | None:
        """Name of the machine it ran on; `None` where not recorded."""
        host = None if self.analysis is None else self.analysis.info.get("host")
        return str(host["name"]) if isinstance(host, Mapping) and host.get("name") is not None else None

    def figure(self, name: str) -> float | None:
        """Give a registered figure of the run, over all its ranks; `None` where not measured."""
        if self.analysis is None:
            return None
        return ranks_figures.figure(self.analysis, name) if name != "samples_per_s" else rate_of(self.analysis)


@dataclass(frozen=True)
class Cell:
    """One training: a loader at a batch size, and its place on further axes."""

    pipeline: str
    batch_size: int
    status: str
    """`ok`, `oom`, `failed` or `skipped`; `pending` before its first run."""
    error: str | None
    """Why it did not end well; `None` where it did."""
    rows: tuple[RunRow, ...] = ()
    """In the order in which they ran."""
    axes: dict[str, Any] = field(default_factory=dict)
    """Net, device, ranks, …, by name: see `record.comparison.CellRecord`."""

    @property
    def counted(self) -> list[tuple[RunRow, Analysis]]:
        """The rows of runs that count, each with its analysis."""
        return [(row, row.analysis) for row in self.rows if row.analysis is not None]

    @property
    def analyses(self) -> list[Analysis]:
        return [analysis for _, analysis in self.counted]

    @property
    def facts(self) -> list[Facts]:
        return [a.facts for a in self.analyses if a.facts is not None]

    @property
    def ran(self) -> bool:
        """Whether it ended well, with a rate."""
        return self.status == "ok" and self.samples_per_s is not None

    @property
    def samples_per_s(self) -> Range | None:
        """Samples/s of all ranks together, the median over the runs; `None` where no run has a step."""
        return range_of((rate for row in self.rows if (rate := row.figure("samples_per_s")) is not None), median)

    @property
    def typical_row(self) -> RunRow | None:
        """The run whose throughput is the median (the lower of the two middle ones); `None` where none has one."""
        place = median_place([row.figure("samples_per_s") for row in self.rows])
        return None if place is None else self.rows[place]

    @property
    def typical(self) -> Analysis | None:
        """The analysis of `typical_row`."""
        return None if (row := self.typical_row) is None else row.analysis

    @property
    def feed(self) -> str:
        """Source of the batches: `real`, `synthetic` or `loader-only`."""
        return str(self.axes.get("feed") or "real")

    @property
    def loader(self) -> str:
        """Name of its loader; empty where one cached batch is served again and again."""
        return "" if self.feed == "synthetic" else self.pipeline

    @property
    def verdict(self) -> Finding | None:
        """What the training waited for; `None` where that means nothing: steps that do nothing wait for data by
        construction, and one batch served again and again is no loader."""
        if self.typical is None or self.feed == "loader-only":
            return None
        verdict = self.typical.verdict
        return None if self.feed == "synthetic" and (verdict.cause or "").startswith("input.") else verdict

    def samples(self, setting: Mapping[str, Any]) -> int | None:
        """Count the samples in one pass over the data, by the comparison's setting; `None` where not known."""
        told = (setting.get("datasets") or {}).get(self.axes.get("net")) or setting.get("dataset") or {}
        samples = told.get("samples")
        return samples if isinstance(samples, int) else None


@dataclass(frozen=True)
class Group:
    """Cells that train the same thing under the same conditions."""

    axes: dict[str, Any]
    """Where they stand on the axes in which groups differ; empty for the only group."""
    cells: tuple[Cell, ...]
    best: Cell | None
    """The fastest cell; `None` where none ran."""
    ties: tuple[Cell, ...]
    """Other cells whose range reaches into the best one's: there is no winner between them."""


@dataclass(frozen=True)
class Comparison:
    """A table of cells, judged."""

    cells: tuple[Cell, ...]
    batch_verdicts: dict[str, BatchVerdict]
    """Loader, with its place on other axes in front where that tells loaders apart → effect of a larger batch."""
    groups: tuple[Group, ...]


# Groups of cells by axes.


def places(of: Any) -> dict[str, Any]:
    """Give axis → where a cell, or the cell of a result, stands on it."""
    cell = getattr(of, "cell", of)
    every = {PIPELINE: cell.pipeline, BATCH_SIZE: cell.batch_size, **cell.axes}
    return {name: value for name, value in every.items() if value is not None}


def same_place(one: Cell, other: Cell, axes: Iterable[str]) -> bool:
    """Whether two cells stand at one place on these axes."""
    mine, theirs = places(one), places(other)
    return all(mine.get(name) == theirs.get(name) for name in axes)


def grouped(items: Iterable[T], *, on: Collection[str] | None = None, but: Collection[str] = ()) -> list[list[T]]:
    """Group what stands at one place on the axes `on` (`None`: all) but those of `but`, in the order of first items."""
    groups: dict[str, list[T]] = {}
    for each in items:
        counting = {n: repr(at) for n, at in places(each).items() if (on is None or n in on) and n not in but}
        # Places need not be hashable: they come from a file.
        groups.setdefault(repr(sorted(counting.items())), []).append(each)
    return list(groups.values())


def ladders(items: Iterable[T], axis: str) -> list[list[T]]:
    """Group what differs in one axis alone, each from the lowest place on it to the highest."""
    return [sorted(group, key=lambda each: places(each)[axis]) for group in grouped(items, but=(axis,))]


def varying(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Name the axes beside loader and batch size on which these cells do not all stand at the same place. Axes of
    loading count only among cells that load."""
    loading = [cell for cell in cells if cell.feed != "synthetic"]

    def differ(name: str) -> bool:
        return len({repr(cell.axes.get(name)) for cell in (loading if name in OF_LOADING else cells)}) > 1

    return tuple(filter(differ, dict.fromkeys(name for cell in cells for name in cell.axes)))


def label(cell: Cell, names: Iterable[str]) -> str:
    """Write a cell's place on some axes."""
    loads = cell.feed != "synthetic"
    found = (place(name, cell.axes.get(name)) for name in names if loads or name not in OF_LOADING)
    return " ".join(filter(None, found))


def namer(cells: Sequence[Cell], sizes: bool = True) -> Callable[[Cell], str]:
    """Name cells by what tells them apart from the others; without `sizes` always by the loader, and never by the batch
    size."""
    names = varying(cells)
    by_loader = not sizes or not names or len({cell.loader for cell in cells} - {""}) > 1
    by_size = sizes and (not names or len({cell.batch_size for cell in cells}) > 1)

    def name(cell: Cell) -> str:
        words = " ".join(filter(None, (label(cell, names), cell.loader * by_loader)))
        size = f"batch {cell.batch_size}" if by_size else ""
        return " at ".join(filter(None, (words, size))) or cell.pipeline

    return name


def place(name: str, value: Any) -> str:
    """Write a place on an axis; nothing where there is nothing to say."""
    if value is None:
        return ""
    if isinstance(value, bool):
        said = "augmentation" if name == "augment" else name
        return said if value else f"no {said}"
    if isinstance(value, int):
        return f"{value} {name.removesuffix('s') if value == 1 else name}"
    return str(value).removeprefix("emulated:")


# The table of a folder, and its verdicts.


def load(folder: Path) -> tuple[Comparison, dict[str, Any]]:
    """Analyse a comparison's folder; with its setting.

    Raises:
        RecordError: no comparison there, or a run of it cannot be read.
    """
    setting, records = read_comparison(folder)
    return compare([cell_of(folder, record) for record in records]), setting


def cell_of(folder: Path, record: CellRecord) -> Cell:
    """Analyse the runs of a cell, also of a comparison that was cut short."""
    rows = [
        RunRow(str(folder / name), round_of(name), analyse(open_run(folder / name)) if is_run(folder / name) else None)
        for name in record.runs
    ]
    cell = Cell(record.pipeline, record.batch_size, record.status, record.error, tuple(rows), record.axes)
    if cell.status == "pending":
        return replace(cell, status="ok" if cell.facts else "skipped", error="the comparison was cut short")
    if cell.error is None and (gone := len(rows) - len(cell.counted)):
        return replace(cell, error=f"{gone} of its runs {'is' if gone == 1 else 'are'} no longer there")
    return cell


def run_name(candidate: str, number: int) -> str:
    """Name the run folder of a cell in a round."""
    return f"{candidate}-r{number}"


def round_of(name: str) -> int | None:
    """Read the round from a run folder's name; `None` of a folder that was named by hand."""
    number = name.rpartition("-r")[2]
    return int(number) if number.isascii() and number.isdigit() else None


def compare(cells: Sequence[Cell]) -> Comparison:
    """Judge a table of cells: the fastest of each group, and the effect of a larger batch."""
    conditions = [name for name in varying(cells) if name not in CHOICES]
    groups = []
    for members in grouped(cells, on=conditions):
        ran = [(rate, c) for c in members if c.status == "ok" and (rate := c.samples_per_s) is not None]
        least, best = max(ran, key=lambda pair: pair[0].value, default=(None, None))
        ties = tuple(c for rate, c in ran if least is not None and c is not best and rate.most >= least.low)
        axes = {name: members[0].axes.get(name) for name in conditions}
        groups.append(Group(axes, tuple(members), best, ties))
    verdicts, name = {}, namer(cells, sizes=False)
    for sizes in ladders(cells, BATCH_SIZE):
        of_sizes = {cell.batch_size: cell for cell in sizes if cell.status == "ok"}.values()
        known = all(row.round is not None for cell in of_sizes for row, _ in cell.counted)
        verdict = batch_verdict(
            (cell.batch_size, (row.host or "", row.round) if known else None, analysis.facts)
            for cell in of_sizes
            for row, analysis in cell.counted
            if analysis.facts is not None
        )
        if verdict is not None:
            verdicts[name(sizes[0])] = verdict
    return Comparison(tuple(cells), verdicts, tuple(groups))


# What figures of a comparison rest on: how many runs, of how many steps, how long, and who else used the machine.


def foreign_cpus(runs: Iterable[Facts]) -> float | None:
    """Give the most CPUs that other programs kept busy, on a machine that had none to spare; `None` where none did."""
    seen = [facts for facts in runs if facts.window.wall_ns >= SEEN_NS and facts.machine_full]
    most = max((measured_or(facts.foreign_cpus) for facts in seen), default=0.0)
    return most if most >= HINDERING_CPUS else None


def too_little(cell: Cell, seconds: float | None = None) -> str | None:
    """Say why this cell cannot carry a claim of a few percent: too few steps, or one short run; `None` where it can.
    `seconds`: of a run; without them, of its window."""
    typical = cell.typical
    if typical is None or typical.facts is None:
        return None
    if len(typical.facts.window.steps) < LEAST_STEPS:
        return "too few steps for a verdict"
    measured = typical.facts.window.wall_ns / 1e9 if seconds is None else seconds
    return f"one run of less than {SHORT_S:g} s" if len(cell.facts) == 1 and measured < SHORT_S else None


# Recorded runs of somebody's own training as cells.

LOADER_WORDS: Mapping[str, Callable[[Any], str | None]] = {
    "ranks": lambda ranks: f"{ranks} rank{'s' * (ranks != 1)}",
    "num_workers": lambda workers: f"{workers or 'no'} worker{'s' * (workers != 1)}",
    "prefetch_factor": "prefetch {}".format,
    "pin_memory": {True: "pinned memory", False: "memory not pinned"}.get,
    "persistent_workers": {True: "persistent workers", False: "workers anew each epoch"}.get,
    "in_order": {True: "in order", False: "out of order"}.get,
    "start method of workers": {FORK: "forked workers", SPAWN: "spawned workers"}.get,
}
"""How the name of a recorded loader says what it is set to, by the name that the setting has in a difference."""
SURROUNDINGS = {
    "the program": "program",
    "the device": "device",
    "the machine": "host",
    "the CPUs the job may use": "CPUs it may use",
    "the version of torch": "torch",
    "the version of Python": "Python",
}
"""What else may differ between recorded runs → its name in a difference."""


def cells_of_runs(folders: Sequence[Path]) -> list[Cell]:
    """Make cells of recorded runs: loaders in the order they were named, each from its smallest batch on.

    A changed number of workers must not be taken for the batch's doing: runs whose loader is set differently are
    different loaders. What was not recorded of a setting is no difference.

    Raises:
        WhyidleError: a run has no batch size to compare it by.
        RecordError: a record file cannot be read.
    """
    recorded = []
    for folder in folders:
        analysis = analysed(folder)
        if analysis.facts is None:
            raise WhyidleError(f"{folder} holds no training step, so there is nothing to compare. Leave it out.")
        if (batch := analysis.facts.batch_size) is None:
            raise WhyidleError(
                f"{folder}: the number of samples per batch was not seen, so it has no time per sample. Watch its "
                "loader (`whyidle.watch`), or leave it out."
            )
        values = what_was_set(analysis)
        at = [None if values[name][0] is None else word(values[name][0]) for name, word in LOADER_WORDS.items()]
        recorded.append((folder, analysis, batch, at))
    known = [set(words) - {None} for words in zip(*(at for *_, at in recorded), strict=True)]
    cells: dict[str, dict[int, list[tuple[Path, Analysis]]]] = {}
    for folder, analysis, batch, at in recorded:
        words = [(analysis.info.get("trial") or {}).get("pipeline")]
        words += [word for word, several in zip(at, known, strict=True) if len(several) > 1]
        loader = ", ".join(filter(None, words)) or NAME
        cells.setdefault(loader, {}).setdefault(batch, []).append((folder, analysis))
    made = []
    for loader, sizes in cells.items():
        # Runs are of rounds where the loader's batch sizes were run in turn.
        begun = [((a.info.get("clock") or {}).get("time_ns"), size, f) for size, of in sizes.items() for f, a in of]
        rounds: dict[Path, int] | None = None if any(at is None for at, *_ in begun) else {}
        done = dict.fromkeys(sizes, 0)
        for _, size, folder in sorted(begun, key=lambda each: (int(each[0] or 0), each[1])):
            rounds = None if rounds is None or done[size] > min(done.values()) else rounds | {folder: done[size]}
            done[size] += 1
        for size, of in sorted(sizes.items()):
            rows = tuple(RunRow(str(folder), (rounds or {}).get(folder), analysis) for folder, analysis in of)
            made.append(Cell(loader, size, "ok", None, rows))
    return made


def differences(cells: Sequence[Cell]) -> list[str]:
    """Say what else than batch size and loader differs between recorded runs, or may, a sentence each."""
    runs = [pair for cell in cells for pair in cell.counted]
    every = [what_was_set(analysis) | where_it_ran(analysis) for _, analysis in runs]
    said = []
    for what, name in SURROUNDINGS.items():
        values = (value for each in every if (value := each[name][0]) is not None)
        words = dict.fromkeys(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
        if len(words) > 1:
            said.append(f"{what} ({', '.join(words)})")
    notices = [f"These runs differ in more than the batch size: {'; '.join(said)}."] if said else []
    if any(len(analysis.ranks) > 1 for _, analysis in runs):
        notices.append(
            "For jobs of several ranks, the effect of the batch size is that of one rank: the one the others wait for."
        )
    return notices + [
        f"{row.run}: {'; '.join(lacking)}. Only its recorded part counts."
        for row, analysis in runs
        if (lacking := lacking_of(Path(row.run), analysis))
    ]
