"""A scenario's experiment as a matrix, a cell for each of its variants; what can be wrong is found before any run.

What is asked for must be used: an experiment that cannot vary something says so before the first run.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells.comparison import place
from ..capture.limits import cpu_budget
from ..errors import MissingExtra, WhyidleError
from .ceilings import ceilings
from .matrix import Budget, Matrix, PlannedCell, free_folder, pending

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import ExperimentRequest, Scenario, ScenarioData
    from whyidle.scenarios.variant import Variant

TARGET = "whyidle.scenarios.trial:run_trial"
_OPTIONS = {
    "--device": ("devices", "device"),
    "--net": ("nets", "net"),
    "--pipelines": ("pipelines", "pipeline"),
    "--batch-sizes": ("batch_sizes", "batch_size"),
    "--feed": ("feeds", "feed"),
    "--store": ("stores", "store"),
    "--ranks": ("ranks", "ranks"),
    "--interconnect": ("interconnects", "interconnect"),
    "--threads": ("threads", "threads"),
    "--workers": ("workers", "workers"),
    "--epochs": ("epochs", "epochs"),
    "--iterations": ("iterations", "iterations"),
}
"""Option → what it is called in `ExperimentRequest`, which has one value or several, and in a `Variant`."""
_OF_LOADING = {"pipeline", "store", "workers"}
"""What a batch that is served from memory has none of."""


class Sources:
    """The data of a comparison: where those of each net lie, opened once to be checked and described."""

    def __init__(
        self,
        chosen: Scenario,
        data: Path | None,
        stores: Sequence[str] | None,
        limit: int | None,
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
            data: the folder of the data of all nets; `None`: the scenario's own.
            stores: those that are asked for; `None`: the scenario's first.
            limit: so many samples only.
            say: told of data that are made or fetched.

        Raises:
            WhyidleError: the scenario has no such store as is asked for.
        """
        self.scenario = chosen
        self.limit = limit
        self._store = (stores or chosen.stores)[0]
        # Each is found and opened once.
        self.folder = cache(lambda net: data or chosen.find_data(net, say))
        self._opened: dict[tuple[str, str], ScenarioData] = {}
        for store in stores or ():
            if store not in chosen.stores:
                raise WhyidleError(f"scenario {chosen.name} has no store {store!r}. It has {', '.join(chosen.stores)}.")

    def loading(self, net: str, store: str, **how: Any) -> ScenarioData:
        """Open them as a training does, to be made into batches; `how`: with `augment` or without.

        Raises:
            DataError: no usable data there.
        """
        from whyidle.scenarios.scenario import DataRequest

        return self.scenario.open_data(
            DataRequest(folder=self.folder(net), net=net, store=store, limit=self.limit, **how)
        )

    def data(self, net: str, store: str | None = None) -> ScenarioData:
        """Open them once, and check them.

        Raises:
            DataError: no usable data there.
        """
        from whyidle.scenarios.registry import require_data

        key = net, store or self._store
        if key not in self._opened:
            opened = self.loading(*key)
            require_data(opened, self.scenario)
            self._opened[key] = opened
        return self._opened[key]

    def missing(self, net: str, store: str) -> str | None:
        """Name what this store needs and is not installed; `None` where all is. A store that is made of others is made
        here, before any run."""
        try:
            self.data(net, store)
        except MissingExtra as error:
            return str(error)
        return None

    def too_few(self, key: Variant) -> str | None:
        """Say why a training cannot fill one batch; `None` if it can, or if what its store needs is not installed."""
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


def plan(asked: Namespace, say: Callable[[str], None]) -> tuple[Matrix, list[Variant]]:
    """Make the matrix of an experiment, and the variant of each of its cells, in the same order. Nothing has run yet.

    Args:
        asked: the options of `whyidle compare SCENARIO`; `None` leaves a choice to the experiment, or to the scenario.
        say: told of data that are made or fetched for it.

    Raises:
        WhyidleError: a wrong device, net, loader or folder, or an option that the experiment has no use for.
        DataError: no usable data.
    """
    budget = None if asked.budget is None else Budget(asked.budget)
    from whyidle.scenarios.registry import scenario

    chosen = scenario(asked.what[0])
    # What these import is known to be installed only now.
    from whyidle.scenarios.scenario import ExperimentRequest
    from whyidle.scenarios.variant import plain

    experiment = chosen.experiment(asked.experiment)
    devices = described(asked.device)
    limit = asked.limit or (None if asked.as_published else experiment.limit)
    sources = Sources(chosen, asked.data, asked.store, limit, say)
    nets = chosen.nets_for(devices[0]["kind"], asked.net)
    for net in asked.net or ():
        check_profiles(chosen, devices, net)
    named = {field: getattr(asked, option[2:].replace("-", "_")) for option, (field, _) in _OPTIONS.items()}
    named["devices"] = tuple(device["name"] for device in devices)
    named["pipelines"] = loaders(asked.pipelines, sources.data(nets[0]))
    cores = max(1, int(cpu_budget().budget))
    request = ExperimentRequest(
        kind=devices[0]["kind"],
        cpus=cores,
        full=asked.as_published,
        augment=False if asked.no_augment else None,
        pipelines_asked=asked.pipelines is not None,
        **named,
    )
    # Loaders that run first are on top of the table as well.
    first = asked.first or ()
    variants = sorted(dict.fromkeys(map(plain, experiment.variants(request))), key=lambda v: v.pipeline not in first)
    if strange := set(first) - {each.pipeline for each in variants}:
        raise WhyidleError(f"--first {min(strange)} is not among the loaders compared. Add it to --pipelines.")
    require_used(request, variants, experiment.name, chosen.name)
    for net in dict.fromkeys(each.net for each in variants):
        check_profiles(chosen, devices, net)
        sources.data(net)
    folder = free_folder(asked.out, chosen.name)
    stops = {name: _alike(getattr(each, name) for each in variants) for name in ("epochs", "iterations")}
    datasets = {net: sources.described(net) for net in dict.fromkeys(each.net for each in variants)}
    dataset, device = datasets[variants[0].net], devices[0]
    if len(devices) > 1:
        # What they have in common.
        joined = {key: ", ".join(each[key] for each in devices) for key in ("name", "title")}
        device = {"kind": device["kind"], **joined, "count": 1, "each": list(devices)}
    setting = {
        "scenario": chosen.name,
        "experiment": experiment.name,
        "question": experiment.question,
        "net": ", ".join(datasets),
        "device": device,
        "cpu_budget": cpu_budget().budget,
        "workers": _alike(each.workers for each in variants),
        "stop": {name: number for name, number in stops.items() if number is not None},
        "repeats": asked.repeats or experiment.repeats,
        "augment": _alike(each.augment for each in variants),
        "dataset": dataset,
        "notices": sources.notices,
        **({"datasets": datasets} if any(told != dataset for told in datasets.values()) else {}),
    }
    compared = {each.pipeline for each in variants if each.feed != "synthetic"}
    wanted = len(compared) > 1 if asked.roofline is None else asked.roofline
    matrix = Matrix(
        folder,
        _cells(asked, variants, devices, sources),
        TARGET,
        setting,
        repeats=setting["repeats"],
        seed=asked.seed,
        budget=budget,
        before_round=ceilings(variants, sources, cores, asked.seed) if wanted and compared else None,
    )
    return matrix, variants


def require_used(asked: ExperimentRequest, variants: Sequence[Variant], experiment: str, scenario: str) -> None:
    """Check that the command names nothing without use.

    Args:
        variants: those that the experiment made of it, each told in one way only (`plain`).

    Raises:
        WhyidleError: the command names something that none of them has.
    """

    def refuse(what: str, more: str = "") -> None:
        raise WhyidleError(
            f"experiment {experiment} of {scenario} does not use {what}: it changes none of its trainings.{more} "
            "Leave it out or choose another --experiment."
        )

    loading = [each for each in variants if each.feed != "synthetic"]
    for option, (field, name) in _OPTIONS.items():
        among = loading if name in _OF_LOADING else variants
        there = {getattr(each, name) for each in among}
        if not among or (name == "pipeline" and not asked.pipelines_asked):
            continue
        values = getattr(asked, field)
        for value in values if isinstance(values, tuple) else (values,):
            if value is not None and value not in there:
                several = " Gradients travel only between several --ranks." if name == "interconnect" else ""
                refuse(f"{option} {value}", several)
    augmented = (any(p.augment for p in each.phases) if each.phases else each.augment for each in variants)
    if asked.augment is False and any(augmented):
        refuse("--no-augment")


def beyond_cpus(threads: Sequence[int] | None, workers: int | None, budget: float) -> list[str]:
    """Name options that ask for more than there are CPUs, which is allowed but no faster."""
    asked = {"--threads": max(threads or (0,)), "--workers": workers or 0}
    return [
        f"{option} {number} is more than the {budget:g} CPUs of this job, so they take turns"
        for option, number in asked.items()
        if number > budget
    ]


def described(names: Sequence[str]) -> list[dict[str, Any]]:
    """Describe the devices asked for, as run.json tells them.

    Raises:
        WhyidleError: there is no such device here, or measured and emulated ones were named together.
    """
    from ..devices.choose import describe

    devices = [describe(name) for name in names]
    if len({device["kind"] for device in devices}) > 1:
        raise WhyidleError(
            f"--device {','.join(names)}: one table cannot hold devices of different kinds, nor measured and emulated "
            "ones. Compare them one after the other."
        )
    return list({device["name"]: device for device in devices}.values())


def loaders(asked: Sequence[str] | None, data: ScenarioData) -> tuple[str, ...]:
    """Name those asked for, else all that can run here and take these data.

    Raises:
        WhyidleError: one of them is none.
    """
    from whyidle.pipelines.registry import NAMES, unavailable, unfit

    for each in asked or ():
        if each not in NAMES:
            raise WhyidleError(f"unknown loader {each!r}. Choose from {', '.join(NAMES)}.")
    if asked:
        return tuple(asked)
    # What only wants to be installed stays in the table, with the reason why it was skipped.
    return tuple(n for n in NAMES if not unfit(n, data) and not (n == "dali-gpu" and unavailable(n)))


def check_profiles(chosen: Scenario, devices: Sequence[Mapping[str, Any]], net: str) -> None:
    """Refuse an emulated device that does not know the net's step times."""
    from whyidle.scenarios.scenario import step_times

    from ..devices.choose import choose

    for device in devices:
        if device["kind"] == "emulated":
            step_times(choose(device["name"])).net(chosen.profile_net(net))


def _cells(
    asked: Namespace, variants: Sequence[Variant], devices: Sequence[dict[str, Any]], sources: Sources
) -> list[PlannedCell]:
    """Plan a cell for each variant.

    Raises:
        WhyidleError: none of them could be trained.
    """
    from whyidle.pipelines.registry import unavailable, unfit
    from whyidle.scenarios.ranks import unmet
    from whyidle.scenarios.registry import is_file
    from whyidle.scenarios.variant import AXES, axes

    named = str(Path(asked.what[0]).resolve()) if is_file(asked.what[0]) else sources.scenario.name
    described_as = {device["name"]: device for device in devices}
    notices = sources.notices
    never = [said for each in variants if (said := unmet(each) or sources.too_few(each))]
    if len(never) == len(variants):
        raise WhyidleError(f"no training can run: {'; '.join(dict.fromkeys(never))}.")
    varying = [name for name in AXES if len({getattr(each, name) for each in variants}) > 1]

    def trial(variant: Variant, number: int, folder: Path) -> tuple[Any, dict[str, Any]]:
        from whyidle.scenarios.trial import TrialSpec

        spec = TrialSpec.of(
            variant,
            scenario=named,
            data=str(sources.folder(variant.net).resolve()),
            folder=str(folder.resolve()),
            prefetch=asked.prefetch,
            limit=sources.limit,
            # Runs that are judged differ in what they draw: of equal ones the second would tell nothing of accuracy.
            seed=asked.seed + (0 if variant.evaluate == "never" else number),
        )
        return spec, {
            "trial": asdict(spec),
            "device": described_as[variant.device],
            "dataset": sources.described(variant.net, None if variant.feed == "synthetic" else variant.store),
            "notices": notices,
        }

    def why_not(variant: Variant) -> str | None:
        # What the data do not fill an emulated device may have no memory for: that is told first.
        few = None if variant.device.startswith("emulated:") else sources.too_few(variant)
        if (said := unmet(variant) or few) or variant.feed == "synthetic":
            return said
        return (
            unavailable(variant.pipeline)
            or sources.missing(variant.net, variant.store)
            or unfit(variant.pipeline, sources.data(variant.net, variant.store))
        )

    def planned(variant: Variant) -> PlannedCell:
        # Where it stands on the axes in which cells differ.
        words = [said for name in varying if (said := place(name, getattr(variant, name)))]
        size = variant.batch_size
        return PlannedCell(
            name=re.sub(r"[^\w.+-]+", "-", "-".join([*words, variant.pipeline, f"b{size}"])),
            title=", ".join(dict.fromkeys([*words, variant.pipeline, f"batch {size}"])),
            cell=pending(variant.pipeline, size, why_not(variant), axes(variant)),
            trial=partial(trial, variant),
            first=variant.pipeline in (asked.first or ()),
        )

    return [planned(variant) for variant in variants]


def _alike(values: Iterable[Any]) -> Any:
    """Give the value all of them have; `None` where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
