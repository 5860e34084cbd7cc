"""The machine's limits for the samples of a comparison, measured between its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..analyse.cells.roofline import SETTING
from ..capture.probes.all_cores import AllCores
from ..errors import WhyidleError
from ..record.run import ImageDecoding

if TYPE_CHECKING:
    from whyidle.pipelines.protocol import Dataset, Settings
    from whyidle.scenarios.variant import Variant

    from .sources import Sources

PLACE = ("net", "store", "augment")
"""Axes on which samples differ."""
DECODING_SECONDS = 0.3
"""For which files of a run are decoded, on one core and then on all."""


class Ceiling:
    """What the machine could do with one kind of samples; `told` has what was measured of it so far."""

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

        self._data = data
        self._device = device
        self._settings = settings
        self._cores = cores
        self.told: dict[str, Any] = {
            "place": dict(place),
            "cores": cores,
            "decoder": decoder(),
            "transformer": transformer(),
            "parts": [],
        }

    def measure(self) -> None:
        """One round.

        Raises:
            WhyidleError: a sample cannot be made, or a process died.
        """
        from whyidle.scenarios.roofline import copied, measured

        parts = measured(self._data, self._settings, self._cores)
        if not self.told["parts"]:  # in a process that opens the device: once is enough
            nbytes = self._settings.batch_size * _sample_bytes(self._data, self._settings)
            parts += copied(self._device, nbytes, self._settings.batch_size)
        add_round(self.told["parts"], parts)


class Ceilings:
    """Measures what the machine could do with the samples of a comparison, each kind once a round, beside nothing else,
    and keeps it in the comparison's setting."""

    def __init__(self, variants: Sequence[Variant], sources: Sources, cores: int, seed: int) -> None:
        """
        Args:
            variants: of these those that load something.
            cores: how many make samples at once.
            seed: of what the stages draw.
        """
        from whyidle.pipelines.protocol import Settings

        self._told: list[dict[str, Any]] = []
        self._of: dict[tuple[Any, ...], Ceiling] = {}
        for each in variants:
            place = tuple(getattr(each, name) for name in PLACE)
            if each.feed != "synthetic" and place not in self._of and not sources.missing(each.net, each.store):
                data = sources.loading(each.net, each.store, each.augment)
                named = dict(zip(PLACE, place, strict=True))
                self._of[place] = Ceiling(data, named, each.device, Settings(each.batch_size, seed=seed), cores)

    def __call__(self, setting: dict[str, Any]) -> None:
        """One round. What cannot be measured is said among the setting's notices, and nothing else suffers."""
        for place, each in list(self._of.items()):
            try:
                each.measure()
            except WhyidleError as error:
                setting["notices"] = [*setting.get("notices", ()), str(error)]
                del self._of[place]
            if each.told["parts"] and each.told not in self._told:
                self._told.append(each.told)
        setting[SETTING] = self._told


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


def _sample_bytes(data: Dataset, settings: Settings) -> int:
    """Of one sample as the net takes it."""
    from whyidle.pipelines.assemble import make_sample

    return int(make_sample(data, 0, 0, settings).image.nbytes)
