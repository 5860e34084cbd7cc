"""`whyidle scenarios`: what can be run, and on what."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..devices import profiles
from ..errors import MissingExtra
from ..terminal.console import console, show, write_json

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Scenario


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.scenarios.registry import NAMES, not_installed, scenario

    if lacking := not_installed():
        # None of them can be asked about itself here.
        why = MissingExtra(f"needs {lacking}, which this environment lacks", "studies")
        empty: dict[str, Any] = {"study": None, "question": None, "nets": [], "data": None, "experiments": []}
        scenarios = [{"name": name, **empty, "not_installed": str(why)} for name in NAMES]
    else:
        scenarios = [_described(scenario(name)) for name in NAMES]
    listed = {"scenarios": scenarios, "devices": _devices()}
    if arguments.json:
        write_json(listed, "-")
    else:
        show(lambda target: _render(listed, target), console())
    return 0


def _render(listed: dict[str, Any], target: Console) -> None:
    for scenario in listed["scenarios"]:
        why = scenario.get("not_installed")
        target.print(Text.assemble((scenario["name"], "bold"), f"  {why or scenario['question']}"), soft_wrap=bool(why))
        if not why:
            nets = f"; nets: {', '.join(scenario['nets'])}" if scenario["nets"] else ""
            target.print(f"  study: {scenario['study']}{nets}")
            target.print(f"  data: {scenario['data']}")
        for experiment in scenario["experiments"]:
            target.print(f"  --experiment {experiment['name']}: {experiment['question']}", markup=False)
        target.print()
    devices = Table("device", "kind", "step times from", box=None, pad_edge=False)
    for device in listed["devices"]:
        devices.add_row(device["name"], device["kind"], device["source"])
    target.print(devices)


def _described(one: Scenario) -> dict[str, Any]:
    experiments = [{"name": each.name, "question": each.question} for each in one.experiments]
    told = {name: getattr(one, name) for name in ("name", "study", "question", "nets", "data")}
    return told | {"experiments": experiments}


def _devices() -> list[dict[str, Any]]:
    def source(name: str) -> str:
        """Say where step times are from: those of the detector that most have, else of the first net."""
        nets = profiles.load(name).nets
        return nets["ssd300" if "ssd300" in nets else next(iter(nets))].origin

    real = [{"name": name, "kind": name, "source": "measured while it runs"} for name in ("cuda", "cpu")]
    return real + [{"name": f"emulated:{n}", "kind": "emulated", "source": source(n)} for n in profiles.names()]
