"""What an hour of a machine costs: the prices that come with whyidle, and a user's own.

Reading is strict, since a typo would silently become a wrong price: unknown keys, prices that are none and missing
sources are errors that name file and key.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import WhyidleError

PRICES_FILE = "prices.toml"
VCPU_INSTANCE = "gcp-highcpu-8-2017-07"
"""An eighth of it is the price of one vCPU in the study: all sizes of the series cost the same per vCPU."""

COST_SCENARIO = "cost"
"""The scenario of costs, which has a price for each device."""

_REQUIRED, _OPTIONAL = ("usd_per_hour", "provider", "date", "source"), ("vcpus", "accelerator", "doubt")


@dataclass(frozen=True, kw_only=True)
class Price:
    """What a machine costs while it is rented."""

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
        """USD for a time."""
        return seconds * self.usd_per_hour / 3600

    def times(self, count: int) -> Price:
        """The price of so many such machines."""
        if count == 1:
            return self
        return replace(
            self,
            usd_per_hour=self.usd_per_hour * count,
            name=f"{count} x {self.name}",
            vcpus=None if self.vcpus is None else self.vcpus * count,
        )


@dataclass(frozen=True)
class Prices:
    """The prices that are known."""

    instances: Mapping[str, Price]
    logs: Mapping[str, str]
    """Name of a folder of logs → the instance they were measured on."""

    def instance(self, name: str) -> Price:
        """The price of an instance.

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
        """The price of the machine that a folder of logs is named for; `None` where it is not known."""
        name = self.logs.get(folder, folder)
        return self.instances.get(name)

    def of_accelerator(self, name: str) -> Price | None:
        """The price of the newest instance that has an accelerator, rather of one without doubt; `None` where none
        has."""
        having = [each for each in self.instances.values() if each.accelerator == name]
        return max(having, key=lambda each: (each.doubt is None, each.date or ""), default=None)

    def of_vcpus(self, count: int) -> Price:
        """The price of so many vCPUs, at the study's price of one."""
        series = self.instances[VCPU_INSTANCE]
        assert series.vcpus is not None
        return Price(
            usd_per_hour=series.usd_per_hour * count / series.vcpus,
            name=f"{count} vCPU" if count == 1 else f"{count} vCPUs",
            vcpus=count,
            provider=series.provider,
            date=series.date,
            source=f"{VCPU_INSTANCE}, per vCPU",
        )


def load(file: Path | None = None) -> Prices:
    """The prices that come with whyidle, with those of a user's file; a name in both is the user's.

    Raises:
        WhyidleError: the file cannot be read, or says something else than prices.
    """
    ours = _prices((resources.files(__package__) / PRICES_FILE).read_text(encoding="utf-8"), PRICES_FILE)
    if file is None:
        return _checked(ours, PRICES_FILE)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise WhyidleError(f"cannot read the prices in {file}: {why}.") from error
    theirs = _prices(text, str(file))
    return _checked(Prices({**ours.instances, **theirs.instances}, {**ours.logs, **theirs.logs}), str(file))


def _prices(text: str, file: str) -> Prices:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WhyidleError(f"the price file {file} is not TOML: {error}.") from error
    for key in content:
        if key not in ("instances", "logs"):
            raise _wrong(file, key, "unknown key")
    instances, logs = (
        _table(content.get("instances", {}), file, "instances"),
        _table(content.get("logs", {}), file, "logs"),
    )
    return Prices(
        {name: _price(name, _table(raw, file, f"instances.{name}"), file) for name, raw in instances.items()},
        {folder: _line(logs, folder, file, "logs") for folder in logs},
    )


def _price(name: str, table: dict[str, Any], file: str) -> Price:
    where = f"instances.{name}"
    for key in table:
        if key not in (*_REQUIRED, *_OPTIONAL):
            raise _wrong(file, f"{where}.{key}", "unknown key")
    for key in _REQUIRED:
        if key not in table:
            raise _wrong(file, f"{where}.{key}", "missing")
    rate, vcpus = table["usd_per_hour"], table.get("vcpus")
    if not _is_number(rate) or not math.isfinite(rate) or rate < 0:
        raise _wrong(file, f"{where}.usd_per_hour", f"expected a price from 0 on, found {rate!r}")
    if vcpus is not None and (not isinstance(vcpus, int) or isinstance(vcpus, bool) or vcpus < 1):
        raise _wrong(file, f"{where}.vcpus", f"expected a whole number above 0, found {vcpus!r}")
    texts = {key: _line(table, key, file, where) for key in table if key not in ("usd_per_hour", "vcpus")}
    return Price(usd_per_hour=float(rate), name=name, vcpus=vcpus, **texts)


def _checked(prices: Prices, file: str) -> Prices:
    for folder, name in prices.logs.items():
        if name not in prices.instances:
            raise _wrong(file, f"logs.{folder}", f"there is no instance {name!r}")
    return prices


def _table(value: Any, file: str, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(file, key, f"expected a table, found {value!r}")
    return value


def _line(table: dict[str, Any], key: str, file: str, where: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise _wrong(file, f"{where}.{key}", f"expected one line of text, found {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(file: str, key: str, fact: str) -> WhyidleError:
    return WhyidleError(f"price file {file}: {key}: {fact} (see docs/scenarios/cost.md).")
