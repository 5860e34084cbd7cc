"""What the machine could do with the samples of a comparison, measured between its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..analyse.cells.roofline import SETTING
from ..capture.probes.all_cores import AllCores
from ..errors import WhyidleError
from ..record.image_files import ImageDecoding

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import ScenarioData
    from whyidle.scenarios.variant import Variant

    from .sources import Sources

PLACE = ("net", "store", "augment")
"""Axes on which samples differ."""
DECODING_SECONDS = 0.3
"""For which files of a run are decoded, on one core and then on all."""


class Ceilings:
    """Measures each part of loading once a round, beside nothing else, and keeps it in the comparison's setting."""

    def __init__(self, variants: Sequence[Variant], sources: Sources, cores: int, seed: int) -> None:
        """
        Args:
            variants: of these those that load something.
            cores: how many make samples at once.
            seed: of what the stages draw.
        """
        self._cores = cores
        self._seed = seed
        self._of: dict[tuple[Any, ...], tuple[Variant, ScenarioData]] = {}
        for each in variants:
            place = tuple(getattr(each, name) for name in PLACE)
            if each.feed != "synthetic" and place not in self._of and not sources.missing(each.net, each.store):
                self._of[place] = each, sources.loading(each.net, each.store, each.augment)
        self._told: dict[tuple[Any, ...], dict[str, Any]] = {}

    def __call__(self, setting: dict[str, Any]) -> None:
        """One round. What cannot be measured is said among the setting's notices, and nothing else suffers."""
        from whyidle.pipelines.ceilings import decoder, transformer
        from whyidle.pipelines.protocol import Settings
        from whyidle.scenarios.roofline import copied, measured

        for place, (variant, data) in list(self._of.items()):
            settings = Settings(variant.batch_size, seed=self._seed)
            try:
                parts = measured(data, settings, self._cores)
                if place not in self._told:
                    nbytes = variant.batch_size * _sample_bytes(data, settings)
                    parts += copied(variant.device, nbytes, variant.batch_size)
            except WhyidleError as error:
                setting["notices"] = [*setting.get("notices", ()), str(error)]
                del self._of[place]
                continue
            if place not in self._told:
                self._told[place] = {
                    "place": dict(zip(PLACE, place, strict=True)),
                    "cores": self._cores,
                    "decoder": decoder(),
                    "transformer": transformer(),
                    "parts": [],
                }
            add_round(self._told[place]["parts"], parts)
        setting[SETTING] = list(self._told.values())


def add_round(parts: list[dict[str, Any]], measured: Sequence[Mapping[str, Any]]) -> None:
    """What was measured in one round, added to `parts`."""
    known = {part["name"]: part for part in parts}
    for each in measured:
        part = known.get(each["name"])
        if part is None:
            part = {"name": each["name"], "kind": each["kind"], "one": [], "all": []}
            parts.append(part)
        part["one"].append(each["one"])
        part["all"].append(each["all"])


def decoding_of(files: Sequence[str], cores: int) -> ImageDecoding | None:
    """How fast that many cores decode these files, whole; `None` where that cannot be measured: no decoder is
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


def _sample_bytes(data: ScenarioData, settings: Any) -> int:
    """Of one sample as the net takes it."""
    from whyidle.pipelines.assemble import make_sample

    return int(make_sample(data, 0, 0, settings).image.nbytes)
