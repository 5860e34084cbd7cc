"""What trainings cost: per epoch, in all, until an accuracy is reached; and what waiting cost.

Every figure is a time and the price of an hour of the machine. What is not known is `None`, never 0. Prices come with
whyidle and from a user's own file; times from a comparison's cells, a recorded run, or published logs: one CSV file
each, one line an epoch.
"""

from __future__ import annotations

import csv
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from statistics import mean, median
from typing import Any

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


# Prices.


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of a machine while it is rented. Texts are `None` where not told."""

    usd_per_hour: float
    name: str | None = None
    """Name of the instance; `None` of a rate that somebody gave on the command line."""
    vcpus: int | None = None
    accelerator: str | None = None
    """Name of its accelerator, as emulated devices are called: `k80`."""
    provider: str | None = None
    date: str | None = None
    source: str | None = None
    doubt: str | None = None

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
        return replace(self, usd_per_hour=self.usd_per_hour * count, name=f"{count} x {self.name}", vcpus=vcpus)


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
    ours = (resources.files(__package__) / PRICES_FILE).read_text(encoding="utf-8")
    instances, logs = _prices(ours, PRICES_FILE)
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise WhyidleError(f"cannot read the prices in {file}: {why}.") from error
        theirs = _prices(text, str(file))
        instances, logs = instances | theirs[0], logs | theirs[1]
    for folder, name in logs.items():
        if name not in instances:
            raise _wrong(str(file or PRICES_FILE), f"logs.{folder}", f"there is no instance {name!r}")
    return Prices(instances, logs)


Wanted = tuple[str, Callable[[Any], bool]]
"""(what a value has to be, whether it is that)."""
_IS_LINE: Wanted = ("one line of text", lambda text: type(text) is str and bool(text.strip()) and "\n" not in text)
_IS_TABLE: Wanted = ("a table", lambda value: isinstance(value, dict))
_KEYS: Mapping[str, Wanted] = {
    "usd_per_hour": ("a price from 0 on", lambda value: type(value) in (int, float) and 0 <= value < math.inf),
    "vcpus": ("a whole number above 0", lambda value: type(value) is int and value > 0),
    **dict.fromkeys(("provider", "date", "source", "accelerator", "doubt"), _IS_LINE),
}
"""Keys of an instance."""
_REQUIRED = ("usd_per_hour", "provider", "date", "source")


def _prices(text: str, file: str) -> tuple[dict[str, Price], dict[str, str]]:
    """Read (prices by instance, instances by folder of logs)."""

    def checked(value: Any, key: str, wanted: Wanted) -> Any:
        if not wanted[1](value):
            raise _wrong(file, key, f"expected {wanted[0]}, found {value!r}")
        return value

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WhyidleError(f"the price file {file} is not TOML: {error}.") from error
    for key in sorted(content.keys() - {"instances", "logs"}):
        raise _wrong(file, key, "unknown key")
    instances, logs = (checked(content.get(key, {}), key, _IS_TABLE) for key in ("instances", "logs"))
    prices = {}
    for name, table in instances.items():
        where = f"instances.{name}"
        for key in sorted(checked(table, where, _IS_TABLE).keys() - _KEYS.keys()):
            raise _wrong(file, f"{where}.{key}", "unknown key")
        for key in _REQUIRED:
            if key not in table:
                raise _wrong(file, f"{where}.{key}", "missing")
        for key, value in table.items():
            checked(value, f"{where}.{key}", _KEYS[key])
        prices[name] = Price(name=name, **table | {"usd_per_hour": float(table["usd_per_hour"])})
    return prices, {folder: checked(name, f"logs.{folder}", _IS_LINE) for folder, name in logs.items()}


def _wrong(file: str, key: str, fact: str) -> WhyidleError:
    return WhyidleError(f"price file {file}: {key}: {fact} (see docs/scenarios/cost.md).")


# Shares of time, and what they cost.


def waiting(shares: Mapping[str, float]) -> float | None:
    """Give the share of wall time within steps, 0..1, without computation; `None` where computing is not told apart."""
    return max(0.0, 1.0 - shares["compute"] - boundary(shares)) if "compute" in shares else None


def boundary(shares: Mapping[str, float]) -> float:
    """Give the share of wall time outside the steps, 0..1: validation, checkpoints. It is work, not waiting."""
    return shares.get("boundary", 0.0)


def first_reaching(accuracies: Sequence[float | None], target: float | None) -> int | None:
    """Find the first epoch, from 1, with at least this accuracy; `None` if there was none."""
    if target is None:
        return None
    return next((n for n, each in enumerate(accuracies, 1) if each is not None and each >= target), None)


def ratio(one: float | None, base: float | None) -> float | None:
    """Divide one by the other, where both are known and there is something to divide by."""
    return None if one is None or not base else one / base


@dataclass(frozen=True)
class Spent:
    """The cost of a recorded run, and of waiting in it; `None` where not measured."""

    price: Price
    usd: float | None
    """Cost from its start to its end, the start of the program included."""
    waited_usd: float | None = None
    """Cost of the time within steps in which the device waited, in the part of the run that was judged."""
    waited_share: float | None = None
    """Share of the judged part, 0..1, that was such waiting."""
    waiter: str = "device"
    """Who waited: the training itself where the processor is the device."""
    boundary_usd: float | None = None
    """Cost of the time outside the steps in the part that was judged: validation, checkpoints."""
    boundary_share: float | None = None
    """Share of the judged part, 0..1, that lay outside the steps."""


def spent(price: Price, duration_s: float | None, facts: Sequence[Facts]) -> Spent:
    """Price a run. `facts` are those of its ranks: the machine waits as their devices do on average."""
    told = [(share, boundary(each.shares)) for each in facts if (share := waiting(each.shares)) is not None]
    usd = None if duration_s is None else price.of(duration_s)
    found = Spent(price, usd, waiter=facts[0].waiter if facts else "device")
    if not told or len(told) < len(facts):
        return found
    walls = [each.parts.wall_ns / 1e9 for each in facts]
    (waited, waited_usd), (outside, outside_usd) = (
        (mean(shares), price.of(mean(share * wall for share, wall in zip(shares, walls, strict=True))))
        for shares in zip(*told, strict=True)
    )
    return replace(found, waited_usd=waited_usd, waited_share=waited, boundary_usd=outside_usd, boundary_share=outside)


# The cells of a comparison.

Place = tuple[str, int | None, int]
"""Where a training ran: device, threads, ranks."""
Tariff = Callable[[str, int | None, int], Price | None]
"""The price of an hour of all that a training there ran on."""


@dataclass(frozen=True)
class CellCost:
    """The cost of a cell's training; `None` where not known."""

    cell: Cell
    price: Price | None
    usd_per_epoch: float | None
    """One pass over the data at the cell's rate within its steps; start, evaluation and checkpoints are not in it."""
    waited_usd_per_epoch: float | None
    """Part of it for the time in which nothing was computed."""
    ratio: float | None
    """`usd_per_epoch` over that of the chosen cell of the same net, else of its first cell of real data with a cost."""
    target_epochs: int | None
    """Epochs until the accuracy that was asked for; `None` if it was never reached."""
    target_cost_usd: float | None
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
        {"device": device, "threads": threads, "ranks": ranks, "price": asdict(price)}
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
        share, usd, waited = waiting(shares), None, None
        # Steps that do nothing make no epoch of a training.
        if price is not None and rate is not None and rate.value and samples is not None and cell.feed != "loader-only":
            usd = price.of(samples / rate.value * (1 - boundary(shares)))
            waited = None if share is None else price.of(samples / rate.value * share)
        if usd is not None and cell.feed == "real" and (chosen is None or is_at(chosen, device, threads)):
            bases.setdefault(cell.axes.get("net"), usd)
        epochs = _epochs(cell)
        reached = first_reaching([(each.get("evaluation") or {}).get("accuracy") for each in epochs], target)
        until = sum(each["seconds"] for each in epochs[:reached]) if reached is not None else None
        spent_usd = None if until is None or price is None else price.of(until)
        made.append(CellCost(cell, price, usd, waited, None, reached, spent_usd))
    return [replace(each, ratio=ratio(each.usd_per_epoch, bases.get(each.cell.axes.get("net")))) for each in made]


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
    epochs: tuple[tuple[float, float | None, float | None], ...]
    """(seconds, loss on the training data, accuracy on held-out data, 0..1) an epoch; `None`: not logged."""


def read_logs(folder: Path) -> tuple[list[EpochLog], list[str]]:
    """Read all logs in a folder and those below it: (logs, what is bad, cut off or missing, a sentence each).

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
    logs, problems, there = [], [], []
    for file in files:
        below = file.parent.relative_to(folder)
        there.append((file.stem.removesuffix(FRAMEWORK), str(below) if below.parts else folder.resolve().name))
        try:
            logs.append(EpochLog(*there[-1], _epochs_of(file)))
        except DataError as error:
            problems.append(str(error))
    if not logs:
        raise DataError(f"no log in {folder} can be used. The first: {problems[0]}")
    longest = {log.test: max(len(each.epochs) for each in logs if each.test == log.test) for log in logs}
    problems += [
        f"{log.test} on {log.machine} is cut off: {len(log.epochs)} epochs of {longest[log.test]}."
        for log in logs
        if len(log.epochs) < longest[log.test]
    ]
    # Trainings that ran on some machines only.
    tests, machines = (sorted(set(names)) for names in zip(*there, strict=True))
    problems += [f"no log of {test} on {at}." for test in tests for at in machines if (test, at) not in there]
    return [log for log in logs if len(log.epochs) == longest[log.test]], problems


def _epochs_of(file: Path) -> tuple[tuple[float, float | None, float | None], ...]:
    """Read a file with columns `epoch` (from 0), `elapsed` (seconds, validation included), and, where known, `loss`,
    `acc`, `val_loss` and `val_acc`.

    Raises:
        DataError: it is not such a log, or ends in the midst of a line.
    """
    try:
        text = file.read_text(encoding="utf-8")
        head, *rows = list(csv.reader(text.splitlines())) or [[]]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except csv.Error as error:
        raise DataError(f"{file} is not a log of epochs: {error}.") from error
    if not {"epoch", "elapsed"} <= set(head) <= {"epoch", "elapsed", "loss", "acc", "val_loss", "val_acc"}:
        raise DataError(f"{file} is not a log of epochs: its first line is {','.join(head)!r}.")
    if not text.endswith("\n"):
        raise DataError(f"{file} is cut off: its last line does not end.")
    if not rows:
        raise DataError(f"{file} has no epoch.")
    epochs = []
    for number, row in enumerate(rows):
        at = f"{file}, line {number + 2}"
        if len(row) != len(head):
            raise DataError(f"{at}: {len(row)} values for {len(head)} columns.")
        values, known = dict(zip(head, row, strict=True)), dict[str, float]()
        for key, value in values.items():
            try:
                known |= {key: float(value)} if value else {}
            except ValueError:
                known[key] = math.nan
            if not math.isfinite(known.get(key, 0.0)):
                raise DataError(f"{at}: {key} is {value!r}, not a number.")
        if known.get("epoch") != number:
            raise DataError(f"{at}: epoch is {values['epoch']!r}, but should be {number}.")
        if known.get("elapsed", 0) <= 0:
            raise DataError(f"{at}: elapsed is {values['elapsed']!r}, not a time.")
        epochs.append((known["elapsed"], known.get("loss"), known.get("val_acc")))
    return tuple(epochs)


@dataclass(frozen=True, kw_only=True)
class Bill:
    """The cost of one training of some epochs on one machine; costs are `None` without a price."""

    test: str
    machine: str
    price: Price | None
    epochs: int
    median_s_per_epoch: float
    total_s: float
    cost_usd: float | None
    cost_usd_per_epoch: float | None
    """Cost of the median epoch."""
    time_ratio: float | None = None
    """`total_s` over that of the same training on the machine chosen for comparison; `None` where it did not run."""
    cost_ratio: float | None = None
    """`cost_usd` over that of the same training on the machine chosen for comparison; `None` where it did not run."""
    accuracy: float | None
    """Accuracy on held-out data after the last epoch, 0..1; `None` where not logged."""
    loss: float | None
    """Loss on the training data in the last epoch; `None` where not logged."""
    target_epoch: int | None
    """The first epoch, from 1, that reached the accuracy asked for; `None` if none did."""
    target_cost_usd: float | None
    """Cost of all epochs up to that one."""


def bills(
    logs: Sequence[EpochLog], prices: Prices, relative_to: str | None = None, target: float | None = None
) -> list[Bill]:
    """Price all logs, each beside the same training on the machine `relative_to` (the GPU, or the first, unless
    named). `target`: a share of held-out samples.

    Raises:
        WhyidleError: nothing was logged on that machine.
    """
    machines = list(dict.fromkeys(log.machine for log in logs))
    base = relative_to or default_base(machines)
    if base not in machines:
        raise WhyidleError(f"there is no log of {base!r}. There are logs of {', '.join(machines)}.")
    made = []
    for log in logs:
        seconds, losses, accuracies = zip(*log.epochs, strict=True)
        price, reached = prices.of_logs(log.machine.rpartition("/")[2]), first_reaching(accuracies, target)
        total, typical = sum(seconds), median(seconds)
        until = None if reached is None else sum(seconds[:reached])
        cost, of_epoch, of_target = (
            None if price is None or time is None else price.of(time) for time in (total, typical, until)
        )
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
    bases = {each.test: each for each in made if each.machine == base}
    pairs = [(each, bases.get(each.test)) for each in made]
    return [
        replace(e, time_ratio=ratio(e.total_s, of.total_s), cost_ratio=ratio(e.cost_usd, of.cost_usd)) if of else e
        for e, of in pairs
    ]


def default_base(machines: Sequence[str]) -> str:
    """Choose the machine that others are compared with unless one is named: the GPU where there is one, else the
    first."""
    return next((name for name in machines if name.rpartition("/")[2] == "gpu"), machines[0])
