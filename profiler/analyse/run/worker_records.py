"""What the makers of batches recorded, put together with the steps that consumed them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, with_column
from ...record.schema import NOT_MEASURED
from .window import Window

MOST_SLOW_SAMPLES = 10
"""Slow samples of a run that are told, at most."""
LARGEST = 1000
"""Batches that these are looked for among at first."""


@dataclass(frozen=True)
class SlowSample:
    """The sample of a batch that took longest to make."""

    ms: float
    index: int | None
    """Its index in the dataset; `None` for datasets that have none."""
    file: str | None
    """The file it was read from; `None` where that is not known."""


@dataclass(frozen=True)
class TransformCost:
    """What calls of one transform take."""

    name: str
    calls: int
    """Calls that were timed."""
    ms_per_call: float

    @property
    def ms(self) -> float:
        """Time of all calls that were timed."""
        return self.calls * self.ms_per_call


@dataclass(frozen=True)
class HandedOver:
    """What a batch consists of that workers hand over; the means of those that were looked at."""

    tensors: float
    tensor_bytes: float
    """Of all of them."""
    objects: float
    """Arrays, strings, numbers and whatever else is pickled."""
    object_bytes: float
    """Of the arrays and strings among them."""

    @property
    def bytes_of_tensor(self) -> float:
        """Of one, on average."""
        return self.tensor_bytes / self.tensors if self.tensors else 0.0


def handed_over_of(contents: Records, steps: Records) -> HandedOver | None:
    """Of CONTENT records those of the loaders that train; `None` where none tells.

    `steps`: all of the training's, which name their loaders.
    """
    told = contents[(contents["tensors"] != NOT_MEASURED) & np.isin(contents["loader"], steps["loader"])]
    if len(told) == 0:
        return None
    fields = ("tensors", "tensor_bytes", "objects", "object_bytes")
    return HandedOver(*(float(told[name].mean()) for name in fields))


def of_training(batches: Records, steps: Records) -> Records:
    """The batches of the loaders that train, each with the step that consumed it where that was looked at.

    Workers do not know the step. They and the steps name the loader's iterator and the batch instead; what was made for
    an iterator that no step names is a validation's. Records that have their step already are passed on.
    """
    numbered = batches["loader"] != NOT_MEASURED
    if not numbered.any():
        return batches
    told = steps[(steps["loader"] != NOT_MEASURED) & (steps["batch"] != NOT_MEASURED)]
    kept = batches[~numbered | np.isin(batches["loader"], steps["loader"])]
    numbered = kept["loader"] != NOT_MEASURED
    of_batch, of_step = _keys(kept[numbered], told)
    place = places_of(of_batch, of_step)
    # That of no step, -1, is the one behind the last.
    step = np.append(told["step"], NOT_MEASURED)[place]
    if not numbered.all():
        of_numbered, step = step, kept["step"].copy()
        step[numbered] = of_numbered
    return with_column(kept, "step", step)


def places_of(wanted: npt.NDArray[np.int64], among: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of these numbers is `among` others, the first place of several; -1 where it is not."""
    at: npt.NDArray[np.int64] = np.full(len(wanted), -1)
    if len(among) == 0:
        return at
    places = None
    if (among[1:] <= among[:-1]).any():
        among, places = np.unique(among, return_index=True)
    if among[-1] - among[0] == len(among) - 1:
        # Numbered through, as steps are that were all looked at. Not measured is far away.
        at = wanted - among[0]
        known = (at >= 0) & (at < len(among))
    else:
        at = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
        known = among[at] == wanted
    at[~known] = -1
    if places is not None:
        at[known] = places[at[known]]
    return at


def joined(steps: Records, batches: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places in the steps, and in the batches, of what belongs together; of several batches of a step the first."""
    places = places_of(batches["step"], steps["step"])
    first = np.full(len(steps), -1)
    known = np.flatnonzero(places >= 0)[::-1]
    first[places[known]] = known
    place = np.flatnonzero(first >= 0)
    return place, first[place]


def of_loaders(transforms: Records, batches: Records) -> Records:
    """What was measured of transforms for the iterators that these batches are of."""
    kept: Records = transforms[
        (transforms["loader"] == NOT_MEASURED) | np.isin(transforms["loader"], batches["loader"])
    ]
    return kept


def within(window: Window, batches: Records) -> npt.NDArray[np.bool_]:
    """Which batches count: those of the window's steps, and those made in it for nobody that was looked at."""
    unseen = (batches["step"] == NOT_MEASURED) & (batches["loader"] != NOT_MEASURED)
    during = (batches["end_ns"] > window.begin_ns) & (batches["begin_ns"] < window.end_ns)
    counted: npt.NDArray[np.bool_] = (batches["step"] >= window.steps["step"][0]) | (unseen & during)
    return counted


def first_later_end(batches: Records) -> npt.NDArray[np.int64]:
    """For each batch, when the first of all later ones of its pass was finished; far in the future where none is known.

    A loader hands batches over in order: waiting beyond that is waiting for a slow batch, not for lack of workers.
    """
    later = np.full(len(batches), np.iinfo(np.int64).max)
    numbered = np.flatnonzero(batches["loader"] != NOT_MEASURED)
    key, _ = _keys(batches[numbered], batches[:0])
    order = np.argsort(key, kind="stable")
    numbered, group = numbered[order], key[order] >> 32
    ends = batches["end_ns"][numbered]
    for part in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1):
        later[numbered[part[:-1]]] = np.minimum.accumulate(ends[part][::-1])[::-1][1:]
    return later


def slowest_of(batches: Records, names: Mapping[int, str]) -> tuple[SlowSample, ...]:
    """The slowest samples, each once; at most one of each batch is known."""
    known = batches[batches["slowest_ns"] != NOT_MEASURED]
    slow: list[SlowSample] = []
    seen: set[int] = set()
    took, indices, files = known["slowest_ns"], known["slowest_index"], known["slowest_name"]
    for place in _largest_first(took):
        index = int(indices[place])
        if index in seen:
            continue
        if index != NOT_MEASURED:
            seen.add(index)
        shown = None if index == NOT_MEASURED else index
        slow.append(SlowSample(float(took[place]) / 1e6, shown, names.get(int(files[place]))))
        if len(slow) == MOST_SLOW_SAMPLES:
            break
    return tuple(slow)


def _largest_first(values: npt.NDArray[np.int64]) -> Iterator[int]:
    """Places of these values. Of many the largest come before the others are put in order: hardly anybody asks on."""
    least = int(np.partition(values, -LARGEST)[-LARGEST]) if len(values) > LARGEST else None
    for some in (values >= least, values < least) if least is not None else (np.ones(len(values), dtype=bool),):
        places = np.flatnonzero(some)
        yield from places[np.argsort(values[places])[::-1]].tolist()


def transforms_of(transforms: Records, names: Mapping[int, str]) -> tuple[TransformCost, ...]:
    """Each transform with what a call of it took."""
    costs = []
    for position, name in np.unique(transforms[["position", "name"]]):
        of_this = transforms[(transforms["position"] == position) & (transforms["name"] == name)]
        calls = int(of_this["samples"].sum())
        if calls:
            ms = float(of_this["total_ns"].sum()) / calls / 1e6
            costs.append(TransformCost(names.get(int(name), "?"), calls, ms))
    return tuple(costs)


def passes_of(records: Records) -> npt.NDArray[np.int64]:
    """One number for each (loader, pass over the data), of batches or steps that know both."""
    return np.asarray((records["loader"] << 24) + (records["batch"] >> 32))


def _changes(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first of each run of equal values: there are far fewer of them where hardly any two in a row differ."""
    return np.concatenate((values[:1], values[1:][values[1:] != values[:-1]]))


def _keys(batches: Records, steps: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """One number for each (loader, pass, batch), the same for a batch and its step."""
    passes = [passes_of(part) for part in (batches, steps)]
    groups = np.unique(np.concatenate([_changes(which) for which in passes]))
    of_batch, of_step = (
        (np.searchsorted(groups, which) << 32) + (part["batch"] & 0xFFFFFFFF)
        for which, part in zip(passes, (batches, steps), strict=True)
    )
    return of_batch, of_step
