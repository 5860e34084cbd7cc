"""The machine's limits for the samples of a comparison, measured between its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..analyse.cells.studies import ROOFLINE
from ..capture.all_cores import AllCores
from ..errors import WhyidleError
from ..record.run import ImageDecoding

if TYPE_CHECKING:
    from whyidle.pipelines.protocol import Dataset, Settings
    from whyidle.scenarios.variant import Variant

    from .experiment import Sources

PLACE = ("net", "store", "augment")
"""Axes on which samples differ."""
DECODING_SECONDS = 0.3
"""Time for which files of a run are decoded, on one core and then on all."""


def unmeasured(place: Mapping[str, Any], cores: int) -> dict[str, Any]:
    """Begin what is told of the most that so many cores could do with one kind of samples, with no round measured yet.
    `place`: `net`, `store` and `augment` of the samples; what of these is `None` they do not have."""
    from whyidle.pipelines.ceilings import decoder, transformer

    return {"place": dict(place), "cores": cores, "decoder": decoder(), "transformer": transformer(), "parts": []}


def measure(told: dict[str, Any], data: Dataset, settings: Settings, device: str) -> None:
    """Measure one round of samples.

    Args:
        told: as `unmeasured` began it; what was measured is added.
        data: as a training opens them, to be made into batches.
        settings: of a loader: its batch size, and the seed of what the stages draw.
        device: to which batches are copied.

    Raises:
        WhyidleError: a sample cannot be made, or a process died.
    """
    from whyidle.pipelines.assemble import make_sample
    from whyidle.scenarios.roofline import copied, measured

    parts = measured(data, settings, told["cores"])
    if not told["parts"]:  # in a process that opens the device: once is enough
        nbytes = settings.batch_size * int(make_sample(data, 0, 0, settings).image.nbytes)
        parts += copied(device, nbytes, settings.batch_size)
    add_round(told["parts"], parts)


def ceilings(variants: Sequence[Variant], sources: Sources, cores: int, seed: int) -> Callable[[dict[str, Any]], None]:
    """Make what measures the samples of a comparison, each kind once a round, beside nothing else, and keeps that in
    the comparison's setting. What cannot be measured is said among the setting's notices, and nothing else suffers.

    Args:
        variants: of these those that load something.
        cores: how many make samples at once.
        seed: of what the stages draw.
    """
    from whyidle.pipelines.protocol import Settings

    kinds: dict[tuple[Any, ...], tuple[dict[str, Any], Dataset, Settings, str]] = {}
    for each in variants:
        place = tuple(getattr(each, name) for name in PLACE)
        if each.feed != "synthetic" and place not in kinds and not sources.missing(each.net, each.store):
            data = sources.loading(each.net, each.store, augment=each.augment)
            told = unmeasured(dict(zip(PLACE, place, strict=True)), cores)
            kinds[place] = told, data, Settings(each.batch_size, seed=seed), each.device
    every = [told for told, *_ in kinds.values()]

    def measure_all(setting: dict[str, Any]) -> None:
        for place, kind in list(kinds.items()):
            try:
                measure(*kind)
            except WhyidleError as error:
                setting["notices"] = [*setting.get("notices", ()), str(error)]
                del kinds[place]
        setting[ROOFLINE] = [told for told in every if told["parts"]]

    return measure_all


def add_round(parts: list[dict[str, Any]], measured: Sequence[Mapping[str, Any]]) -> None:
    """Add to `parts` what was measured in one round."""
    known = {part["name"]: part for part in parts}
    for each in measured:
        if each["name"] not in known:
            known[each["name"]] = {"name": each["name"], "kind": each["kind"], "one": [], "all": []}
            parts.append(known[each["name"]])
        for cores in ("one", "all"):
            known[each["name"]][cores].append(each[cores])


def decoding_of(files: Sequence[str], cores: int) -> ImageDecoding | None:
    """Measure how fast that many cores decode these files, whole; `None` where that cannot be measured: no decoder is
    installed, or they are gone, broken or too few."""
    if len(files) < cores:
        return None
    try:
        from whyidle.pipelines.ceilings import decoder, decoding

        with AllCores(lambda process: {"": decoding(files[process::cores])}, cores) as bench:
            rates = bench.measure("", DECODING_SECONDS)
    except (ImportError, WhyidleError):
        return None
    return ImageDecoding(len(files), decoder(), cores, rates.one, rates.all)
