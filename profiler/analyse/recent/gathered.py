"""What was recorded of a run up to some moment: the windows of records that a look is computed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...record.reader import Records, joined
from ...record.run import Run, SampledDevice, TrainingProcess, Writer
from ...record.schema import (
    BATCH,
    DEVICE,
    EVENT,
    HOST,
    KINDS,
    MEMORY,
    NAN,
    NOT_MEASURED,
    PAUSE,
    STACK,
    STEP,
    EventKind,
    Field,
    Kind,
)
from ...record.stacks import StackTable
from .series import HISTORY_S, MAKERS_S, SECOND_NS, last_steps
from .tail import Tail, moments


@dataclass(frozen=True)
class Epoch:
    number: int
    """From 0."""
    begin: int
    """Its first step."""
    previous_steps: int | None
    """Steps of the epoch before; `None` in the first."""


class Epochs:
    """Finds where epochs begin in the files of steps, once each."""

    def __init__(self) -> None:
        self._begins: dict[tuple[str, int], int | None] = {}

    def of(self, name: str, steps: Tail) -> Epoch | None:
        """The epoch that the last step belongs to; `name`: of the file."""
        last = steps.at(steps.seen - 1) if steps.seen else None
        if last is None or len(last) == 0:
            return None
        number = int(last["epoch"][0])
        begin = self._begin(name, steps, number)
        if begin is None:
            return None
        before = self._begin(name, steps, number - 1)
        return Epoch(number, begin, None if before is None else begin - before)

    def _begin(self, name: str, steps: Tail, epoch: int) -> int | None:
        """Number of an epoch's first step; `None` where none was recorded."""
        key = name, epoch
        if key not in self._begins:
            self._begins[key] = self._found(steps, epoch)
        return self._begins[key]

    def _found(self, steps: Tail, epoch: int) -> int | None:
        low, high = 0, steps.seen
        while low < high:
            middle = (low + high) // 2
            record = steps.at(middle)
            if len(record) == 0:
                return None
            if int(record["epoch"][0]) < epoch:
                low = middle + 1
            else:
                high = middle
        first = steps.at(low) if low < steps.seen else None
        if first is None or len(first) == 0 or int(first["epoch"][0]) != epoch:
            return None
        return int(first["step"][0])


PAUSES_A_STEP = 32
"""Pauses of a step that may have device stamps, at most."""
KEPT = {
    STEP.name: 12_000,
    BATCH.name: 2000,
    PAUSE.name: 2048 * PAUSES_A_STEP,
    EVENT.name: 4000,
    DEVICE.name: 16_384,
    HOST.name: 4096,
    MEMORY.name: 4096,
    STACK.name: 4096,
}
"""Records of a file that a look may use. Kernels are not among them: there may be very many."""
TOLD = (
    EventKind.LOADER_WORKERS,
    EventKind.LOADER_PREFETCH,
    EventKind.LOADER_FLAGS,
    EventKind.ALLOCATOR_RETRIES,
    EventKind.LOADER_MADE,
)
"""Events of which the last one counts, however long ago."""
LOOKS_NS = 30 * SECOND_NS
"""How far back stack samples count: workers are looked at in turn."""
ABOUT_AS_MANY = 0.9
"""Share of the most steps of any process that makes a process as good as that one."""


def settled(events: Records) -> Records:
    """The events of the kinds in `TOLD`."""
    kept: Records = events[np.isin(events["what"], TOLD)]
    return kept


MARGIN_S = 10
"""Seconds read before the first one shown: what began in them may reach into it."""


@dataclass(frozen=True)
class ProcessRecords:
    """The last records of one training process, each kind in the order of its moments."""

    name: str
    """Name of the file of its steps."""
    writer: Writer
    host: str
    seen: int
    """STEP records so far."""
    first_ns: int | None
    """When its first step began."""
    steps: Records
    last_steps: Records
    """The last of `steps`, which are judged."""
    batches: Records
    pauses: Records
    events: Records
    """No older than `last_steps`, as batches and pauses are, but for the last events of the kinds in `TOLD`."""

    @property
    def rank(self) -> int:
        return self.writer[0]


@dataclass(frozen=True)
class RunRecords:
    """The last records of all processes of a run, and of its sampler."""

    info: dict[str, Any]
    told: tuple[TrainingProcess, ...]
    now_ns: int
    """The moment of the look, CLOCK_MONOTONIC; of a run that is over, its end."""
    over: str | None
    """How the run ended, or `lost`; `None` while it goes on."""
    processes: tuple[ProcessRecords, ...]
    """Processes that recorded steps, or are about to, by rank and process id."""
    device: Records
    host: Records
    memory: Records
    """Looks at the limits on memory."""
    sampled: tuple[SampledDevice, ...] = ()
    """What the sampler says of the devices it looks at."""
    looks: Records = field(default_factory=lambda: np.empty(0, dtype=STACK.dtype))
    """At stacks."""
    stacks: StackTable = field(default_factory=lambda: StackTable({}))
    """What these looks saw."""
    epoch: Epoch | None = None
    """That the last step of `mine` belongs to."""

    @property
    def mine(self) -> ProcessRecords | None:
        """The lowest rank among the processes that ran about as many steps as any: ranks overtake each other."""
        most = max((process.seen for process in self.processes), default=0)
        return next((process for process in self.processes if process.seen >= ABOUT_AS_MANY * most), None)

    @property
    def device_kind(self) -> str:
        return str((self.info.get("device") or {}).get("kind", "cpu"))

    @property
    def first_ns(self) -> int | None:
        """When the first step of all began."""
        return min((p.first_ns for p in self.processes if p.first_ns is not None), default=None)


class Folder:
    """The files of a run folder."""

    def __init__(self) -> None:
        self.sources: dict[str, Tail] = {}
        """File name → its last records."""
        self.settled: dict[str, Records] = {}
        """All events of `TOLD`, by the name of their file."""
        self._epochs = Epochs()
        self._later: dict[str, list[Field]] = {}
        self._index: dict[tuple[str, Writer | None], list[tuple[str, Tail]]] = {}
        """Sources by kind, and by kind and writer."""
        self._indexed = 0

    def gather(
        self,
        run: Run,
        told: Iterable[TrainingProcess],
        now_ns: int,
        over: str | None,
        sampled: Iterable[SampledDevice],
        stacks: StackTable,
    ) -> RunRecords:
        """Put together what was recorded until now: as far back as it is shown or judged.

        Args:
            run: what run.json says.
            told: what its processes say.
            now_ns: the moment.
            over: how the run ended, if it has.
            sampled: what the sampler says of its devices.
            stacks: as far as they were read.
        """
        self._later = {kind.name: run.unrecorded(kind) for kind in KINDS.values()}
        told = tuple(told)
        hosts = {(process.rank, process.pid): process.host for process in told}
        here = str((run.info.get("host") or {}).get("name", ""))
        writers = {(s.header.rank, s.header.pid): name for name, s in self._of(STEP)}
        parts = tuple(
            self._process(writer, hosts.get(writer) or here, writers[writer], now_ns) for writer in sorted(writers)
        )
        begins = [int(p.last_steps["fetch_begin_ns"][0]) for p in parts if len(p.last_steps)]
        since_ns = min([*begins, now_ns - (HISTORY_S + MARGIN_S) * SECOND_NS])
        device, host, memory = (self._joined(kind, since_ns) for kind in (DEVICE, HOST, MEMORY))
        looks = self._joined(STACK, now_ns - LOOKS_NS)
        found = RunRecords(run.info, told, now_ns, over, parts, device, host, memory, tuple(sampled), looks, stacks)
        mine = found.mine
        return found if mine is None else replace(found, epoch=self.epoch(mine.name))

    def epoch(self, name: str) -> Epoch | None:
        """The epoch that the last step of a file belongs to."""
        return self._epochs.of(name, self.sources[name])

    def newest_ns(self) -> int | None:
        """The last moment that any record tells of."""
        windows = ((source.header.kind, source.records(most=1)) for source in self.sources.values())
        return max((int(moments(kind, rows[-1:])[0]) for kind, rows in windows if len(rows)), default=None)

    def _process(self, writer: Writer, host: str, name: str, now_ns: int) -> ProcessRecords:
        source = self.sources[name]
        first = source.at(0) if source.seen else source.records()
        steps = self._window(source)
        last = last_steps(steps)
        since_ns = int(last["fetch_begin_ns"][0]) if len(last) else now_ns
        shown_ns = now_ns - (MAKERS_S + MARGIN_S) * SECOND_NS
        return ProcessRecords(
            name,
            writer,
            host,
            source.seen,
            int(first["fetch_begin_ns"][0]) if len(first) else None,
            steps,
            last,
            self._joined(BATCH, min(since_ns, shown_ns), writer),
            self._joined(PAUSE, since_ns, writer),
            self._events(writer),
        )

    def _events(self, writer: Writer) -> Records:
        """The window, and what was told before it and still counts."""
        parts = []
        for name, source in self._of(EVENT, writer):
            window = self._window(source)
            told = self.settled.get(name)
            if told is not None and len(window):
                before = told[told["seq"] < window["seq"][0]]
                parts += [before[before["what"] == what][-1:] for what in TOLD]
            parts.append(window)
        return joined(parts, EVENT)

    def _joined(self, kind: Kind, since_ns: int, writer: Writer | None = None) -> Records:
        """The last records of all files of a kind, in the order of their moments; a file's own order is good enough."""
        windows = [self._window(source, since_ns) for _, source in self._of(kind, writer)]
        windows = [window for window in windows if len(window)]
        if not windows:
            return np.empty(0, dtype=kind.dtype)
        if len(windows) == 1:
            return windows[0]
        records = joined(windows, kind)
        ordered: Records = records[np.argsort(moments(kind, records), kind="stable")]
        return ordered

    def _window(self, source: Tail, since_ns: int | None = None) -> Records:
        """The last records of one file; what an older recording does not tell, and holds zeros of, is not measured."""
        records, later = source.records(since_ns), self._later.get(source.header.kind.name)
        if later:
            records = np.array(records)
            for field in later:
                records[field.name] = NAN if field.type == "f8" else NOT_MEASURED
        return records

    def _of(self, kind: Kind, writer: Writer | None = None) -> list[tuple[str, Tail]]:
        """The files of a kind, of one writer or of all, by name."""
        if self._indexed != len(self.sources):
            # Files come, and none is forgotten. A folder may hold many: of each training of a sweep its own.
            self._index.clear()
            for name, source in sorted(self.sources.items()):
                header = source.header
                for whose in (None, (header.rank, header.pid)):
                    self._index.setdefault((header.kind.name, whose), []).append((name, source))
            self._indexed = len(self.sources)
        return self._index.get((kind.name, writer), [])
