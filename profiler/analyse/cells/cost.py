"""What trainings cost: per epoch, in all, until an accuracy is reached; and what waiting cost.

Every figure is a time and the price of an hour of the machine. A figure that is not known is NaN, never 0. Prices come
with whyidle and from a user's own file; times from a comparison's cells, a recorded run, or published logs: one CSV
file each, one line an epoch.
"""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import inf, isnan, nan
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, structs

from ...errors import DataError, WhyidleError
from ..ranks import figures as ranks_figures
from ..run.facts import Facts
from .comparison import Cell

PRICES_FILE = "prices.toml"
VCPU_INSTANCE = "gcp-highcpu-8-2017-07"
"""An eighth of it is the price of one vCPU in the study: all sizes of the series cost the same per vCPU."""
COST_SCENARIO = "cost"
"""The scenario of costs, which has a price for each device."""
SETTING = "cost"
"""Key of a comparison's setting that says what its cells cost an hour."""
FRAMEWORK = "_tensorflow"
"""End of the study's names of log files."""
T = TypeVar("T")


# Prices.

Line = Annotated[str, Meta(pattern=r"^[^\n]*\S[^\n]*\Z")]


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of a machine while it is rented. Texts are `None` where not told."""

    usd_per_hour: Annotated[float, Meta(ge=0, lt=1e300)]
    name: str | None = None
    """Name of the instance; `None` of a rate that somebody gave on the command line."""
    vcpus: Annotated[int, Meta(gt=0)] | None = None
    accelerator: Line | None = None
    """Name of its accelerator, as emulated devices are called: `k80`."""
    provider: Line | None = None
    date: Line | None = None
    source: Line | None = None
    doubt: Line | None = None

    @property
    def title(self) -> str:
        """`$3.06/h (p3.2xlarge, 2018)`"""
        known = [part for part in (self.name, self.date) if part]
        if len(known) == 2 and known[0].endswith(known[1]):
            known.pop()
        return f"${self.usd_per_hour:g}/h" + (f" ({', '.join(known)})" if known else "")

    def of(self, seconds: float) -> float:
        """Price a time, USD."""
        return seconds * self.usd_per_hour / 3600

    def times(self, count: int) -> Price:
        """Price so many such machines."""
        if count == 1:
            return self
        vcpus = None if self.vcpus is None else self.vcpus * count
        name = f"{count} x {self.name}"
        return structs.replace(self, usd_per_hour=self.usd_per_hour * count, name=name, vcpus=vcpus)


class ListedPrice(Price, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A price in a file, which says where it is from."""

    provider: Line
    date: Line
    source: Line


class PriceFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a file of prices."""

    instances: dict[str, dict[str, Any]] = {}
    logs: dict[str, Line] = {}


@dataclass(frozen=True)
class Prices:
    """The prices that are known."""

    instances: Mapping[str, Price]
    logs: Mapping[str, str]
    """Name of a folder of logs → the instance they were measured on."""

    def instance(self, name: str) -> Price:
        """Find the price of an instance.

        Raises:
            WhyidleError: there is none of that name.
        """
        if name not in self.instances:
            raise WhyidleError(
                f"there is no price for instance {name!r}. Known are {', '.join(self.instances)}; --prices FILE adds "
                "others, --price USD gives the price per hour."
            )
        return self.instances[name]

    def of_logs(self, folder: str) -> Price | None:
        """Find the price of the machine that a folder of logs is named for; `None` where it is not known."""
        return self.instances.get(self.logs.get(folder, folder))

    def of_accelerator(self, name: str) -> Price | None:
        """Find the price of the newest instance that has an accelerator, rather of one without doubt; `None` where none
        has."""
        having = [each for each in self.instances.values() if each.accelerator == name]
        return max(having, key=lambda each: (each.doubt is None, each.date or ""), default=None)

    def of_vcpus(self, count: int) -> Price:
        """Price so many vCPUs, at the study's price of one."""
        series = self.instances[VCPU_INSTANCE]
        assert series.vcpus is not None
        return Price(
            usd_per_hour=series.usd_per_hour * count / series.vcpus,
            name=f"{count} vCPU" if count == 1 else f"{count} vCPUs",
            vcpus=count,
            provider=series.provider,
            source=f"{VCPU_INSTANCE}, per vCPU",
            date=series.date,
        )


def load(file: Path | None = None) -> Prices:
    """Read the prices that come with whyidle, with those of a user's file; a name in both is the user's. Reading is
    strict, since a typo would silently become a wrong price.

    Raises:
        WhyidleError: the file cannot be read, or says something else than prices.
    """
    texts = {PRICES_FILE: (resources.files(__package__) / PRICES_FILE).read_text(encoding="utf-8")}
    if file is not None:
        try:
            texts[str(file)] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise WhyidleError(f"cannot read the prices in {file}: {why}.") from error
    instances, logs = dict[str, Price](), dict[str, str]()
    for source, text in texts.items():
        try:
            told = _checked(tomllib.loads(text), PriceFile, source)
        except tomllib.TOMLDecodeError as error:
            raise WhyidleError(f"the price file {source} is not TOML: {error}.") from error
        for name, table in told.instances.items():
            instances[name] = structs.replace(_checked(table, ListedPrice, source, f"instances.{name}"), name=name)
        logs |= told.logs
    for folder, name in logs.items():
        if name not in instances:
            raise _wrong(str(file or PRICES_FILE), f"logs.{folder}", f"there is no instance {name!r}")
    return Prices(instances, logs)


def _checked(table: Mapping[str, Any], kind: type[T], file: str, key: str = "") -> T:
    try:
        return convert(table, kind)
    except ValidationError as error:
        fact, _, at = str(error).partition(" - at `$")
        raise _wrong(file, f"{key}{at.rstrip('`')}".lstrip("."), fact) from error


def _wrong(file: str, key: str, fact: str) -> WhyidleError:
    return WhyidleError(f"price file {file}: {f'{key}: ' if key else ''}{fact} (see docs/scenarios/cost.md).")


# Shares of time, and what they cost.


def waiting(shares: Mapping[str, float]) -> float:
    """Give the share of wall time within steps, 0..1, without computation; NaN where computing is not told apart."""
    share = 1.0 - shares.get("compute", nan) - boundary(shares)
    return 0.0 if share < 0 else share


def boundary(shares: Mapping[str, float]) -> float:
    """Give the share of wall time outside the steps, 0..1: validation, checkpoints. It is work, not waiting."""
    return shares.get("boundary", 0.0)


def first_reaching(accuracies: Sequence[float | None], target: float | None) -> int | None:
    """Find the first epoch, from 1, with at least this accuracy; `None` if there was none."""
    if target is None:
        return None
    return next((n for n, each in enumerate(accuracies, 1) if each is not None and each >= target), None)


@dataclass(frozen=True)
class Spent:
    """The cost of a recorded run, and of waiting in it; NaN where not measured."""

    price: Price
    usd: float
    """Cost from its start to its end, the start of the program included."""
    waited_usd: float = nan
    """Cost of the time within steps in which the device waited, in the part of the run that was judged."""
    waited_share: float = nan
    """Share of the judged part, 0..1, that was such waiting."""
    waiter: str = "device"
    """Who waited: the training itself where the processor is the device."""
    boundary_usd: float = nan
    """Cost of the time outside the steps in the part that was judged: validation, checkpoints."""
    boundary_share: float = nan
    """Share of the judged part, 0..1, that lay outside the steps."""


def spent(price: Price, duration_s: float | None, facts: Sequence[Facts]) -> Spent:
    """Price a run. `facts` are those of its ranks: the machine waits as their devices do on average."""
    found = Spent(price, price.of(nan if duration_s is None else duration_s))
    waits = [waiting(each.shares) for each in facts]
    if not facts or isnan(sum(waits)):
        return found
    outside, walls = [boundary(each.shares) for each in facts], [each.parts.wall_ns / 1e9 for each in facts]
    waited_usd, boundary_usd = (
        price.of(mean(share * wall for share, wall in zip(shares, walls, strict=True))) for shares in (waits, outside)
    )
    return Spent(price, found.usd, waited_usd, mean(waits), facts[0].waiter, boundary_usd, mean(outside))


# The cells of a comparison.

Place = tuple[str, int | None, int]
"""Where a training ran: device, threads, ranks."""
Tariff = Callable[[str, int | None, int], Price | None]
"""The price of an hour of all that a training there ran on."""


@dataclass(frozen=True)
class CellCost:
    """The cost of a cell's training; NaN where not known."""

    cell: Cell
    price: Price | None
    """`None` where not known."""
    usd_per_epoch: float
    """One pass over the data at the cell's rate within its steps; start, evaluation and checkpoints are not in it."""
    waited_usd_per_epoch: float
    """Part of it for the time in which nothing was computed."""
    ratio: float
    """`usd_per_epoch` over that of the chosen cell of the same net, else of its first cell of real data with a cost."""
    target_epochs: int | None
    """Epochs until the accuracy that was asked for; `None` if it was never reached."""
    target_cost_usd: float
    """Cost of the epochs until that accuracy, evaluation included."""

    @property
    def is_tried(self) -> bool:
        """Whether the net was tried on held-out data after every epoch."""
        return any(each.get("evaluation") for each in _epochs(self.cell))


def setting_of(
    tariff: Tariff,
    places: Iterable[Place],
    target: float | None,
    relative_to: str | None = None,
    whole: bool = False,
) -> dict[str, Any] | None:
    """Make a comparison's setting: the prices of its places, the accuracy to be reached, what cells are set beside
    (`is_at`), and whether prices are of the whole machine, with everything that runs on it; `None` without a price."""
    told = [
        {"device": device, "threads": threads, "ranks": ranks, "price": structs.asdict(price)}
        for device, threads, ranks in dict.fromkeys(places)
        if (price := tariff(device, threads, ranks)) is not None
    ]
    if not told:
        return None
    return {"prices": told, "target_accuracy": target, "relative_to": relative_to, "whole_machine": whole}


def place_of(cell: Cell) -> Place:
    return str(cell.axes.get("device")), cell.axes.get("threads"), cell.axes.get("ranks") or 1


def is_at(name: str, device: str, threads: int | None) -> bool:
    """Whether this is the place of that name: a device (`k80`, `emulated:k80`, `cpu`), or a number of threads."""
    return name in (device, device.removeprefix("emulated:"), str(threads))


def cell_costs(cells: Sequence[Cell], setting: Mapping[str, Any]) -> list[CellCost]:
    """Price every cell; empty where the setting has no prices."""
    said = setting.get(SETTING)
    if not said:
        return []
    prices = {
        (each["device"], each["threads"], each.get("ranks", 1)): Price(**each["price"]) for each in said["prices"]
    }
    chosen, target = said.get("relative_to"), said.get("target_accuracy")
    bases: dict[str | None, float] = {}
    made = []
    for cell in cells:
        device, threads, _ = where = place_of(cell)
        price, rate, samples = prices.get(where), cell.samples_per_s, cell.samples(setting)
        shares = {} if cell.typical is None else ranks_figures.shares(cell.typical)
        whole = reached_usd = nan
        # Steps that do nothing make no epoch of a training.
        if price is not None and rate is not None and rate.value and samples is not None and cell.feed != "loader-only":
            whole = price.of(samples / rate.value)
        usd, waited_usd = whole * (1 - boundary(shares)), whole * waiting(shares)
        if not isnan(usd) and cell.feed == "real" and (chosen is None or is_at(chosen, device, threads)):
            bases.setdefault(cell.axes.get("net"), usd)
        epochs = _epochs(cell)
        reached = first_reaching([(each.get("evaluation") or {}).get("accuracy") for each in epochs], target)
        if price is not None and reached is not None:
            reached_usd = price.of(sum(each["seconds"] for each in epochs[:reached]))
        made.append(CellCost(cell, price, usd, waited_usd, nan, reached, reached_usd))
    # A cell that costs nothing is no measure for others.
    return [replace(each, ratio=each.usd_per_epoch / (bases.get(each.cell.axes.get("net")) or nan)) for each in made]


def _epochs(cell: Cell) -> Sequence[Mapping[str, Any]]:
    typical = cell.typical
    found: Sequence[Mapping[str, Any]] = ((typical.info.get("results") or {}) if typical else {}).get("epochs") or ()
    return found


# Published logs.


@dataclass(frozen=True)
class EpochLog:
    """The log of one training on one machine."""

    test: str
    """Name of the training."""
    machine: str
    """Its folder's path, from the folder that was named on."""
    epochs: tuple[tuple[float, float, float], ...]
    """(seconds, loss on the training data, accuracy on held-out data, 0..1) an epoch; NaN: not logged."""


def read_logs(folder: Path) -> tuple[list[EpochLog], list[str]]:
    """Read all logs in a folder and those below it: (logs, what is bad or cut off, a sentence each).

    A folder's place says on which machine (`cpu-pip/cpu8`), a file's name which training (`mnist_mlp_tensorflow.csv`).

    Raises:
        DataError: there is none that can be used.
    """

    def natural(file: Path) -> list[tuple[int, str]]:
        """Put `cpu8` before `cpu16`."""
        return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", str(file))]

    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} to read logs from.")
    files = sorted(folder.rglob("*.csv"), key=natural)
    if not files:
        raise DataError(f"{folder} holds no logs: a log is a CSV file with columns epoch and elapsed.")
    logs, problems = [], []
    for file in files:
        below = file.parent.relative_to(folder)
        machine = str(below) if below.parts else folder.resolve().name
        try:
            logs.append(EpochLog(file.stem.removesuffix(FRAMEWORK), machine, _epochs_of(file)))
        except (OSError, csv.Error, ValueError) as error:
            problems.append(f"{file} is not a log of epochs: {error}.")
    if not logs:
        raise DataError(f"no log in {folder} can be used. The first: {problems[0]}")
    longest = {log.test: max(len(each.epochs) for each in logs if each.test == log.test) for log in logs}
    problems += [
        f"{log.test} on {log.machine} is cut off: {len(log.epochs)} epochs of {longest[log.test]}."
        for log in logs
        if len(log.epochs) < longest[log.test]
    ]
    return [log for log in logs if len(log.epochs) == longest[log.test]], problems


def _epochs_of(file: Path) -> tuple[tuple[float, float, float], ...]:
    """Read a file with columns `epoch` (from 0), `elapsed` (seconds, validation included), and, where known, `loss`
    and `val_acc`. What is wrong with it is raised as an error of reading or of a value."""
    text = file.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise ValueError("it is cut off, as its last line does not end")
    names, lines = ("epoch", "elapsed", "loss", "val_acc"), csv.DictReader(text.splitlines())
    rows = [[float(line.get(name) or nan) for name in names] for line in lines]
    if not rows or [number for number, *_ in rows] != list(range(len(rows))):
        raise ValueError("column epoch does not count from 0")
    if not all(0 < seconds < inf for _, seconds, *_ in rows):
        raise ValueError("column elapsed has what is no time")
    return tuple((seconds, loss, accuracy) for _, seconds, loss, accuracy in rows)


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The cost of one training of some epochs on one machine; figures are NaN where not known."""

    test: str
    machine: str
    price: Price | None
    """`None` where not known: then there are no costs."""
    epochs: int
    median_s_per_epoch: float
    total_s: float
    cost_usd: float
    cost_usd_per_epoch: float
    """Cost of the median epoch."""
    time_ratio: float = nan
    """`total_s` over that of the same training on the machine chosen for comparison."""
    cost_ratio: float = nan
    """`cost_usd` over that of the same training on the machine chosen for comparison."""
    accuracy: float
    """Accuracy on held-out data after the last epoch, 0..1."""
    loss: float
    """Loss on the training data in the last epoch."""
    target_epoch: int | None
    """The first epoch, from 1, that reached the accuracy asked for; `None` if none did."""
    target_cost_usd: float
    """Cost of all epochs up to that one."""


def bills(
    logs: Sequence[EpochLog], prices: Prices, relative_to: str | None = None, target: float | None = None
) -> tuple[str, list[Bill]]:
    """Price all logs, each beside the same training on the machine `relative_to` (the GPU, or the first, unless
    named), which is given first. `target`: a share of held-out samples.

    Raises:
        WhyidleError: nothing was logged on that machine.
    """
    machines = list(dict.fromkeys(log.machine for log in logs))
    base = relative_to or next((name for name in machines if name.rpartition("/")[2] == "gpu"), machines[0])
    if base not in machines:
        raise WhyidleError(f"there is no log of {base!r}. There are logs of {', '.join(machines)}.")
    made = []
    for log in logs:
        seconds, losses, accuracies = zip(*log.epochs, strict=True)
        price, reached = prices.of_logs(log.machine.rpartition("/")[2]), first_reaching(accuracies, target)
        total, typical, until = sum(seconds), median(seconds), nan if reached is None else sum(seconds[:reached])
        cost, of_epoch, of_target = (nan if price is None else price.of(time) for time in (total, typical, until))
        bill = Bill(
            test=log.test,
            machine=log.machine,
            price=price,
            epochs=len(seconds),
            median_s_per_epoch=typical,
            total_s=total,
            cost_usd=cost,
            cost_usd_per_epoch=of_epoch,
            accuracy=accuracies[-1],
            loss=losses[-1],
            target_epoch=reached,
            target_cost_usd=of_target,
        )
        made.append(bill)
    of_base = {each.test: (each.total_s, each.cost_usd or nan) for each in made if each.machine == base}
    ratios = [of_base.get(each.test, (nan, nan)) for each in made]
    return base, [
        replace(each, time_ratio=each.total_s / time, cost_ratio=each.cost_usd / cost)
        for each, (time, cost) in zip(made, ratios, strict=True)
    ]
