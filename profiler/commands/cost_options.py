"""The options about money: `--instance`, `--price`, `--prices`, and `compare cost --logs DIR`. A wrong file of
prices, and an instance that it does not have, is a `WhyidleError`."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells import cost
from ..analyse.cells.cost import COST_SCENARIO, Price, Prices, Tariff
from ..capture.limits import cpu_budget
from ..errors import WhyidleError
from ..report.contract import comparison as compare_json
from ..report.documents.cost import logs_document
from ..results.comparisons import require_one_machine
from ..terminal.console import show_result
from .options import number, require_folder

if TYPE_CHECKING:
    from whyidle.scenarios.variant import Variant

TARGET = 0.9
"""Accuracy up to which the scenario `cost` counts, unless --target names another."""
_USD = number("is not a price in USD of 0 or more", 0.0, 1e300)
_SHARE = number("is not an accuracy between 0 and 1", 0.0, 1.0, above=True)


def add_arguments(parser: argparse.ArgumentParser, logs: bool = False) -> None:
    """Add the options of the price of an hour; with `logs` those of published logs too."""
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument("--instance", metavar="NAME", help="machine whose price counts (docs/scenarios/cost.md)")
    rate.add_argument("--price", type=_USD, metavar="USD", help="price of an hour of the machine")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="file with more prices (TOML)")
    if logs:
        parser.add_argument("--logs", type=Path, metavar="DIR", help="for cost: published logs instead of trainings")
        parser.add_argument("--relative-to", metavar="NAME", help="costs relative to this machine, device or threads")
        parser.add_argument("--target", type=_SHARE, metavar="ACC", help="for cost: cost until this accuracy, 0 to 1")


def tariff(prices: Prices, scenario: str | None) -> Tariff:
    """Price trainings as the study of costs does, by vCPU or accelerator; in other scenarios nothing has a price.
    By default ranks share a thread for every CPU that the job may use. Worker processes of loaders are not in it."""

    def of(device: str, threads: int | None, ranks: int) -> Price | None:
        if scenario != COST_SCENARIO:
            return None
        if device == "cpu":
            cpus = max(1, int(cpu_budget().budget))
            return prices.of_vcpus(ranks * (threads or max(1, cpus // ranks)))
        price = prices.of_accelerator(device.removeprefix("emulated:")) if device != "cuda" else None
        return None if price is None else price.times(ranks)

    return of


def put(arguments: argparse.Namespace, setting: dict[str, Any], variants: Collection[Variant]) -> None:
    """Say in a comparison's setting what its trainings cost an hour."""
    target = arguments.target
    if target is None and setting["scenario"] == COST_SCENARIO:
        target = TARGET
    places, base = [(each.device, each.threads, each.ranks) for each in variants], arguments.relative_to
    if base is not None and not any(cost.is_at(base, device, threads) for device, threads, _ in places):
        raise WhyidleError(f"--relative-to {base}: nothing trains there. Name one of the devices or of the --threads.")
    if arguments.target is not None and not any(each.evaluate == "epochs" for each in variants):
        raise WhyidleError(
            f"--target {arguments.target:g}: this experiment does not evaluate after every epoch, so it cannot "
            "tell when it is reached. Use `whyidle compare cost --experiment accuracy`."
        )
    same = price_of(arguments)
    if same is not None:
        require_one_machine(same, (device for device, *_ in places))
    by_place = tariff(cost.load(arguments.prices), setting["scenario"])
    said = cost.setting_of(by_place if same is None else lambda *_: same, places, target, base, same is not None)
    if said is not None:
        setting[cost.SETTING] = said


def price_of(arguments: argparse.Namespace) -> Price | None:
    """Read the one price that the command names; `None` where it names none."""
    if arguments.price is not None:
        return Price(usd_per_hour=arguments.price)
    if arguments.instance is arguments.prices is None:
        return None
    prices = cost.load(arguments.prices)
    return None if arguments.instance is None else prices.instance(arguments.instance)


def run_logs(arguments: argparse.Namespace) -> int:
    """Run `compare cost --logs DIR`."""
    [scenario] = arguments.what
    if scenario != COST_SCENARIO:
        raise WhyidleError(f"--logs is an option of `compare {COST_SCENARIO}`, not of {scenario}.")
    require_folder(arguments.json)
    logs, problems = cost.read_logs(arguments.logs)
    base, bills = cost.bills(logs, cost.load(arguments.prices), arguments.relative_to, arguments.target)
    shown = bills, base, arguments.target, problems, str(arguments.logs)
    show_result(partial(logs_document, *shown), partial(compare_json.logged, *shown), arguments.json)
    return 0
