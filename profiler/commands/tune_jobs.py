"""What `whyidle tune` can tune: a command of the user's, or a scenario."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..capture.bootstrap import RUN, environment
from ..devices.choose import choose
from ..errors import WhyidleError
from ..matrix.experiment import described
from ..record.run import new_folder, new_folder_for
from ..record.secret import without_secrets
from ..report.words.code import command_line
from ..terminal.console import console
from ..tune.training import Launch, script_hint
from .options import are, given

OF_SCENARIOS = ("data", "device", "net", "pipelines", "limit", "no_augment", "seed", "workers", "prefetch")
MODULE = "whyidle.scenarios.tuning"
PARALLEL = ("workers", "threads", "prefetch", "dali-cpu", "dali-gpu")
"""Loaders that do more than one thing at a time, and so have something to tune."""
NONE_GIVEN = "nothing to tune was given. Write `whyidle tune -- python train.py`, or name a scenario."


@dataclass(frozen=True)
class TuneJob:
    """One thing to tune."""

    asked: dict[str, Any]
    """What is tuned, as the command was given it: kept in the tuning's folder."""
    title: str
    folder: Path
    """Where it goes if nothing else is asked for; not made yet."""
    launch: Launch
    scenario: str | None = None
    pipelines: tuple[str, ...] = ()
    """Further loaders to try."""
    notices: tuple[str, ...] = ()


def job(arguments: argparse.Namespace) -> TuneJob:
    """What the command line asks for.

    Raises:
        WhyidleError: a mistake in it.
    """
    words: list[str] = arguments.what
    if not words:
        raise WhyidleError(NONE_GIVEN)
    # The parser does not tell whether `--` came before.
    if len(words) == 1 and sys.argv[-2:] != ["--", words[0]] and not _is_program(words[0]):
        return scenario_job(_checked(arguments, words[0]), arguments.budget)
    if alien := given(arguments, OF_SCENARIOS):
        raise WhyidleError(f"{alien} {are(alien)} of scenarios, and this is a command. Leave it out.")
    return _script(words, arguments.overwrite, arguments.budget)


def _is_program(word: str) -> bool:
    """Whether one word alone is to be run, rather than a scenario's name."""
    from whyidle.scenarios.registry import NAMES

    if word in NAMES:
        return False
    return os.sep in word or word.endswith(".py") or shutil.which(word) is not None


def _script(command: list[str], overwrite: bool, budget_s: float | None) -> TuneJob:
    # Asked here, before a folder is made for it.
    if shutil.which(command[0]) is None:
        raise WhyidleError(f"there is no program {command[0]!r} to run.{script_hint(command)}")

    def settings(folder: Path, tune: Mapping[str, Any]) -> Mapping[str, str]:
        return environment(folder, os.environ, {"tune": dict(tune)})

    launch = Launch(command, settings, _mark, overwrite=overwrite, budget_s=budget_s)
    said = without_secrets(command)
    return TuneJob({"command": said}, command_line(said), new_folder_for(command, "tune-"), launch)


def _checked(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """Check a scenario's options before anything starts: a wrong device, net, loader or folder is one message.

    Raises:
        WhyidleError: such a mistake.
    """
    from whyidle.pipelines.registry import unavailable, unfit
    from whyidle.scenarios.registry import scenario

    chosen = scenario(name)
    # Not before the scenario, which says it where there is no torch.
    from whyidle.scenarios.scenario import DataRequest, step_times

    [device] = described([arguments.device])
    [net] = chosen.nets_for(device["kind"], [arguments.net] if arguments.net else None)
    if device["kind"] == "emulated":
        step_times(choose(device["name"])).net(chosen.profile_net(net))
    for each in arguments.pipelines or ():
        if each not in PARALLEL:
            raise WhyidleError(
                f"loader {each!r} has nothing to tune. Loaders with workers or threads are {', '.join(PARALLEL)}; "
                f"`whyidle compare {name} --pipelines {each}` shows how fast it is."
            )
        if missing := unavailable(each):
            raise WhyidleError(missing)
    data = arguments.data or chosen.find_data(net, lambda text: console(stderr=True).print(text, markup=False))
    dataset = chosen.open_data(
        DataRequest(
            folder=data, net=net, augment=not arguments.no_augment, store=chosen.stores[0], limit=arguments.limit
        )
    )
    fitting = [each for each in PARALLEL if not unavailable(each) and not unfit(each, dataset)]
    return {
        "scenario": name,
        "net": net,
        "device": device["name"],
        "data": str(data.resolve()),
        "pipelines": list(arguments.pipelines or fitting),
        "batch_size": arguments.batch_size or chosen.batch_sizes[0],
        "workers": arguments.workers or 0,
        "prefetch": arguments.prefetch,
        "augment": not arguments.no_augment,
        "limit": arguments.limit,
        "seed": arguments.seed,
        "notices": list(dataset.notices()),
    }


def scenario_job(asked: dict[str, Any], budget_s: float | None) -> TuneJob:
    from whyidle.scenarios.registry import require_installed

    require_installed(f"scenario {asked['scenario']}")
    spec = {key: value for key, value in asked.items() if key not in ("pipelines", "notices")}
    spec["pipeline"] = asked["pipelines"][0]
    run: Callable[[Path, Mapping[str, Any]], Mapping[str, str]] = lambda folder, tune: {  # noqa: E731
        **os.environ,
        RUN: str(folder.resolve()),
        "WHYIDLE_TUNING": json.dumps({**spec, "tune": dict(tune)}),
    }
    return TuneJob(
        asked,
        f"{asked['scenario']} · {asked['net']}",
        new_folder(f"tune-{asked['scenario']}"),
        # -P: what lies in the user's working folder must not stand in for a module of ours.
        Launch(
            [sys.executable, "-P", "-m", MODULE],
            run,
            _mark,
            budget_s=budget_s,
            description={"trial": spec, "command": None},
        ),
        asked["scenario"],
        tuple(asked["pipelines"][1:]),
        tuple(asked["notices"]),
    )


def _mark(folder: Path) -> str:
    return f"{RUN}={folder.resolve()}"
