"""How loaders make batches: what each maker recorded, where preparing a batch spends its time, how fast it could go.

Workers exclude each other where they share a lock, a connection or a rate: together they deliver what one of them
would, and a batch takes twice as long where two are at work. Workers that each wait by themselves take as long however
many there are. A lock shows in looks at their main threads besides: one works while the others stand in the same call.

Samples are made for nothing where `collate_fn` throws them away, several workers make the same, or the training passes
over their batches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import isnan, sqrt

import numpy as np

from ...record.reader import Records, measured, with_column
from ...record.schema import NAN, NOT_MEASURED, StepFlag, ThreadState
from ..intervals import clip, intersect, total, union
from ..shares import MOSTLY
from ..statistics import Estimate, students_t, wilson
from ..where.looks import Looks, ProcessLooks
from ..where.places import own_part, place_of
from .window import Lengths, Mask, Stamps, Window, flagged, known, mean_of, measured_or, or_zero

WAITING_FOR_CPU = "waiting for a CPU"
WAITING = "waiting otherwise"
WAITS = (WAITING_FOR_CPU, WAITING)
"""Stages of preparing a batch in which nothing is made."""
BUSY = 0.8
"""Share of the time that workers make batches, 0..1, from which they are the limit. Of more workers, as many are
advised as would be busy for no more."""
QUEUED_PCT = 20.0
"""Waiting for a CPU, in percent of making batches, from which it tells the kind of a shortage."""
HEAVILY_QUEUED_PCT = 40.0
"""Waiting for a CPU, in percent of making batches, from which it is the shortage by itself."""
MADE_IN_FETCH_PCT = 90.0
"""Batch making of which so much happens within the fetches is done by the training itself."""
MOSTLY_READING = 0.5
"""Share of making, queueing for a CPU left out, from which a batch, or a loader, mostly reads."""
MOST_SLOW_SAMPLES = 10
"""Slow samples of a run that are told, at most."""
LARGEST = 1000
"""Batches that these are looked for among."""
LOCKS = (ThreadState.FILE_LOCK, ThreadState.SHARED_LOCK)
_POLLED = re.compile(r"/site-packages/(?:filelock|portalocker|fasteners|lockfile)/")
LEAST_LOOKS = 12
"""Looks at workers that prepare batches, below which they tell nothing."""
FEWER = 0.75
"""Workers at work over how many are usually, up to which a batch tells what fewer of them do."""
LEAST_FEWER = 5
"""Such batches, below which the run's own changes in concurrency tell nothing."""
ALIKE = 0.4
"""Standard deviation of logarithms of batches' times up to which they are alike."""
LEAST_EXCLUDED = 0.2
"""Share of looks at making workers that wait for one lock, from which it is often."""
LEAST_QUEUE = 0.6
"""Mean number of workers that wait for it, from which it is nearly always held."""
PROPORTIONAL = 0.65
"""Exponent of a batch's time over workers at work, from which more bring next to nothing."""
SURELY_GROWS = 0.4
"""The same as the least that the scatter allows."""
LEAST_BATCHES = 8
"""Batches that have to be looked at before anything is said of them."""
LEAST_STREAMED = 2
"""The same of batches of which it was seen how an iterable dataset prepares its samples."""
LEAST_PLACES = 4
"""Places in streams that two workers reached, from which their batches are compared."""
MOST_PASSED_OVER = 0.95
"""Share of the steps that may compute nothing."""
_PASS = 1 << 32


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

    @property
    def bytes_of_tensor(self) -> float:
        """Of one, on average."""
        return self.tensor_bytes / self.tensors if self.tensors else 0.0


def handed_over_of(contents: Records, steps: Records) -> HandedOver | None:
    """Average what CONTENT records of the loaders of these `steps` tell; `None` where none does."""
    told = contents[(contents["tensors"] != NOT_MEASURED) & np.isin(contents["loader"], steps["loader"])]
    if len(told) == 0:
        return None
    return HandedOver(*(float(told[n].mean()) for n in ("tensors", "tensor_bytes", "objects")))


def of_training(batches: Records, steps: Records) -> Records:
    """Pick the batches of the loaders that train, each with the step that consumed it where that was looked at.

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
    step = kept["step"].copy()
    step[numbered] = np.append(told["step"], NOT_MEASURED)[place]
    return with_column(kept, "step", step)


def places_of(wanted: Stamps, among: Stamps) -> Stamps:
    """Where each of these numbers is `among` others, the first of several; -1: nowhere."""
    if len(among) == 0:
        return np.full(len(wanted), -1)
    if (among[1:] <= among[:-1]).any():
        among, places = np.unique(among, return_index=True)
        # Nowhere, -1, is behind the last.
        return np.append(places, -1)[places_of(wanted, among)]
    if among[-1] - among[0] == len(among) - 1:
        # Numbered through, as steps are that were all looked at. Not measured is far away.
        at: Stamps = wanted - among[0]
        known = (at >= 0) & (at < len(among))
    else:
        at = np.minimum(np.searchsorted(among, wanted), len(among) - 1)
        known = among[at] == wanted
    at[~known] = -1
    return at


def joined(steps: Records, batches: Records) -> tuple[Stamps, Stamps]:
    """Places in steps and batches of what belongs together; of several batches the first."""
    places = places_of(batches["step"], steps["step"])
    first = np.full(len(steps), -1)
    known = np.flatnonzero(places >= 0)[::-1]
    first[places[known]] = known
    place = np.flatnonzero(first >= 0)
    return place, first[place]


def within(window: Window, batches: Records) -> Mask:
    """Which batches count: those of the window's steps, and those made in it for unsampled ones."""
    unseen = (batches["step"] == NOT_MEASURED) & (batches["loader"] != NOT_MEASURED)
    during = (batches["end_ns"] > window.begin_ns) & (batches["begin_ns"] < window.end_ns)
    counted: Mask = (batches["step"] >= window.steps["step"][0]) | (unseen & during)
    return counted


def first_later_end(batches: Records) -> Stamps:
    """For each batch, when the first later one of its pass was finished; far in the future where none is known.

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


def unqueued_ns(batches: Records) -> Lengths:
    """Time of making each batch over all its threads, without waiting for a CPU."""
    threads = np.maximum(1, batches["threads"])
    return np.asarray((batches["end_ns"] - batches["begin_ns"]) * threads - or_zero(batches["run_queue_ns"]), float)


def is_read(batches: Records) -> Mask:
    """Which batches are mostly read from storage."""
    read = or_zero(batches["read_ns"])
    return np.asarray((read > 0) & (read >= MOSTLY_READING * unqueued_ns(batches)))


@dataclass(frozen=True)
class Timed:
    """Making the samples whose transforms were timed."""

    samples: int
    ms_per_sample: float
    transforms_ms_per_sample: float
    """Time that a sample spends in any of the transforms."""


@dataclass(frozen=True)
class LoaderStats:
    """How a loader makes batches. NaN: not measured. Percentages: of making batches, if not said."""

    workers: int
    """Worker processes or threads that prepared batches."""
    makers: int
    """Workers that prepared batches by themselves: a pool of threads is one."""
    read_pct: float = NAN
    decode_pct: float = NAN
    transform_pct: float = NAN
    collate_pct: float = NAN
    cpu_pct: float = NAN
    """CPU time of preparing a batch, of its wall time over its threads: low means waiting."""
    worker_busy_pct: float = NAN
    """Share of the window, or of its passes over the data where these are known, in which workers made batches; the
    mean over the workers."""
    queue_ready_mean: float = NAN
    """Batches that lay ready when the training asked for one; the mean."""
    queue_capacity: float = NAN
    """Batches that it can hold ready."""
    make_ms_per_sample: float = NAN
    """Wall time from a batch's begin to its end, for each of its samples."""
    work_ms_per_batch: float = NAN
    """Time spent on a batch, over all threads that work on it."""
    samples_per_s_limit: float = NAN
    """Rate if nobody ever made the workers wait: their samples over the time they worked."""
    mean_batch_bytes: float = NAN
    unsplit_pct: float = NAN
    """Decoding and transforming together where not told apart, without waiting for reads."""
    run_queue_pct: float = NAN
    """Makers ready to run, but waiting for a CPU."""
    minor_faults_per_batch: float = NAN
    """Page faults without I/O."""
    major_faults: float = NAN
    """Page faults that needed I/O, in all."""
    read_chars_bytes_per_sample: float = NAN
    """Bytes that read calls got for a sample, from cache or storage (`read_chars_bytes`)."""
    storage_bytes_per_sample: float = NAN
    """Bytes read from storage for a sample (`read_bytes` of the record)."""
    process_cpu_pct: float = NAN
    """CPU time of all threads of the workers; above `cpu_pct` where further ones compute."""
    cpus: float = NAN
    """CPUs that the workers may run on, taken together."""
    sent_bytes_per_batch: float = NAN
    """Bytes that a worker wrote for a batch, into the pipe to the training above all."""
    even_workers: float = NAN
    """How many workers with equal shares of the batches would be as uneven as these."""
    slowest: tuple[SlowSample, ...] = ()
    """The samples that took longest, the longest first."""
    transforms: tuple[TransformCost, ...] = ()
    """What each transform costs, in the order in which the dataset holds them."""
    timed: Timed | None = None
    """The batches in which transforms were timed; `None` without any."""

    @property
    def prep_pct(self) -> float:
        """Decoding and transforming together, in percent of the time spent preparing batches."""
        parts = [part for part in (self.decode_pct, self.transform_pct) if not isnan(part)]
        return measured_or(self.unsplit_pct, sum(parts) if parts else NAN)

    @property
    def waiting_pct(self) -> float:
        """Neither on a CPU nor waiting for one or for files: locks, sleeps, network, threads."""
        return max(100.0 - (self.cpu_pct + self.run_queue_pct + self.read_pct), 0.0)

    @property
    def costliest(self) -> str | None:
        """The part of preparing a batch that takes longest, without waiting but for reads; `None`: none is known."""
        known = {name: share for name, share in self.stages.items() if name not in WAITS}
        return max(known, key=lambda name: known[name]) if known else None

    @property
    def stages(self) -> dict[str, float]:
        """The parts of preparing a batch that are known and told apart; they overlap nowhere."""
        parts = {"reading": self.read_pct, "decoding": self.decode_pct, "transforming": self.transform_pct}
        parts["collating"] = self.collate_pct
        if not isnan(self.unsplit_pct):
            # Where the samples waited is not known: what exceeds their time happened in collating.
            waits = measured_or(self.waiting_pct) + measured_or(self.run_queue_pct)
            parts = {
                "reading": self.read_pct,
                "preparing samples": max(0.0, self.unsplit_pct - waits),
                "collating": max(self.collate_pct - max(0.0, waits - self.unsplit_pct), 0.0),
                WAITING_FOR_CPU: self.run_queue_pct,
                WAITING: self.waiting_pct,
            }
        return {name: part for name, part in parts.items() if not isnan(part)}


def loader_of(
    window: Window, batches: Records, transforms: Records | None = None, names: Mapping[int, str] | None = None
) -> LoaderStats:
    """Gather the loader's figures in the window, from the batches of the loaders that train (`of_training`).

    `transforms`: what was measured of single ones; `names`: of transforms and files, by number.
    """
    counted = batches[within(window, batches)]
    working = _working_ns(counted)
    ready, capacity = mean_of(window.steps, "queue_ready"), known(window.steps, "queue_capacity")
    makers = [_maker(counted[counted["worker"] == worker], window) for worker in np.unique(counted["worker"])]
    threads = sum(threads for threads, *_ in makers)
    busy_ns = sum(busy for *_, busy in makers)
    limits = [threads * samples * 1e9 / spent for threads, samples, spent, _ in makers if spent]
    recorded = _sum(counted, "samples")
    samples = recorded + _sum(counted, "skipped_samples")
    made_ns = float((counted["end_ns"] - counted["begin_ns"]).sum()) + _sum(counted, "skipped_ns")
    # An estimate: of each maker's set of CPUs only the lowest and the size are told, so they are taken for neighbours.
    placed = counted[(counted["cpus"] != NOT_MEASURED) & (counted["first_cpu"] != NOT_MEASURED)]
    # Each record tells of the batches since the one recorded before.
    told = counted[counted["sent_bytes"] != NOT_MEASURED]
    made = np.bincount(np.unique(counted["worker"], return_inverse=True)[1], 1 + np.maximum(0, counted["skipped"]))
    sent = len(told) + _sum(told, "skipped")

    # Decoding and transforming, where these are not told apart.
    read, collate = measured(counted["read_ns"]), measured(counted["collate_ns"])
    unsplit = ~np.isnan(read + collate) & (counted["decode_ns"] == NOT_MEASURED) & (counted["threads"] == 1)
    rest, unsplit_ns = np.maximum(0, (working - read - collate)[unsplit]), float(working[unsplit].sum())

    def pct(name: str) -> float:
        """A field in percent of the time spent on the batches for which it was measured."""
        which = counted[name] != NOT_MEASURED
        spent = float(working[which].sum())
        return 100 * float(counted[name][which].astype(np.float64).sum()) / spent if spent else NAN

    def per_sample(name: str) -> float:
        return _sum(counted, name) / recorded if recorded and len(known(counted, name)) else NAN

    return LoaderStats(
        workers=threads,
        makers=len(makers),
        read_pct=pct("read_ns"),
        decode_pct=pct("decode_ns"),
        transform_pct=pct("transform_ns"),
        collate_pct=pct("collate_ns"),
        cpu_pct=pct("cpu_ns"),
        worker_busy_pct=min(100.0, 100 * (busy_ns / (threads * _passes_ns(window, counted)))) if threads else NAN,
        queue_ready_mean=ready,
        queue_capacity=int(capacity[0]) if len(capacity) else NAN,
        make_ms_per_sample=made_ns / samples / 1e6 if samples and made_ns else NAN,
        work_ms_per_batch=float(working.mean()) / 1e6 if len(counted) else NAN,
        samples_per_s_limit=sum(limits) or NAN,
        mean_batch_bytes=mean_of(counted, "batch_bytes"),
        unsplit_pct=100 * float(rest.sum()) / unsplit_ns if unsplit_ns else NAN,
        run_queue_pct=pct("run_queue_ns"),
        minor_faults_per_batch=mean_of(counted, "minor_faults"),
        major_faults=_sum(counted, "major_faults") if len(known(counted, "major_faults")) else NAN,
        read_chars_bytes_per_sample=per_sample("read_chars_bytes"),
        storage_bytes_per_sample=per_sample("read_bytes"),
        process_cpu_pct=pct("process_cpu_ns"),
        cpus=total(union(placed["first_cpu"], placed["first_cpu"] + placed["cpus"])) if len(placed) else NAN,
        sent_bytes_per_batch=_sum(told, "sent_bytes") / sent if sent else NAN,
        even_workers=float(1 / ((made / made.sum()) ** 2).sum()) if len(counted) else NAN,
        slowest=slowest_of(counted, names or {}),
        transforms=() if transforms is None else _transforms_of(transforms, batches, names or {}),
        timed=_timed(batches),
    )


def _timed(batches: Records) -> Timed | None:
    """Timed transforms in all batches: a worker's first are timed, maybe before the window."""
    # Where decoding is told apart, transforms are a stage of every batch and not timed one by one.
    timed = batches[(batches["transform_ns"] != NOT_MEASURED) & (batches["decode_ns"] == NOT_MEASURED)]
    samples = _sum(timed, "samples")
    if not samples:
        return None
    wall = float((timed["end_ns"] - timed["begin_ns"]).sum())
    return Timed(samples, wall / samples / 1e6, _sum(timed, "transform_ns") / samples / 1e6)


def _maker(batches: Records, window: Window) -> tuple[int, int, float, float]:
    """(threads, samples, time spent on batches, that in the window) of a worker or pool."""
    threads = int(max(1, batches["threads"].max()))
    samples = _sum(batches, "samples") + _sum(batches, "skipped_samples")
    # Of steps that nobody looked at there are no batches, unless the worker itself recorded all it made.
    seen = 1.0 if (batches["loader"] != NOT_MEASURED).any() else window.looked_at
    if threads > 1:
        # A pool works on several batches at a time and lets samples wait in between: only its stages are work.
        working = float(_working_ns(batches).sum())
        return threads, samples, working, working / seen
    left_out = _sum(batches, "skipped_ns")
    spans = union(batches["begin_ns"], batches["end_ns"])
    within_ns = total(clip(spans, window.begin_ns, window.end_ns))
    return 1, samples, total(spans) + left_out, (within_ns + left_out) / seen


def _passes_ns(window: Window, batches: Records) -> int:
    """Time in which workers could be busy: not between passes, with starts and validations."""
    numbered = batches[batches["loader"] != NOT_MEASURED]
    if len(numbered) == 0:
        return window.wall_ns
    passes, of_pass = np.unique(passes_of(numbered), return_inverse=True)
    begin = np.full(len(passes), np.iinfo(np.int64).max)
    end = np.zeros_like(begin)
    np.minimum.at(begin, of_pass, numbered["begin_ns"])
    np.maximum.at(end, of_pass, numbered["end_ns"])
    return total(clip(union(begin, end), window.begin_ns, window.end_ns)) or window.wall_ns


def _working_ns(batches: Records) -> Lengths:
    """Time spent on each batch, over all threads: its stages' sum if known, else wall time."""
    stages = sum(np.nan_to_num(measured(batches[name])) for name in ("read_ns", "decode_ns", "collate_ns"))
    # Where decoding is not told apart, transforms are timed by themselves, with what they wait for.
    apart = batches["decode_ns"] != NOT_MEASURED
    stages = stages + np.where(apart, np.nan_to_num(measured(batches["transform_ns"])), 0)
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    return np.where(batches["threads"] > 1, stages, np.maximum(stages, wall))


def _sum(batches: Records, name: str) -> int:
    """A field summed over the batches for which it was measured."""
    return int(known(batches, name).sum())


def made_in_fetch_pct(window: Window, batches: Records) -> float:
    """Share of the batch making within the training's fetches, in percent; NaN: unknown."""
    counted = batches[within(window, batches)]
    making = union(counted["begin_ns"], counted["end_ns"])
    if total(making) == 0:
        return NAN
    fetches = union(window.steps["fetch_begin_ns"], window.steps["fetch_end_ns"])
    return 100 * total(intersect(making, fetches)) / total(making)


def slowest_of(batches: Records, names: Mapping[int, str]) -> tuple[SlowSample, ...]:
    """The slowest samples, each once; at most one of each batch is known."""
    told = batches[batches["slowest_ns"] != NOT_MEASURED]
    took = told["slowest_ns"]
    # Ordering all of a day's batches would take long.
    places = np.argpartition(took, -LARGEST)[-LARGEST:] if len(took) > LARGEST else np.arange(len(took))
    largest = told[places[np.argsort(took[places])[::-1]]]
    slow: dict[int, SlowSample] = {}
    columns = (largest[f"slowest_{name}"].tolist() for name in ("ns", "index", "name"))
    for place, (ns, index, name) in enumerate(zip(*columns, strict=True)):
        known = None if index == NOT_MEASURED else index
        slow.setdefault(-place - 1 if known is None else known, SlowSample(ns / 1e6, known, names.get(name)))
    return tuple(slow.values())[:MOST_SLOW_SAMPLES]


def _transforms_of(transforms: Records, batches: Records, names: Mapping[int, str]) -> tuple[TransformCost, ...]:
    """Each transform with what a call of it took, for the iterators that these batches are of."""
    mine = transforms[(transforms["loader"] == NOT_MEASURED) | np.isin(transforms["loader"], batches["loader"])]
    costs = []
    for position, name in np.unique(mine[["position", "name"]]):
        of_this = mine[(mine["position"] == position) & (mine["name"] == name)]
        if calls := int(of_this["samples"].sum()):
            ms = float(of_this["total_ns"].sum()) / calls / 1e6
            costs.append(TransformCost(names.get(int(name), "?"), calls, ms))
    return tuple(costs)


def passes_of(records: Records) -> Stamps:
    """One number for each (loader, pass over the data), of batches or steps that know both."""
    return np.asarray((records["loader"] << 24) + (records["batch"] >> 32))


def _keys(batches: Records, steps: Records) -> tuple[Stamps, Stamps]:
    """One number for each (loader, pass, batch), the same for a batch and its step."""
    passes = [passes_of(part) for part in (batches, steps)]
    # Of each run of equal values the first: there are far fewer, for hardly any two in a row differ.
    groups = np.unique(np.concatenate([np.r_[which[:1], which[1:][which[1:] != which[:-1]]] for which in passes]))
    of_batch, of_step = (
        (np.searchsorted(groups, which) << 32) + (part["batch"] & 0xFFFFFFFF)
        for which, part in zip(passes, (batches, steps), strict=True)
    )
    return of_batch, of_step


@dataclass(frozen=True)
class SeenWaiting:
    """What workers that prepare batches were seen to wait for."""

    looks: int
    """At workers that prepared batches."""
    lock: Estimate
    """Share of these that stood in the lock that most of them waited for, 0..1."""
    of_file: bool
    """Whether that is a file's lock."""
    at: str
    """The line of the user's that waits for it: `data.py:39`; empty without such looks."""
    elsewhere: int | None
    """`ThreadState` in most other looks: what the lock's holder does. `None` without any."""


@dataclass(frozen=True)
class TimeGrowth:
    """How the time that a batch takes follows the number of workers at work meanwhile."""

    exponent: Estimate
    """0: not at all, workers are independent; 1: together they deliver what one would."""
    fewer_ms: float
    """What a batch took with fewer workers at work than usual, the mean."""
    usual_ms: float
    """What the other batches took."""


@dataclass(frozen=True)
class Exclusion:
    """What is known of workers in each other's way."""

    together: float
    """Workers that prepare batches at a time, on average over the time in which any does."""
    waiting: SeenWaiting | None
    """`None` where stacks were not looked at, or too rarely."""
    growth: TimeGrowth | None
    """`None` where hardly any batch was made beside fewer workers than the others."""

    @property
    def waits_for_lock(self) -> bool:
        """Whether at nearly any time some worker waits for a lock that another one holds."""
        told = self.waiting
        return told is not None and told.lock.low >= LEAST_EXCLUDED and told.lock.value * self.together >= LEAST_QUEUE

    @property
    def grows(self) -> bool:
        """Whether batches take so much longer beside more workers that these bring nothing."""
        told = self.growth
        return told is not None and told.exponent.value >= PROPORTIONAL and told.exponent.low >= SURELY_GROWS

    @cached_property
    def alone(self) -> Estimate:
        """What preparing a batch would take without exclusion, over what it takes now, 0..1."""
        if self.waits_for_lock and self.waiting is not None:
            lock = self.waiting.lock
            return Estimate(1 - lock.value, 1 - lock.high, 1 - lock.low)
        if self.growth is None:
            return Estimate(1.0, 1.0, 1.0)
        exponent = self.growth.exponent
        least, most = exponent.low, exponent.high
        return Estimate(*(self.together ** -min(1.0, max(0.0, each)) for each in (exponent.value, most, least)))


def exclusion_of(window: Window, batches: Records, looks: ProcessLooks | None = None) -> Exclusion | None:
    """What the batches of several workers tell, and the looks at these where there are any; `None` of fewer workers.

    `batches`: those of the loaders that train, with their steps (`of_training`).
    """
    made = batches[(batches["worker"] != NOT_MEASURED) & (batches["threads"] <= 1)]
    counted = within(window, made)
    if len(np.unique(made["worker"][counted])) < 2:
        return None
    begin = made["begin_ns"] - np.maximum(0, made["skipped_ns"])
    spent = float((made["end_ns"] - begin)[counted].sum())
    first, last = int(begin[counted].min()), int(made["end_ns"][counted].max())
    any_ns = total(clip(union(begin, made["end_ns"]), first, last))
    return Exclusion(
        spent / any_ns if any_ns else 1.0,
        None if looks is None else _waiting(looks.making.between(window.begin_ns, window.end_ns)),
        _growth(made, begin, counted),
    )


def _together(begin: Stamps, end: Stamps, since: Stamps, until: Stamps) -> Lengths:
    """Mean number of batches in the making over each time [since, until), none empty."""
    # Of all the time that batches took until a moment: from their begins on, without that from their ends on.
    first = begin.min()
    edges = [np.sort(stamps - first) for stamps in (begin, end)]
    sums = [np.concatenate(([0], np.cumsum(each))) for each in edges]

    def made(at: Stamps) -> Stamps:
        begun, ended = (np.searchsorted(each, at) for each in edges)
        # Sums of a long run may wrap around; what they differ by is right all the same.
        return np.asarray((begun - ended) * at - (sums[0][begun] - sums[1][ended]))

    return np.asarray((made(until - first) - made(since - first)) / (until - since))


def _growth(made: Records, begin: Stamps, counted: Mask) -> TimeGrowth | None:
    """By whole batches, without each worker's first of a pass, which costs more anyway."""
    which = counted & (made["samples"] == made["samples"][counted].max()) & (made["end_ns"] > made["begin_ns"])
    keys = (made["loader"], np.where(made["batch"] == NOT_MEASURED, 0, made["batch"] >> 32), made["worker"])
    order = np.lexsort((made["begin_ns"], *keys))
    which[order[:1]] = False
    which[order[1:]] &= np.all([key[order[1:]] == key[order[:-1]] for key in keys], axis=0)
    # Waiting for a CPU is no waiting for each other.
    worked = unqueued_ns(made[which])
    which[which] = worked > 0
    together = _together(begin, made["end_ns"], made["begin_ns"][which], made["end_ns"][which])
    worked = worked[worked > 0]
    if len(worked) == 0:
        return None
    fewer = together <= FEWER * float(np.median(together))
    # Where batches differ by themselves, it is not chance which are made beside many others.
    if fewer.sum() < LEAST_FEWER or float(np.log(worked[~fewer]).std()) > ALIKE:
        return None
    # The slope of a line by least squares, with an interval for scatter that need not be alike everywhere.
    x, y = np.log(together), np.log(worked)
    beside = x - x.mean()
    squares = float((beside**2).sum())
    slope = float((beside * y).sum()) / squares
    rest = y - y.mean() - slope * beside
    free = max(1, len(x) - 2)
    error = sqrt(float(((beside * rest) ** 2).sum()) * len(x) / free) / squares
    exponent = Estimate.around(slope, students_t(free) * error)
    return TimeGrowth(exponent, float(worked[fewer].mean()) / 1e6, float(worked[~fewer].mean()) / 1e6)


def _waiting(making: Looks) -> SeenWaiting | None:
    told = making.states()
    looks = sum(count for state, count in told.items() if state != NOT_MEASURED)
    if looks < LEAST_LOOKS:
        return None
    # In a library's file lock a worker tries again and again, and sleeps.
    polling = making.where(lambda stack: any(_POLLED.search(call.file) for call in own_part(stack)))
    of_files = (making.in_state(ThreadState.FILE_LOCK), polling.in_state(ThreadState.SLEEP))
    most = max((of_files, (making.in_state(ThreadState.SHARED_LOCK),)), key=lambda parts: sum(map(len, parts)))
    lines: Counter[str] = Counter()
    for stack, count in chain.from_iterable(part.stacks() for part in most):
        if (found := place_of(stack)) is not None:
            lines[f"{found[0].file.rpartition('/')[2]}:{found[0].line}"] += count
    told[ThreadState.SLEEP] -= len(of_files[1])
    others = {state: told[state] for state in told if state not in (*LOCKS, NOT_MEASURED) and told[state] > 0}
    return SeenWaiting(
        looks,
        wilson(sum(map(len, most)) / looks, looks),
        most is of_files,
        max(lines, key=lambda line: lines[line], default=""),
        max(others, key=lambda state: others[state], default=None),
    )


@dataclass(frozen=True)
class WastedSamples:
    """Shares, 0..1, of the samples that were made; 0 also where nothing of the kind was found."""

    dropped: float
    """Left out by `collate_fn`; or, as a share of the time, made by a stream and not given."""
    repeated: float
    """In batches that another worker made too."""
    passed_over: float
    """In batches that the training fetched and computed nothing with."""

    @property
    def share(self) -> float:
        """Of the samples made, those that were made for nothing."""
        return 1 - (1 - self.dropped) * (1 - self.repeated) * (1 - self.passed_over)


def wasted_samples_of(window: Window, contents: Records, iterable: bool | None) -> WastedSamples | None:
    """Tell what became of the samples of the loaders that train; `None`: nothing of theirs was looked at, and every
    step computed.

    `contents`: CONTENT records of the rank; `iterable`: only then can workers make the same.
    """
    steps = window.steps
    mine = contents[(contents["loader"] == NOT_MEASURED) | np.isin(contents["loader"], window.all_steps["loader"])]
    if window.queued:
        nothing = flagged(steps, StepFlag.COMPUTED_NOTHING)
    else:
        nothing = (steps["backward_begin_ns"] == NOT_MEASURED) & (steps["optimizer_end_ns"] == NOT_MEASURED)
        nothing &= ~flagged(steps, StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER | StepFlag.FORWARD_AFTER)
    passed_over = float(np.mean(nothing & (steps["fetch_end_ns"] != NOT_MEASURED))) if len(steps) else 0.0
    # Where nothing is ever computed, computing is not seen.
    passed_over = passed_over if passed_over <= MOST_PASSED_OVER else 0.0
    if not len(mine) and not passed_over:
        return None
    return WastedSamples(_dropped(mine), _repeated(mine) if iterable else 0.0, passed_over)


def _dropped(contents: Records) -> float:
    told = contents[(contents["made"] > 0) & (contents["kept"] != NOT_MEASURED)]
    left = 1.0
    if len(told) >= LEAST_BATCHES:
        made, present, kept = (told[name] for name in ("made", "present", "kept"))
        left = float(present.sum()) / float(made.sum())
        # So many samples to each row, every time: they are put together, views of one thing say, and not left out.
        together = len(np.unique(kept)) == 1 and kept[0] > 0 and (present % kept[0] == 0).all()
        left *= 1.0 if together or not present.any() else float(kept.sum()) / float(present.sum())
    streamed = contents[(contents["stream_ns"] > 0) & (contents["unused_ns"] != NOT_MEASURED)]
    if len(streamed) >= LEAST_STREAMED:
        left *= 1 - float(streamed["unused_ns"].sum()) / float(streamed["stream_ns"].sum())
    return 1 - left


def _repeated(contents: Records) -> float:
    """Share saved if batches equal to another worker's, place by place, were made once."""
    told = contents[(contents["fingerprint"] != NOT_MEASURED) & (contents["batch"] != NOT_MEASURED)]
    streams = np.stack((told["loader"], told["batch"] // _PASS, told["worker"]), axis=1)
    places: dict[tuple[int, int, int], list[int]] = {}
    for loader, number, worker in np.unique(streams, axis=0).tolist():
        own = np.sort(np.asarray(told[(streams == (loader, number, worker)).all(axis=1)]), order="batch")
        if len(np.unique(own["fingerprint"])) < MOSTLY * len(own):
            # Where a worker's own batches are equal, equality to another's says nothing.
            return 0.0
        for place, fingerprint in enumerate(own["fingerprint"].tolist()):
            places.setdefault((loader, number, place), []).append(fingerprint)
    compared = [prints for prints in places.values() if len(prints) > 1]
    if len(compared) < LEAST_PLACES:
        return 0.0
    saved = sum(len(prints) - len(set(prints)) for prints in compared)
    share = saved / sum(len(prints) for prints in compared)
    workers = max(len(prints) for prints in compared)
    return share if share >= MOSTLY * (1 - 1 / workers) else 0.0
