"""`whyidle scenarios`: what can be run, and on what."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..devices import profiles
from ..devices.profiles import Accelerator
from ..errors import MissingExtra
from ..terminal.console import console, show, write_json

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.scenarios.registry import NAMES, not_installed, scenario

    lacking = not_installed()
    listed = {
        "scenarios": [_undescribed(name, lacking) if lacking else _described(scenario(name)) for name in NAMES],
        "devices": _devices(),
    }
    if arguments.json:
        write_json(listed, "-")
        return 0
    show(lambda target: _render(listed, target), console())
    return 0


def _render(listed: dict[str, Any], target: Console) -> None:
    for scenario in listed["scenarios"]:
        if why := scenario.get("not_installed"):
            target.print(Text.assemble((scenario["name"], "bold"), f"  {why}"), soft_wrap=True)
            target.print()
            continue
        target.print(Text.assemble((scenario["name"], "bold"), f"  {scenario['question']}"))
        nets = f"; nets: {', '.join(scenario['nets'])}" if scenario["nets"] else ""
        target.print(f"  study: {scenario['study']}{nets}")
        target.print(f"  data: {scenario['data']}")
        for experiment in scenario.get("experiments", ()):
            target.print(f"  --experiment {experiment['name']}: {experiment['question']}", markup=False)
        target.print()
    devices = Table("device", "kind", "step times from", box=None, pad_edge=False)
    for device in listed["devices"]:
        devices.add_row(device["name"], device["kind"], device["source"])
    target.print(devices)


def _described(one: Scenario) -> dict[str, Any]:
    return {
        "name": one.name,
        "study": one.study,
        "question": one.question,
        "nets": list(one.nets),
        "data": one.data,
        "experiments": [{"name": each.name, "question": each.question} for each in one.experiments],
    }


def _undescribed(name: str, lacking: str) -> dict[str, Any]:
    """One that cannot be asked about itself here; `lacking`: what of its needs is not installed."""
    why = MissingExtra(f"needs {lacking}, which this environment lacks", "studies")
    empty: dict[str, Any] = {"study": None, "question": None, "nets": [], "data": None, "experiments": []}
    return {"name": name, **empty, "not_installed": str(why)}


def _devices() -> list[dict[str, Any]]:
    real = [
        {"name": "cuda", "kind": "cuda", "source": "measured while it runs"},
        {"name": "cpu", "kind": "cpu", "source": "measured while it runs"},
    ]
    emulated = [
        {"name": f"emulated:{name}", "kind": "emulated", "source": _source(profiles.load(name))}
        for name in profiles.names()
    ]
    return real + emulated


def _source(accelerator: Accelerator) -> str:
    """Where its step times are from: those of the detector that most have, else of the first net."""
    return accelerator.nets["ssd300" if "ssd300" in accelerator.nets else next(iter(accelerator.nets))].origin
