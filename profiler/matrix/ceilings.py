"""The machine's limits for the samples of a comparison, measured between its rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..analyse.cells.studies import ROOFLINE
from ..capture.probes.all_cores import AllCores
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


class Ceiling:
    """The most that the machine could do with one kind of samples; `told` has what was measured of it so far."""

    def __init__(self, data: Dataset, place: Mapping[str, Any], device: str, settings: Settings, cores: int) -> None:
        """
        Args:
            data: as a training opens them, to be made into batches.
            place: `net`, `store` and `augment` of the samples; what of these is `None` they do not have.
            device: to which batches are copied.
            settings: of a loader: its batch size, and the seed of what the stages draw.
            cores: how many make samples at once.
        """
        from whyidle.pipelines.ceilings import decoder, transformer

        self._data, self._device, self._settings, self._cores = data, device, settings, cores
        libraries = {"decoder": decoder(), "transformer": transformer()}
        self.told: dict[str, Any] = {"place": dict(place), "cores": cores, **libraries, "parts": []}

    def measure(self) -> None:
        """Measure one round.

        Raises:
            WhyidleError: a sample cannot be made, or a process died.
        """
        from whyidle.pipelines.assemble import make_sample
        from whyidle.scenarios.roofline import copied, measured

        parts = measured(self._data, self._settings, self._cores)
        if not self.told["parts"]:  # in a process that opens the device: once is enough
            size = self._settings.batch_size
            nbytes = size * int(make_sample(self._data, 0, 0, self._settings).image.nbytes)
            parts += copied(self._device, nbytes, size)
        add_round(self.told["parts"], parts)


def ceilings(variants: Sequence[Variant], sources: Sources, cores: int, seed: int) -> Callable[[dict[str, Any]], None]:
    """Make what measures the samples of a comparison, each kind once a round, beside nothing else, and keeps that in
    the comparison's setting. What cannot be measured is said among the setting's notices, and nothing else suffers.

    Args:
        variants: of these those that load something.
        cores: how many make samples at once.
        seed: of what the stages draw.
    """
    from whyidle.pipelines.protocol import Settings

    kinds: dict[tuple[Any, ...], Ceiling] = {}
    for each in variants:
        place = tuple(getattr(each, name) for name in PLACE)
        if each.feed != "synthetic" and place not in kinds and not sources.missing(each.net, each.store):
            data, at = sources.loading(each.net, each.store, augment=each.augment), dict(zip(PLACE, place, strict=True))
            kinds[place] = Ceiling(data, at, each.device, Settings(each.batch_size, seed=seed), cores)
    every = list(kinds.values())

    def measure(setting: dict[str, Any]) -> None:
        for place, each in list(kinds.items()):
            try:
                each.measure()
            except WhyidleError as error:
                setting["notices"] = [*setting.get("notices", ()), str(error)]
                del kinds[place]
        setting[ROOFLINE] = [each.told for each in every if each.told["parts"]]

    return measure


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
