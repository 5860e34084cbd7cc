"""What a batch takes to make: begin and end of torch's fetch, and what the kernel counts for its thread in between.

What single transforms of a dataset cost, for the samples of a few batches.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import heapq
import inspect
import operator
import os
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic_ns
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeAlias

from torch.compiler import is_dynamo_compiling
from torch.utils.data import ConcatDataset, Subset

from ...errors import RecordError
from ...native import FetchTimerBase
from ...record.schema import BATCH, CONTENT, NOT_MEASURED, TRANSFORM, Kind
from ...record.segment import RecordWriter
from ...record.stacks import Names
from ..bootstrap import stack_options
from ..hidden import passes_on
from ..hooks.parts import bytes_of, samples_of
from ..hooks.switch import Switch, hand_on, ours
from ..stacks.within import look_within
from ..stand_in import StandIn, has_parts_in_c, stand_in
from .batch_content import BatchContent
from .counters import Reading, ThreadCounters, affinity

NAMED = ("transform", "transforms", "target_transform")
"""Attributes under which datasets hold what they apply to a sample."""
DEEPEST_TRANSFORM = 4
WIDEST = 16
"""Datasets within datasets that are searched."""
MOST_PLACES = 64
FIRST = range(1, 4)
EVERY = 50
"""Batches of a worker whose transforms are timed: the second to the fourth, then one in so many. The first is left
out, because it imports and fills caches."""
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial)


def is_due(number: int) -> bool:
    """Whether the transforms of a worker's batch with this number, from 0, are timed.

    None is where torch's compiler has been at work in this process, or in the one it was forked from: it may have
    compiled code of the dataset's, and would look into what stands there for a transform.
    """
    if number not in FIRST and (number == 0 or number % EVERY):
        return False
    return not getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)


@dataclass(slots=True)
class TransformCalls:
    """What the calls of one transform took in one batch."""

    name: str
    position: int
    """Among the dataset's transforms, from 0."""
    calls: int = 0
    ns: int = 0


class TransformTiming:
    """Times a dataset's transforms until `end`.

    Where the dataset holds a transform, something stands in for it that is called in its place. The transform is not
    changed, nor is its class.
    """

    def __init__(self, dataset: Any) -> None:
        self.ended = False
        self.depth = 0
        """Timed transforms under way: one may call another."""
        self.total_ns = 0
        """Time in any of them."""
        self.transforms: list[TransformCalls] = []
        self._changed: dict[int, Any] = {}
        """Dictionaries and lists in which something stands in for a transform, by their `id`."""
        known: dict[int, Any] = {}
        try:
            # All of them are found before the first is replaced: a stand-in is nobody's transform.
            for held, key, inner in list(islice(_places(dataset), MOST_PLACES)):
                timed = known.get(id(inner))
                if timed is None:
                    cost = TransformCalls(_name_of(inner), len(self.transforms))
                    base = TimedFunction if type(inner) in _FUNCTIONS else TimedTransform
                    timed = known[id(inner)] = stand_in(base, inner, cost, self)
                    self.transforms.append(cost)
                self._changed[id(held)] = held
                held[key] = timed
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """What the dataset holds are its transforms again, wherever it has moved them meanwhile; safe to call twice."""
        self.ended = True
        while self._changed:
            _, held = self._changed.popitem()
            for key, there in list(enumerate(held) if isinstance(held, list) else held.items()):
                if issubclass(type(there), TimedTransform) and there._whyidle_timing is self:
                    held[key] = there._whyidle_inner


class TimedTransform(StandIn):
    """Stands in for a transform and times its calls."""

    __slots__ = ("_whyidle_cost", "_whyidle_timing")

    def __init__(self, inner: Any, cost: TransformCalls, timing: TransformTiming) -> None:
        super().__init__(inner)
        self._whyidle_cost = cost
        self._whyidle_timing = timing

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self._whyidle_inner(*args, **kwargs)
        timing = self._whyidle_timing
        timing.depth += 1
        begin = monotonic_ns()
        try:
            return self._whyidle_inner(*args, **kwargs)
        except BaseException as error:
            # As `hidden.forget_frame`, without one more call for each sample.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            took = monotonic_ns() - begin
            timing.depth -= 1
            # A dataset may keep what stands in for its transform.
            if not timing.ended:
                cost = self._whyidle_cost
                cost.calls += 1
                cost.ns += took
                if not timing.depth:
                    timing.total_ns += took

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._whyidle_inner)


class TimedFunction(TimedTransform):
    """The same for functions, each of which has a documentation and a module of its own."""

    __slots__ = ()
    __doc__ = property(lambda self: self._whyidle_inner.__doc__)
    __module__ = property(lambda self: self._whyidle_inner.__module__)


def _places(dataset: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(dictionary or list, key or index, transform), in the order in which they are found."""
    todo, seen = [(dataset, 0)], 0
    while todo and seen < WIDEST:
        holder, depth = todo.pop(0)
        seen += 1
        held = getattr(holder, "__dict__", None)
        if type(held) is not dict:
            continue
        named = [value for name, value in list(held.items()) if name in NAMED or _is_torchvision(value)]
        for name, value in list(held.items()):
            # Under other names too: what a dataset compares by `is` stays the same.
            if any(value is each for each in named):
                yield from _within(held, name, value, 0)
        if depth < DEEPEST_TRANSFORM:
            inside = held.get("datasets")
            below = [held.get("dataset"), *(inside[:WIDEST] if isinstance(inside, list | tuple) else ())]
            todo += [(inner, depth + 1) for inner in below if inner is not None]


def _within(held: Any, key: Any, value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """The transforms in one place: a Compose of torchvision is taken apart, its StandardTransform too."""
    kind = type(value)
    members = getattr(value, "__dict__", {}).get("transforms")
    if kind.__name__ == "Compose" and _is_torchvision(value) and type(members) is list and depth < DEEPEST_TRANSFORM:
        for number, member in enumerate(members):
            yield from _within(members, number, member, depth + 1)
    elif kind.__name__ == "StandardTransform" and kind.__module__.startswith("torchvision."):
        for name in ("transform", "target_transform"):
            yield from _within(vars(value), name, vars(value).get(name), depth + 1)
    elif _can_be_timed(value):
        yield held, key, value


def _can_be_timed(value: Any) -> bool:
    """Whether something is called for each sample, and whoever has it can do with it only what Python does."""
    kind = type(value)
    if isinstance(value, type) or issubclass(kind, StandIn):
        return False
    if kind in _FUNCTIONS:
        return True
    return isinstance(inspect.getattr_static(kind, "__call__", None), FunctionType) and not has_parts_in_c(kind)


def _is_torchvision(value: Any) -> bool:
    kind = type(value)
    return callable(value) and not issubclass(kind, StandIn) and kind.__module__.startswith("torchvision.transforms.")


def _name_of(transform: Any) -> str:
    name = getattr(transform, "__qualname__", None)
    if isinstance(name, str):
        return name.replace(".<locals>", "")
    inner = getattr(transform, "func", None)
    return type(transform).__qualname__ if inner is None else f"partial {_name_of(inner)}"


FILE_LISTS = ("samples", "imgs", "images", "files", "paths", "filenames", "image_paths", "image_files")
"""Attributes under which datasets keep their files, a path or a tuple that begins with one for each sample."""
DEEPEST = 8
"""Subsets and concatenations a dataset is searched through."""


class Stamped:
    """Stands in for a batch's indices while torch's fetcher goes through them.

    The fetcher makes one sample between two indices that it asks for. So samples are timed without a function of
    ours around the dataset's.
    """

    __slots__ = ("_indices", "slowest", "slowest_ns")

    def __init__(self, indices: Any) -> None:
        self._indices = indices
        self.slowest: Any = None
        """Index of the sample that took longest so far."""
        self.slowest_ns = NOT_MEASURED

    def __len__(self) -> int:
        return len(self._indices)

    def __iter__(self) -> Iterator[Any]:
        before = monotonic_ns()
        for index in self._indices:
            yield index
            now = monotonic_ns()
            if now - before > self.slowest_ns:
                self.slowest, self.slowest_ns = index, now - before
            before = now


def one_by_one(dataset: Any) -> bool:
    """Whether torch's fetcher asks for one sample after another, going through the indices as it does.

    Datasets with a `__getitems__` make whole batches, and may do with the indices what they like. torch's own Subset
    does the same as the fetcher unless what it is a part of has one.
    """
    if type(dataset) is Subset:
        return not callable(getattr(dataset.dataset, "__getitems__", None))
    return not getattr(dataset, "__getitems__", None)


def number_of(index: Any) -> int:
    """An index as a number; `NOT_MEASURED` for keys that are none."""
    try:
        number = operator.index(index)
    except TypeError:
        return NOT_MEASURED
    return number if abs(number) < 1 << 62 else NOT_MEASURED


def file_of(dataset: Any, index: Any) -> str | None:
    """The file of a sample, where its dataset keeps a list of them; nothing of the dataset is called."""
    for _ in range(DEEPEST):
        if isinstance(dataset, Subset):
            dataset, index = dataset.dataset, dataset.indices[index]
        elif isinstance(dataset, ConcatDataset):
            number = operator.index(index)
            part = bisect.bisect_right(dataset.cumulative_sizes, number)
            index = number - (dataset.cumulative_sizes[part - 1] if part else 0)
            dataset = dataset.datasets[part]
        else:
            break
    number = operator.index(index)
    held = getattr(dataset, "__dict__", {})
    for name in FILE_LISTS:
        files: Any = held.get(name)
        if type(files) not in (list, tuple) or not -len(files) <= number < len(files):
            continue
        entry = files[number]
        if type(entry) in (list, tuple) and entry:
            entry = entry[0]
        if isinstance(entry, str | os.PathLike):
            return os.fsdecode(entry)
    return None


LEAST_READ_BYTES = 512
"""A batch for which its thread read so much through system calls was read from files. Less may be anything."""
LEAST_READ_ELSEWHERE_BYTES = 4096
"""The same of other threads of a worker: handing over a batch makes them read about a hundred bytes for each tensor."""
AFFINITY_EVERY = 16
"""Records from one look at the CPUs of the thread to the next: it seldom changes, and costs more the more there are."""
NAMED_SAMPLES = 8
"""The slowest samples of a worker whose files are named."""
LEAST_APART_NS = 10_000_000
"""Records that are not free come in no faster succession."""
MOST_COST_NS = 1_000_000
"""A look that the scheduler interrupted did not cost what it took."""

_SLOT = {field.name: number for number, field in enumerate(BATCH.fields[1:])}
_BEGIN, _END, _SAMPLES = (_SLOT[n] for n in ("begin_ns", "end_ns", "samples"))
_READ, _TRANSFORM, _COLLATE, _CPU = (_SLOT[n] for n in ("read_ns", "transform_ns", "collate_ns", "cpu_ns"))
_MINOR, _MAJOR, _STORED, _CHARS = (_SLOT[n] for n in ("minor_faults", "major_faults", "read_bytes", "read_chars_bytes"))
_BYTES, _QUEUE, _IDLE, _BATCH = (_SLOT[n] for n in ("batch_bytes", "run_queue_ns", "idle_ns", "batch"))
_PROCESS_CPU, _SENT, _CPUS, _FIRST_CPU = (_SLOT[n] for n in ("process_cpu_ns", "sent_bytes", "cpus", "first_cpu"))
_SKIPPED, _SKIPPED_SAMPLES, _SKIPPED_NS = (_SLOT[n] for n in ("skipped", "skipped_samples", "skipped_ns"))
_SLOWEST, _SLOWEST_NS, _SLOWEST_NAME = (_SLOT[n] for n in ("slowest_index", "slowest_ns", "slowest_name"))

_NOT_YET = (0, 0, 0, 0)

Row: TypeAlias = "array[int]"


class BatchRecords:
    """The records of one maker of batches: its batches, the calls of transforms, and what batches consist of.

    A file of the last two is made once there is something to write. Where that fails the rest is recorded without it.
    """

    def __init__(self, folder: Path, rank: int, training: int, worker: int = 0, loader: int | None = None) -> None:
        """`loader`: whose worker this is; `None`: the training makes its batches itself, and records them."""
        self.names = Names(folder)
        self.in_worker = loader is not None
        self._folder = folder
        self._who = rank, training
        self._worker = worker
        self._loader = NOT_MEASURED if loader is None else loader
        self._writers: dict[Kind, RecordWriter | None] = {}
        if self.in_worker:
            self._writers[BATCH] = RecordWriter(folder, BATCH, *self._who, slot=True)

    def batch(self, row: Row) -> None:
        """A batch was made; `row` is the body of its record."""
        if (writer := self._writers[BATCH]) is not None:
            writer.store(row)

    def transform(self, name: int, position: int, calls: int, ns: int) -> None:
        """A transform was called so often for one batch, which took so long."""
        self._append(TRANSFORM, name, position, calls, ns, self._loader)

    def content(self, batch: int, *content: int) -> None:
        """A batch consists of that: the fields of CONTENT after `batch`."""
        self._append(CONTENT, self._loader, batch, *content)

    def look_where_refused(self) -> None:
        """Sample this process's stacks from within, where nobody else may."""
        if (writer := self._writers[BATCH]) is not None and writer.refused:
            look_within(self._folder, stack_options, worker=True)

    def close(self) -> None:
        for writer in self._writers.values():
            if writer is not None:
                writer.close()

    def _append(self, kind: Kind, *fields: int) -> None:
        if kind not in self._writers:
            self._writers[kind] = None
            with contextlib.suppress(RecordError):
                self._writers[kind] = RecordWriter(self._folder, kind, *self._who, slot=self.in_worker)
        if (writer := self._writers[kind]) is not None:
            writer.append(self._who[1], self._worker, *fields)


class FetchTimer(FetchTimerBase):
    """`begins`, then `ends` or `fails`, for each batch. Errors of ours go to the switch and never to the caller.

    The first batches are all recorded; of the rest so many that it costs no more than a small share of the time. The
    next record says how many were left out, and what they took.
    """

    FREE = 100
    """Batches recorded whatever it costs."""
    SPACING = 200
    """From then on, so many times what a look costs lie between two looks: half a percent."""

    def __init__(self, switch: Switch, records: BatchRecords, own_process: bool, **fields: int) -> None:
        """
        Args:
            own_process: the process does nothing but making batches.
            fields: what is the same in all records of this maker: `worker`, `training`, `loader`.
        """
        self.switch = switch
        self.records = records
        self.counters = ThreadCounters(own_process)
        self._content = BatchContent(records.content, records.in_worker)
        self._own_process = own_process
        self._blank: Row = array("q", (NOT_MEASURED for _ in BATCH.fields[1:]))
        for name, value in ({"threads": 1} | fields).items():
            self._blank[_SLOT[name]] = value
        self.indices: Any = None
        """What to give torch's fetcher for the batch's indices."""
        self.number = NOT_MEASURED
        """`batch` of the record of the batch under way."""
        self.idle_ns = NOT_MEASURED
        self._written = NOT_MEASURED
        """`written_bytes` when the batch recorded before began."""
        self._looked = 0
        self._not_before = 0
        """When the next look may be; 0 while looks are free."""
        self._pending: Row | None = None
        """A record that waits to be stored."""
        self.left_out = 0
        """Batches since the last look."""
        self.left_out_samples = 0
        self.left_out_ns = 0
        """What they took."""
        self._left_out_since = 0
        """When the batch under way began, if it is left out; else 0."""
        self._cost = 0
        self._busy = False
        self._fetcher: Any = None
        self._collate: Any = None
        self._asked: Any = None
        self._samples = NOT_MEASURED
        self._made = _NOT_YET
        """Clocks and run queue when the samples were there (`ThreadCounters.between`)."""
        self._begin = Reading(*[0] * len(Reading._fields))
        self._timing: TransformTiming | None = None
        self._named: list[int] = []
        """Times of the slowest samples that were named, as a heap."""

    def begins(self, fetcher: Any, indices: Any, stamps: bool = True) -> bool:
        """A fetcher is about to make a batch; whether it is looked at.

        `stamps`: torch's own function makes it, which goes through the indices.
        """
        now = monotonic_ns()
        if now < self._not_before:
            return self._leaves_out(now, indices)
        if self._busy or not self.switch.on:
            return False
        self._busy = True
        try:
            self._put_in(fetcher, indices, stamps)
            self._begin = self.counters.begin()
            self._cost = self._begin.t_ns - now
            return True
        except BaseException as error:
            self.fails()
            if not isinstance(error, Exception):
                raise
            self.switch.fail(error)
            return False

    def ends(self, batch: Any) -> None:
        """It has."""
        if self._left_out_since:
            self._left_out()
            return
        try:
            try:
                end = self.counters.end()
            finally:
                self._take_out()
            self._record(batch, end)
            now = monotonic_ns()
            cost = min(self._cost + now - end.t_ns, MOST_COST_NS)
            if self._looked >= self.FREE:
                self._not_before = now + max(LEAST_APART_NS, self.SPACING * cost)
        except Exception as error:
            self.switch.fail(error)
        finally:
            self._forget()

    def fails(self) -> None:
        """It has not: an error of the dataset's, or no more samples."""
        try:
            self._take_out()
        except Exception as error:
            self.switch.fail(error)
        finally:
            self._forget()

    def forked(self) -> None:
        """This is a child, perhaps in the midst of a batch: what it has of that is not timed."""
        with ours():
            self._take_out()

    def close(self) -> None:
        self.counters.close()
        self.records.close()

    def _store(self, row: Row) -> None:
        """Record a batch."""
        self.records.batch(row)

    def _leaves_out(self, now: int, indices: Any) -> bool:
        """The batch that is about to be made is only counted; whether it is."""
        if self._busy or not self.switch.on:
            return False
        self._busy = True
        self._left_out_since = now
        self.indices = indices
        return True

    def _left_out(self) -> None:
        """It was made."""
        self.left_out += 1
        self.left_out_ns += monotonic_ns() - self._left_out_since
        self.left_out_samples += len(self.indices) if type(self.indices) is list else 1
        self.indices, self._left_out_since, self._busy = None, 0, False

    def _put_in(self, fetcher: Any, indices: Any, stamps: bool) -> None:
        self._fetcher, self._asked, self.indices = fetcher, indices, indices
        self._collate = fetcher.collate_fn
        self._made = _NOT_YET
        self._samples = NOT_MEASURED
        dataset = fetcher.dataset
        if stamps and fetcher.auto_collation and (hasattr(fetcher, "dataset_iter") or one_by_one(dataset)):
            self.indices = Stamped(indices)
        fetcher.collate_fn = self._collates
        if is_due(self._looked):
            self._timing = TransformTiming(dataset)
        self._content.begins(self._looked, hasattr(fetcher, "dataset_iter"))

    def _take_out(self) -> None:
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.collate_fn = self._collate
        if self._timing is not None:
            self._timing.end()

    def _forget(self) -> None:
        """Nothing of the batch is kept alive."""
        if self._fetcher is not None:  # an interrupt has kept `_take_out` from it
            self._fetcher.collate_fn = self._collate
        self._fetcher = self._collate = self._asked = self.indices = self._timing = None
        self._left_out_since = 0
        self._content.forget()
        self._busy = False

    def _collates(self, samples: Any) -> Any:
        """In the place of the fetcher's `collate_fn`."""
        with self.switch:
            self._made = self.counters.between()
            if self._fetcher.auto_collation and type(samples) in (list, tuple):
                self._samples = len(samples)
                self._content.given(samples)
        with passes_on:
            return self._collate(samples)

    def _record(self, batch: Any, end: Reading) -> None:
        begin = self._begin
        if self._looked % AFFINITY_EVERY == 0:
            self._blank[_CPUS], self._blank[_FIRST_CPU] = affinity()
        row = self._blank[:]
        row[_SKIPPED], row[_SKIPPED_SAMPLES], row[_SKIPPED_NS] = self.left_out, self.left_out_samples, self.left_out_ns
        self.left_out = self.left_out_samples = self.left_out_ns = 0
        row[_BEGIN], row[_END] = begin.t_ns, end.t_ns
        row[_BATCH], row[_IDLE] = self.number, self.idle_ns
        row[_CPU] = end.cpu_ns - begin.cpu_ns
        if self._own_process:
            row[_PROCESS_CPU] = end.process_cpu_ns - begin.process_cpu_ns
            row[_SENT] = _grown(self._written, begin.written_bytes)
            self._written = begin.written_bytes
        row[_QUEUE] = _grown(begin.run_queue_ns, end.run_queue_ns)
        chars = row[_CHARS] = _grown(begin.read_chars_bytes, end.read_chars_bytes)
        row[_STORED] = _grown(begin.read_bytes, end.read_bytes)
        row[_MINOR] = end.minor_faults - begin.minor_faults
        major = row[_MAJOR] = end.major_faults - begin.major_faults
        if self._made[0]:
            row[_COLLATE] = end.t_ns - self._made[0]
        mine = _grown(begin.thread_read_bytes, end.thread_read_bytes)
        if mine >= LEAST_READ_BYTES or chars - max(0, mine) >= LEAST_READ_ELSEWHERE_BYTES or major:
            row[_READ] = self._waited(end)
        elif mine == 0:
            row[_READ] = 0
        samples = self._samples
        if samples == NOT_MEASURED:
            samples = len(self._asked) if type(self._asked) in (list, tuple) else samples_of(batch) or NOT_MEASURED
        row[_SAMPLES] = samples
        row[_BYTES] = bytes_of(batch)
        self._slowest(row)
        self._transforms(row)
        self._content.became(batch, self.number)
        self._looked += 1
        self._store(row)

    def _waited(self, end: Reading) -> int:
        """Time of making the samples in which the thread neither ran nor waited for a CPU.

        Nor waited, as far as can be told, for other threads of its process to compute.
        """
        begin = self._begin
        made = self._made if self._made[0] else (end.t_ns, end.cpu_ns, end.process_cpu_ns, end.run_queue_ns)
        clock, cpu, process, queued = made
        waited = clock - begin.t_ns - (cpu - begin.cpu_ns) - max(0, _grown(begin.run_queue_ns, queued))
        if self._own_process:
            waited -= max(0, process - begin.process_cpu_ns - (cpu - begin.cpu_ns))
        return max(0, waited)

    def _slowest(self, row: Row) -> None:
        stamped = self.indices
        if isinstance(stamped, Stamped):
            index, took = stamped.slowest, stamped.slowest_ns
        elif not self._fetcher.auto_collation and self._made[0]:
            index, took = self._asked, self._made[0] - self._begin.t_ns
        else:
            return
        row[_SLOWEST_NS] = took
        row[_SLOWEST] = number_of(index)
        if len(self._named) == NAMED_SAMPLES and took <= self._named[0]:
            return
        try:
            file = None if row[_SLOWEST] == NOT_MEASURED else file_of(self._fetcher.dataset, index)
        except Exception as error:
            hand_on(error)
            return  # a dataset of its own kind, whose files are not told
        if file is None:
            return
        if len(self._named) == NAMED_SAMPLES:
            heapq.heapreplace(self._named, took)
        else:
            heapq.heappush(self._named, took)
        row[_SLOWEST_NAME] = self.records.names.number(file)

    def _transforms(self, row: Row) -> None:
        timing = self._timing
        if timing is None:
            return
        called = [t for t in timing.transforms if t.calls]
        if called:
            row[_TRANSFORM] = timing.total_ns
        for transform in called:
            name = self.records.names.number(transform.name)
            self.records.transform(name, transform.position, transform.calls, transform.ns)


def _grown(before: int, after: int) -> int:
    return NOT_MEASURED if NOT_MEASURED in (before, after) else max(0, after - before)
