"""The runs of a comparison of loaders: every loader at every batch size."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_dir

from ..capture.cpu_budget import cpu_budget
from ..errors import StallscopeError
from ..tune.trial import Target, TrialServer
from .console import console
from .options import require_folder
from .progress import Progress
from .sweep_cells import Cells, Key
from .sweep_rounds import Trial, new_folder

if TYPE_CHECKING:
    from stallscope.scenarios.scenario import Scenario
    from stallscope.scenarios.trial import TrialSpec

TARGET = Target("stallscope.scenarios.trial", "run_trial")
COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own images."""


class Sweep(Cells):
    """The cells of one comparison and what has become of them so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from stallscope.pipelines.registry import NAMES, unavailable
        from stallscope.scenarios import ssd
        from stallscope.scenarios.voc.check import summary

        # Checked here, before the first run: a wrong device, net, loader or folder is one message.
        chosen, device, net = checked(arguments, arguments.scenario)
        data: Path = arguments.data or composed(chosen.name)
        dataset = ssd.open_data(data, net, not arguments.no_augment, arguments.limit)
        loaders = arguments.pipelines or [n for n in NAMES if n != "dali-gpu" or device["kind"] == "cuda"]
        sizes = arguments.batch_sizes or chosen.batch_sizes
        super().__init__(
            new_folder(arguments.out, chosen.name), [(loader, size) for loader in loaders for size in sizes]
        )
        require_folder(arguments.json, self.folder)
        budget = cpu_budget().budget
        self.notices = summary(dataset.findings)
        self._arguments = arguments
        self._net = net
        self._data = data
        workers = arguments.workers or max(1, int(budget))
        stop = {"iterations": arguments.iterations} if arguments.iterations else {"epochs": arguments.epochs or 2}
        self.setting = {
            "scenario": chosen.name,
            "net": net,
            "device": device,
            "cpu_budget": budget,
            "workers": workers,
            "stop": stop,
            "repeats": arguments.repeats,
            "augment": not arguments.no_augment,
            "dataset": {"folder": str(data), **dataset.describe()},
        }
        for key in self.keys:
            if missing := unavailable(key[0]):
                self.status[key] = ("skipped", missing)

    def run(self) -> bool:
        """Run every cell, round by round. True when Ctrl-C cut it short; what was measured is kept."""
        target = console(stderr=True)
        for notice in self.notices:
            target.print(f"data: {notice}", soft_wrap=True, markup=False)
        repeats = self._arguments.repeats
        shown = Progress(target, self, len(self.pending) * repeats, self._arguments.no_live)
        return self.measure(lambda: TrialServer(TARGET), repeats, self._arguments.seed, shown)

    def _trial(self, key: Key, number: int, folder: Path) -> Trial:
        spec = self._spec(key, folder)
        return Trial(spec, {"trial": asdict(spec), "device": self.setting["device"], "notices": self.notices})

    def _spec(self, key: Key, folder: Path) -> TrialSpec:
        from stallscope.scenarios.trial import TrialSpec

        arguments = self._arguments
        return TrialSpec(
            scenario=arguments.scenario,
            net=self._net,
            pipeline=key[0],
            batch_size=key[1],
            device=self.setting["device"]["name"],
            data=str(self._data.resolve()),
            folder=str(folder.resolve()),
            epochs=self.setting["stop"].get("epochs"),
            iterations=self.setting["stop"].get("iterations"),
            workers=self.setting["workers"],
            prefetch=arguments.prefetch,
            augment=not arguments.no_augment,
            limit=arguments.limit,
            activity_windows=arguments.activity_windows,
            seed=arguments.seed,
        )


def checked(arguments: argparse.Namespace, name: str) -> tuple[Scenario, dict[str, Any], str]:
    """A scenario, its device as described and its net.

    Raises:
        StallscopeError: there is no such scenario, device, net or loader.
    """
    from stallscope.pipelines.registry import NAMES
    from stallscope.scenarios import ssd
    from stallscope.scenarios.scenario import scenario

    from ..devices.choose import choose, describe

    chosen = scenario(name)
    device = describe(arguments.device)
    net = chosen.net_for(device["kind"], arguments.net)
    if device["kind"] == "emulated":
        ssd.step_time(choose(arguments.device), net)
    for each in arguments.pipelines or ():
        if each not in NAMES:
            raise StallscopeError(f"unknown loader {each!r}. There are {', '.join(NAMES)}.")
    return chosen, device, net


def composed(scenario: str) -> Path:
    """A set of images in the user's cache; composed the first time, which takes some seconds."""
    from stallscope.scenarios.voc.generate import compose

    folder = Path(user_cache_dir("stallscope")) / "data" / f"{scenario}-{COMPOSED_IMAGES}"
    if not folder.exists():
        console(stderr=True).print(f"No --data: composing {COMPOSED_IMAGES} images into {folder}", markup=False)
    compose(folder, COMPOSED_IMAGES, 0)
    return folder
