"""A scenario's experiment as a matrix, a cell for each of its variants; what can be wrong is found before any run.

What is asked for must be used: an experiment that cannot vary something says so before the first run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells.comparison import place
from ..capture.cpu_budget import cpu_budget
from ..errors import WhyidleError
from .ceilings import Ceilings
from .matrix import Budget, Matrix, PlannedCell, free_folder
from .sources import Sources
from .trial import TrialTarget

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Experiment, ExperimentRequest, Scenario, ScenarioData
    from whyidle.scenarios.variant import Feed, Variant


_SEVERAL = {
    "--device": ("devices", "device"),
    "--net": ("nets", "net"),
    "--pipelines": ("pipelines", "pipeline"),
    "--batch-sizes": ("batch_sizes", "batch_size"),
    "--feed": ("feeds", "feed"),
    "--store": ("stores", "store"),
    "--ranks": ("ranks", "ranks"),
    "--interconnect": ("interconnects", "interconnect"),
    "--threads": ("threads", "threads"),
}
"""Option → what it is called in `ExperimentRequest` and in a `Variant`."""
_ONE = {"--workers": "workers", "--epochs": "epochs", "--iterations": "iterations"}
_OF_LOADING = {"pipeline", "store", "workers"}
"""What a batch that is served from memory has none of."""


def require_used(asked: ExperimentRequest, variants: Sequence[Variant], experiment: str, scenario: str) -> None:
    """
    Args:
        variants: those that the experiment made of it, each told in one way only (`plain`).

    Raises:
        WhyidleError: the command names something that none of them has.
    """
    loading = [each for each in variants if each.feed != "synthetic"]
    wanted: list[tuple[str, str, Iterable[Any]]] = [
        (option, name, getattr(asked, field) or ()) for option, (field, name) in _SEVERAL.items()
    ]
    wanted += [(option, name, (getattr(asked, name),)) for option, name in _ONE.items()]
    for option, name, values in wanted:
        if name == "pipeline" and not asked.pipelines_asked:
            continue
        among = loading if name in _OF_LOADING else variants
        there = {getattr(each, name) for each in among}
        for value in values:
            if value is None or value in there or not among:
                continue
            several = " Gradients travel only between several --ranks." if name == "interconnect" else ""
            _refuse(f"{option} {value}", experiment, scenario, several)
    if asked.augment is False and any(_augments(each) for each in variants):
        _refuse("--no-augment", experiment, scenario)


def beyond_cpus(request: Request, budget: float) -> list[str]:
    """Name options that ask for more than there are CPUs, which is allowed but no faster."""
    asked = {"--threads": max(request.threads or (0,)), "--workers": request.workers or 0}
    return [
        f"{option} {number} is more than the {budget:g} CPUs of this job, so they take turns"
        for option, number in asked.items()
        if number > budget
    ]


def _augments(variant: Variant) -> bool:
    return any(phase.augment for phase in variant.phases) if variant.phases else variant.augment


def _refuse(what: str, experiment: str, scenario: str, more: str = "") -> None:
    raise WhyidleError(
        f"experiment {experiment} of {scenario} does not use {what}: it changes none of its trainings.{more} "
        "Leave it out or choose another --experiment."
    )


TARGET = TrialTarget("whyidle.scenarios.trial", "run_trial")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be compared, by the names of the options of `whyidle compare`; `None` leaves a choice to the
    experiment, or to the scenario."""

    scenario: str
    """Its name, or the path of the Python file that defines it."""
    experiment: str | None = None
    as_published: bool = False
    data: Path | None = None
    device: tuple[str, ...] = ("auto",)
    net: tuple[str, ...] | None = None
    pipelines: tuple[str, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    feed: tuple[Feed, ...] | None = None
    store: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    interconnect: tuple[str, ...] | None = None
    threads: tuple[int, ...] | None = None
    epochs: int | None = None
    iterations: int | None = None
    repeats: int | None = None
    budget: float | None = None
    """Seconds that all runs may take together; `None`: as long as they take."""
    first: tuple[str, ...] | None = None
    """Loaders whose rounds all come before those of others."""
    workers: int | None = None
    prefetch: int = 2
    limit: int | None = None
    no_augment: bool = False
    seed: int = 0
    roofline: bool | None = None
    """Whether it is measured how fast the samples could be made; `None`: where loaders are compared."""
    out: Path | None = None


def plan(request: Request, say: Callable[[str], None]) -> tuple[Matrix, list[Variant]]:
    """The matrix of an experiment, and the variant of each of its cells, in the same order. Nothing has run yet.

    Args:
        say: told of data that are made or fetched for it.

    Raises:
        WhyidleError: a wrong device, net, loader or folder, or an option that the experiment has no use for.
        DataError: no usable data.
    """
    budget = None if request.budget is None else Budget(request.budget)
    from whyidle.scenarios.registry import scenario

    chosen = scenario(request.scenario)
    experiment = chosen.experiment(request.experiment)
    devices = described(request.device)
    limit = request.limit or (None if request.as_published else experiment.limit)
    sources = Sources(chosen, request, limit, say)
    nets = chosen.nets_for(devices[0]["kind"], request.net)
    for net in request.net or ():
        _check_profiles(chosen, devices, net)
    asked = _asked(request, devices, loaders(request.pipelines, sources.data(nets[0])))
    variants = _variants(request, asked, chosen, experiment)
    for net in dict.fromkeys(each.net for each in variants):
        _check_profiles(chosen, devices, net)
        sources.data(net)
    folder = free_folder(request.out, chosen.name)
    repeats = request.repeats or experiment.repeats
    setting = _setting(experiment, variants, devices, sources, repeats)
    cells = _cells(request, variants, devices, sources)
    before_round = _ceilings(request, variants, sources)
    matrix = Matrix(
        folder, cells, TARGET, setting, repeats=repeats, seed=request.seed, budget=budget, before_round=before_round
    )
    return matrix, variants


def _ceilings(request: Request, variants: Sequence[Variant], sources: Sources) -> Ceilings | None:
    """What measures how fast the samples could be made: where loaders are compared, unless it was said otherwise."""
    loaders = {each.pipeline for each in variants if each.feed != "synthetic"}
    wanted = len(loaders) > 1 if request.roofline is None else request.roofline
    if not (wanted and loaders):
        return None
    return Ceilings(variants, sources, max(1, int(cpu_budget().budget)), request.seed)


def described(names: Sequence[str]) -> list[dict[str, Any]]:
    """The devices asked for, as run.json tells them.

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
    """Those asked for, else all that can run here and take these data.

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


def _check_profiles(chosen: Scenario, devices: Sequence[Mapping[str, Any]], net: str) -> None:
    """Every emulated device must know the net's step times."""
    from whyidle.scenarios.scenario import step_times

    from ..devices.choose import choose

    for device in devices:
        if device["kind"] == "emulated":
            step_times(choose(device["name"])).net(chosen.profile_net(net))


def _asked(request: Request, devices: Sequence[Mapping[str, Any]], pipelines: tuple[str, ...]) -> ExperimentRequest:
    from whyidle.scenarios.scenario import ExperimentRequest

    return ExperimentRequest(
        kind=devices[0]["kind"],
        devices=tuple(device["name"] for device in devices),
        pipelines=pipelines,
        cpus=max(1, int(cpu_budget().budget)),
        full=request.as_published,
        workers=request.workers,
        nets=request.net,
        batch_sizes=request.batch_sizes,
        feeds=request.feed,
        stores=request.store,
        ranks=request.ranks,
        interconnects=request.interconnect,
        threads=request.threads,
        augment=False if request.no_augment else None,
        epochs=request.epochs,
        iterations=request.iterations,
        pipelines_asked=request.pipelines is not None,
    )


def _variants(request: Request, asked: ExperimentRequest, chosen: Scenario, experiment: Experiment) -> list[Variant]:
    """What the experiment makes of it; loaders that run first are on top of the table as well."""
    from whyidle.scenarios.variant import plain

    first = request.first or ()
    plainly = dict.fromkeys(plain(each) for each in experiment.variants(asked))
    variants = sorted(plainly, key=lambda each: each.pipeline not in first)
    if strange := set(first) - {each.pipeline for each in variants}:
        raise WhyidleError(f"--first {min(strange)} is not among the loaders compared. Add it to --pipelines.")
    require_used(asked, variants, experiment.name, chosen.name)
    return variants


def _setting(
    experiment: Experiment,
    variants: Sequence[Variant],
    devices: Sequence[dict[str, Any]],
    sources: Sources,
    repeats: int,
) -> dict[str, Any]:
    stops = {name: _alike(getattr(each, name) for each in variants) for name in ("epochs", "iterations")}
    datasets = {net: sources.described(net) for net in dict.fromkeys(each.net for each in variants)}
    dataset = datasets[variants[0].net]
    setting = {
        "scenario": sources.scenario.name,
        "experiment": experiment.name,
        "question": experiment.question,
        "net": ", ".join(datasets),
        "device": _together(devices),
        "cpu_budget": cpu_budget().budget,
        "workers": _alike(each.workers for each in variants),
        "stop": {name: number for name, number in stops.items() if number is not None},
        "repeats": repeats,
        "augment": _alike(each.augment for each in variants),
        "dataset": dataset,
        "notices": sources.notices,
    }
    return setting | ({"datasets": datasets} if any(told != dataset for told in datasets.values()) else {})


def _cells(
    request: Request, variants: Sequence[Variant], devices: Sequence[dict[str, Any]], sources: Sources
) -> list[PlannedCell]:
    """
    Raises:
        WhyidleError: none of them could be trained.
    """
    from whyidle.scenarios.registry import is_file
    from whyidle.scenarios.variant import AXES, axes

    named = str(Path(request.scenario).resolve()) if is_file(request.scenario) else sources.scenario.name
    described_as = {device["name"]: device for device in devices}
    notices = sources.notices
    unmet = _unmet(variants, sources)
    varying = [name for name in AXES if len({getattr(each, name) for each in variants}) > 1]

    def trial(variant: Variant, number: int, folder: Path) -> tuple[Any, dict[str, Any]]:
        from whyidle.scenarios.trial import TrialSpec

        spec = TrialSpec.of(
            variant,
            scenario=named,
            data=str(sources.folder(variant.net).resolve()),
            folder=str(folder.resolve()),
            prefetch=request.prefetch,
            limit=sources.limit,
            # Runs that are judged differ in what they draw: of equal ones the second would tell nothing of accuracy.
            seed=request.seed + (0 if variant.evaluate == "never" else number),
        )
        return spec, {
            "trial": asdict(spec),
            "device": described_as[variant.device],
            "dataset": sources.described(variant.net, None if variant.feed == "synthetic" else variant.store),
            "notices": notices,
        }

    def planned(variant: Variant, why: str | None) -> PlannedCell:
        # Where it stands on the axes in which cells differ.
        words = [said for name in varying if (said := place(name, getattr(variant, name)))]
        return PlannedCell(
            name=re.sub(r"[^\w.+-]+", "-", "-".join([*words, variant.pipeline, f"b{variant.batch_size}"])),
            title=", ".join(dict.fromkeys([*words, variant.pipeline, f"batch {variant.batch_size}"])),
            pipeline=variant.pipeline,
            batch_size=variant.batch_size,
            trial=partial(trial, variant),
            axes=axes(variant),
            unmet=why,
            first=variant.pipeline in (request.first or ()),
        )

    return [planned(variant, why) for variant, why in zip(variants, unmet, strict=True)]


def _unmet(variants: Sequence[Variant], sources: Sources) -> list[str | None]:
    """Of each, why it cannot be trained here; `None` if it can.

    Raises:
        WhyidleError: none of them can.
    """
    from whyidle.pipelines.registry import unavailable, unfit
    from whyidle.scenarios.ranks import unmet

    def why(variant: Variant) -> str | None:
        # What the data do not fill an emulated device may have no memory for: that is told first.
        few = None if variant.device.startswith("emulated:") else sources.too_few(variant)
        if (said := unmet(variant) or few) or variant.feed == "synthetic":
            return said
        return (
            unavailable(variant.pipeline)
            or sources.missing(variant.net, variant.store)
            or unfit(variant.pipeline, sources.data(variant.net, variant.store))
        )

    never = [said for each in variants if (said := unmet(each) or sources.too_few(each))]
    if len(never) == len(variants):
        raise WhyidleError(f"no training can run: {'; '.join(dict.fromkeys(never))}.")
    return [why(each) for each in variants]


def _alike(values: Iterable[Any]) -> Any:
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
