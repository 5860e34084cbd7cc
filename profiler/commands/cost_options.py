"""What commands say of money: `--instance`, `--price`, `--prices`, and `compare cost --logs DIR`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells import cost, epoch_logs
from ..analyse.cells.cell_costs import SETTING, is_at, place_of, setting_of
from ..analyse.cells.comparison import Cell
from ..analyse.cells.prices import Price, Prices, load
from ..analyse.run.analysis import Analysis
from ..capture.cpu_budget import cpu_budget
from ..errors import WhyidleError
from ..report.contract import cost as cost_json
from ..report.documents import cost as cost_text
from ..report.render.text import show as show_text
from ..terminal.console import console, show, write_json
from .options import require_folder

if TYPE_CHECKING:
    from whyidle.scenarios.variant import Variant

SCENARIO = "cost"
TARGET = 0.9
"""Accuracy up to which the scenario of costs counts, unless told another."""
NAMES = {"instance", "price", "prices", "relative_to", "target"}
"""Of the options, among the arguments, beside `--logs`."""


def add_arguments(parser: argparse.ArgumentParser, logs: bool = False) -> None:
    """The options of the price of an hour; with `logs` those of published logs too."""
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("--instance", metavar="NAME", help="price time as this machine's (docs/scenarios/cost.md)")
    rate.add_argument("--price", type=_usd, metavar="USD", help="price of an hour of the machine")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="more prices (TOML)")
    if logs:
        parser.add_argument("--logs", type=Path, metavar="DIR", help="of cost: published logs instead of trainings")
        parser.add_argument("--relative-to", metavar="NAME", help="costs over those of this machine, device or number")
        parser.add_argument("--target", type=_share, metavar="ACC", help="of cost: cost until this accuracy, 0 to 1")


@dataclass(frozen=True)
class Rates:
    """What the trainings of a comparison cost an hour."""

    prices: Prices
    same: Price | None
    """Of every training, where the command says so."""
    study: bool
    """Otherwise: whether trainings are priced as in the study of costs, by vCPU or accelerator."""

    def of(self, device: str, threads: int | None, ranks: int) -> Price | None:
        """Of a training of so many ranks, each on a device (`cpu`, `cuda`, `emulated:NAME`) with so many threads; by
        default they share a thread for every CPU that the job may use. Worker processes of loaders are not in it."""
        if self.same is not None or not self.study:
            return self.same
        if device == "cpu":
            cpus = max(1, int(cpu_budget().budget))
            return self.prices.of_vcpus(ranks * (threads or max(1, cpus // ranks)))
        price = self.prices.of_accelerator(device.removeprefix("emulated:")) if device != "cuda" else None
        return None if price is None else price.times(ranks)


def rates_of(arguments: argparse.Namespace, scenario: str | None = None) -> Rates:
    """As the command says.

    Raises:
        WhyidleError: the price file is wrong, or has no such instance.
    """
    prices = load(arguments.prices)
    return Rates(prices, _same(arguments, prices), scenario == SCENARIO)


def put(arguments: argparse.Namespace, setting: dict[str, Any], variants: Collection[Variant]) -> None:
    """Say in a comparison's setting what its trainings cost an hour.

    Raises:
        WhyidleError: the price file is wrong, or has no such instance.
    """
    target = arguments.target
    if target is None and setting["scenario"] == SCENARIO:
        target = TARGET
    places, base = [(each.device, each.threads, each.ranks) for each in variants], arguments.relative_to
    if base is not None and not any(is_at(base, device, threads) for device, threads, _ in places):
        raise WhyidleError(f"--relative-to {base}: nothing trains there. Name one of the devices, or of the --threads.")
    if arguments.target is not None and not any(each.evaluate == "epochs" for each in variants):
        raise WhyidleError(
            f"--target {arguments.target:g}: this experiment does not evaluate after every epoch, so that nothing says "
            "when it is reached. `whyidle compare cost --experiment accuracy` does."
        )
    rates = rates_of(arguments, setting["scenario"])
    _require_one_machine(rates.same, (device for device, *_ in places))
    said = setting_of(rates.of, places, target, base, rates.same is not None)
    if said is not None:
        setting[SETTING] = said


def price_of(arguments: argparse.Namespace) -> Price | None:
    """The one price that the command names; `None` where it names none.

    Raises:
        WhyidleError: the price file is wrong, or has no such instance.
    """
    return rates_of(arguments).same


def put_price(price: Price | None, cells: Collection[Cell], setting: dict[str, Any]) -> None:
    """Have a comparison that is over priced anew."""
    if price is not None:
        before = setting.get(SETTING) or {}
        _require_one_machine(price, (str(cell.axes.get("device")) for cell in cells))
        setting[SETTING] = setting_of(
            lambda *_: price, map(place_of, cells), before.get("target_accuracy"), before.get("relative_to"), True
        )


def _require_one_machine(price: Price | None, devices: Iterable[str]) -> None:
    """
    Raises:
        WhyidleError: one price for trainings on several devices.
    """
    several = list(dict.fromkeys(devices))
    if price is not None and len(several) > 1:
        raise WhyidleError(
            f"one price ({price.title}) says nothing of trainings on {len(several)} devices ({', '.join(several)}). "
            f"Compare one device at a time, or leave --price and --instance out: scenario {SCENARIO} has a price for "
            "each device."
        )


def line_of(analysis: Analysis, price: Price | None) -> str | None:
    """What a recorded run cost, in words; nothing without a price."""
    return None if price is None else cost_text.spent(spent_on(analysis, price))


def json_of(analysis: Analysis, price: Price | None) -> dict[str, Any]:
    """What a recorded run cost, for its JSON: `cost`, where there is a price."""
    return {} if price is None else {"cost": cost_json.spent(spent_on(analysis, price))}


def spent_on(analysis: Analysis, price: Price) -> cost.Spent:
    """What a recorded run, or a job of several ranks, cost."""
    each = [part.analysis for part in analysis.ranks] or [analysis]
    facts = [one.facts for one in each if one.facts is not None]
    return cost.spent(price, analysis.duration_s, facts if len(facts) == len(each) else [])


def run_logs(arguments: argparse.Namespace) -> int:
    """`compare cost --logs DIR`.

    Raises:
        WhyidleError: the logs or the prices cannot be used.
    """
    [scenario] = arguments.what
    if scenario != SCENARIO:
        raise WhyidleError(f"--logs is an option of `compare {SCENARIO}`, not of {scenario}.")
    require_folder(arguments.json)
    found = epoch_logs.read(arguments.logs)
    bills = cost.bills(found.logs, load(arguments.prices), arguments.relative_to, arguments.target)
    base = arguments.relative_to or cost.default_base([each.machine for each in bills])
    folder = str(arguments.logs)
    if arguments.json != "-":
        document = cost_text.document(bills, base, arguments.target, found.problems, folder)
        show(lambda target: show_text(document, target), console())
    if arguments.json:
        write_json(cost_json.logged(bills, base, arguments.target, found.problems, folder), arguments.json)
    return 0


def _same(arguments: argparse.Namespace, prices: Prices) -> Price | None:
    if arguments.price is not None:
        return Price(usd_per_hour=arguments.price)
    return None if arguments.instance is None else prices.instance(arguments.instance)


def _usd(text: str) -> float:
    value = _number(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price in USD from 0 on")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an accuracy between 0 and 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
