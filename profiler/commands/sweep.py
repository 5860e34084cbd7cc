"""The runs of a scenario's experiment: one cell for each of its variants."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells.axes import place as in_words
from ..capture.cpu_budget import cpu_budget
from ..errors import MissingExtra, WhyidleError
from ..matrix.cells import Cells, Place
from ..matrix.matrix import Budget, Trial, clock, new_folder
from ..matrix.trial import Target, TrialServer
from ..terminal.comparison_progress import Progress
from ..terminal.console import console
from .options import require_folder
from .sweep_asked import beyond_cpus, require_used

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Asked, Scenario, ScenarioData
    from whyidle.scenarios.variant import Variant

TARGET = Target("whyidle.scenarios.trial", "run_trial")


class Sweep(Cells["Variant"]):
    """The cells of one comparison and what has become of them so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        begun = clock()
        from whyidle.pipelines.registry import unavailable, unfit
        from whyidle.scenarios.registry import is_file, scenario
        from whyidle.scenarios.variant import AXES, plain

        # Checked here, before the first run: a wrong device, net, loader or folder is one message.
        chosen = scenario(arguments.scenario)
        # Not before the scenario, which says it where there is no torch.
        from whyidle.scenarios.ranks import unmet

        self._named = str(Path(arguments.scenario).resolve()) if is_file(arguments.scenario) else chosen.name
        experiment = chosen.experiment(arguments.experiment)
        devices = described(arguments.device)
        limit = arguments.limit or (None if arguments.full else experiment.limit)
        sources = Sources(arguments, chosen, limit)
        nets = chosen.nets_for(devices[0]["kind"], arguments.net)
        for net in arguments.net or ():
            _check_profiles(chosen, devices, net)
        first = sources.data(nets[0])
        asked = _asked(arguments, devices, loaders(arguments.pipelines, first))
        self._first = frozenset(arguments.first or ())
        # What comes first is on top of the table as well.
        plainly = dict.fromkeys(plain(each) for each in experiment.variants(asked))
        variants = sorted(plainly, key=lambda each: each.pipeline not in self._first)
        if strange := self._first - {each.pipeline for each in variants}:
            raise WhyidleError(f"--first {min(strange)} is none of the loaders compared. Add it to --pipelines.")
        require_used(asked, variants, experiment.name, chosen.name)
        for net in dict.fromkeys(each.net for each in variants):
            _check_profiles(chosen, devices, net)
            sources.data(net)
        self._varying = [name for name in AXES if len({getattr(each, name) for each in variants}) > 1]
        super().__init__(new_folder(arguments.out, chosen.name), variants)
        require_folder(arguments.json, self.folder)
        self.notices = sources.notices
        if arguments.budget is not None:
            self.budget = Budget(arguments.budget, begun)
        self._arguments = arguments
        self._sources = sources
        self._repeats = arguments.repeats or experiment.repeats
        self._devices = {device["name"]: device for device in devices}
        self.setting = {
            "scenario": chosen.name,
            "experiment": experiment.name,
            "question": experiment.question,
            "net": ", ".join(dict.fromkeys(each.net for each in variants)),
            "device": _together(devices),
            "cpu_budget": cpu_budget().budget,
            "workers": _alike(each.workers for each in variants),
            "stop": {
                name: number
                for name in ("epochs", "iterations")
                if (number := _alike(getattr(each, name) for each in variants)) is not None
            },
            "repeats": self._repeats,
            "augment": _alike(each.augment for each in variants),
            "dataset": sources.described(variants[0].net),
            "notices": self.notices,
        }
        several = {net: sources.described(net) for net in dict.fromkeys(each.net for each in variants)}
        if any(told != self.setting["dataset"] for told in several.values()):
            self.setting["datasets"] = several
        never = [why for key in self.keys if (why := unmet(key) or sources.too_few(key))]
        if len(never) == len(self.keys):
            raise WhyidleError(f"nothing could be trained: {'; '.join(dict.fromkeys(never))}.")
        for key in self.keys:
            # What the data do not fill an emulated device may have no memory for: that is told first.
            if why := unmet(key) or (None if key.device.startswith("emulated:") else sources.too_few(key)):
                self.status[key] = ("skipped", why)
                continue
            if key.feed == "synthetic":
                continue
            if (why := unavailable(key.pipeline) or sources.missing(key.net, key.store)) or (
                why := unfit(key.pipeline, sources.data(key.net, key.store))
            ):
                self.status[key] = ("skipped", why)

    def run(self) -> bool:
        """Run every cell, round by round. True when Ctrl-C cut it short; what was measured is kept."""
        target = console(stderr=True)
        for notice in self.notices:
            target.print(f"data: {notice}", soft_wrap=True, markup=False)
        for notice in beyond_cpus(self._arguments, cpu_budget().budget):
            target.print(f"CPUs: {notice}", soft_wrap=True, markup=False)
        shown = Progress(target, self, len(self.pending) * self._repeats, self._arguments.no_live)
        return self.measure(lambda: TrialServer(TARGET), self._repeats, self._arguments.seed, shown, self._is_first)

    def _is_first(self, key: Variant) -> bool:
        return key.pipeline in self._first

    def place(self, key: Variant) -> Place:
        from whyidle.scenarios.variant import axes

        return Place(key.pipeline, key.batch_size, axes(key))

    def title(self, key: Variant) -> str:
        return ", ".join(dict.fromkeys([*self._words(key), key.pipeline, f"batch {key.batch_size}"]))

    def _name(self, key: Variant) -> str:
        return re.sub(r"[^\w.+-]+", "-", "-".join([*self._words(key), key.pipeline, f"b{key.batch_size}"]))

    def _words(self, key: Variant) -> list[str]:
        """Where it stands on the axes in which cells differ."""
        return [said for name in self._varying if (said := in_words(name, getattr(key, name)))]

    def _trial(self, key: Variant, number: int, folder: Path) -> Trial:
        from whyidle.scenarios.trial import TrialSpec

        arguments = self._arguments
        spec = TrialSpec.of(
            key,
            scenario=self._named,
            data=str(self._sources.folder(key.net).resolve()),
            folder=str(folder.resolve()),
            prefetch=arguments.prefetch,
            limit=self._sources.limit,
            activity_windows=arguments.activity_windows,
            # Runs that are judged differ in what they draw: of equal ones the second would tell nothing of accuracy.
            seed=arguments.seed + (0 if key.evaluate == "never" else number),
        )
        return Trial(
            spec,
            {
                "trial": asdict(spec),
                "device": self._devices[key.device],
                "dataset": self._sources.described(key.net, None if key.feed == "synthetic" else key.store),
                "notices": self.notices,
            },
        )


class Sources:
    """The data of a comparison: where those of each net lie, opened once to be checked and described."""

    def __init__(self, arguments: argparse.Namespace, chosen: Scenario, limit: int | None) -> None:
        self._asked: Path | None = arguments.data
        self._scenario = chosen
        self._store = (arguments.store or [chosen.stores[0]])[0]
        self.limit = limit
        self._folders: dict[str, Path] = {}
        self._opened: dict[tuple[str, str], ScenarioData] = {}
        self._missing: dict[tuple[str, str], str] = {}
        for store in arguments.store or ():
            if store not in chosen.stores:
                raise WhyidleError(f"scenario {chosen.name} has no store {store!r}. It has {', '.join(chosen.stores)}.")

    def folder(self, net: str) -> Path:
        if net not in self._folders:
            say = console(stderr=True)
            found = self._asked or self._scenario.find_data(net, lambda text: say.print(text, markup=False))
            self._folders[net] = found
        return self._folders[net]

    def data(self, net: str, store: str | None = None) -> ScenarioData:
        """
        Raises:
            DataError: no usable data there.
        """
        from whyidle.scenarios.registry import require_data
        from whyidle.scenarios.scenario import DataRequest

        store = store or self._store
        if (net, store) not in self._opened:
            request = DataRequest(folder=self.folder(net), net=net, store=store, limit=self.limit)
            opened = self._scenario.open_data(request)
            require_data(opened, self._scenario)
            self._opened[net, store] = opened
        return self._opened[net, store]

    def missing(self, net: str, store: str) -> str | None:
        """What this store needs and is not installed. A store that is made of others is made here, before any run."""
        if (net, store) not in self._missing:
            try:
                self.data(net, store)
                self._missing[net, store] = ""
            except MissingExtra as error:
                self._missing[net, store] = str(error)
        return self._missing[net, store] or None

    def too_few(self, key: Variant) -> str | None:
        """Why a training cannot fill one batch; `None` if it can, or if what its store needs is not installed."""
        from whyidle.pipelines.order import count
        from whyidle.pipelines.protocol import Settings

        # A store of samples holds as many as another; what is served from memory has none of its own.
        store = self._store if key.feed == "synthetic" else key.store
        if self.missing(key.net, store):
            return None
        samples = len(self.data(key.net, store))
        if count(samples, Settings(key.batch_size, 0, 1, ranks=key.ranks)):
            return None
        ranks = f" for each of {key.ranks} ranks" if key.ranks > 1 else ""
        return (
            f"{samples} samples do not fill one batch of {key.batch_size}{ranks}; use a smaller --batch-sizes, "
            "a larger --limit, or more data"
        )

    def described(self, net: str, store: str | None = None) -> dict[str, Any]:
        return {"folder": str(self.folder(net)), **self.data(net, store).describe()}

    @property
    def notices(self) -> list[str]:
        return list(dict.fromkeys(text for data in self._opened.values() for text in data.notices()))


def described(names: Sequence[str]) -> list[dict[str, Any]]:
    """The devices asked for, as run.json tells them.

    Raises:
        WhyidleError: there is no such device here, or measured and emulated ones were named together.
    """
    from ..devices.choose import describe

    devices = [describe(name) for name in names]
    if len({device["kind"] for device in devices}) > 1:
        raise WhyidleError(
            f"--device {','.join(names)}: devices of different kinds, or measured and emulated ones, do not belong in "
            "one table. Compare them one after the other."
        )
    return list({device["name"]: device for device in devices}.values())


def loaders(asked: Sequence[str] | None, data: ScenarioData) -> tuple[str, ...]:
    """Those asked for, else all that can run here and take these data.

    Raises:
        WhyidleError: one of them is none.
    """
    from whyidle.pipelines.registry import NAMES, unavailable, unfit

    for each in asked or ():
        if each not in NAMES:
            raise WhyidleError(f"unknown loader {each!r}. There are {', '.join(NAMES)}.")
    if asked:
        return tuple(asked)
    # What only wants to be installed stays in the table, with the reason why it was skipped.
    return tuple(n for n in NAMES if not unfit(n, data) and not (n == "dali-gpu" and unavailable(n)))


def _check_profiles(chosen: Scenario, devices: Sequence[dict[str, Any]], net: str) -> None:
    """Every emulated device must know the net's step times."""
    from whyidle.scenarios.scenario import step_times

    from ..devices.choose import choose

    for device in devices:
        if device["kind"] == "emulated":
            step_times(choose(device["name"])).net(chosen.profile_net(net))


def _asked(arguments: argparse.Namespace, devices: Sequence[dict[str, Any]], pipelines: Sequence[str]) -> Asked:
    from whyidle.scenarios.scenario import Asked

    return Asked(
        kind=devices[0]["kind"],
        devices=tuple(device["name"] for device in devices),
        pipelines=tuple(pipelines),
        cpus=max(1, int(cpu_budget().budget)),
        full=arguments.full,
        workers=arguments.workers,
        nets=_tuple(arguments.net),
        batch_sizes=_tuple(arguments.batch_sizes),
        feeds=_tuple(arguments.feed),
        stores=_tuple(arguments.store),
        ranks=_tuple(arguments.ranks),
        interconnects=_tuple(arguments.interconnect),
        threads=_tuple(arguments.threads),
        augment=False if arguments.no_augment else None,
        epochs=arguments.epochs,
        iterations=arguments.iterations,
        pipelines_asked=arguments.pipelines is not None,
    )


def _tuple(given: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if given is None else tuple(given)


def _alike(values: Any) -> Any:
    """The value all of them have; `None` where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _together(devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One device as it is; several as what they have in common."""
    if len(devices) == 1:
        return devices[0]
    return {
        "kind": devices[0]["kind"],
        "name": ", ".join(device["name"] for device in devices),
        "title": ", ".join(device["title"] for device in devices),
        "count": 1,
        "each": list(devices),
    }
