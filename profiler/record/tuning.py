"""What a tuner asks of a training that runs, and what that answers: JSON lines through two named pipes.

The pipes lie in the run folder, so that they are found from whatever process of the command turns out to train. Each
side waits with a look at whether the other still lives; a training whose tuner is gone ends, for nothing
needs its steps.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

DEFAULT_PREFETCH = 2
"""Batches a worker, of torch's DataLoader."""
LONGEST_BLOCK = 4
"""Times the seconds asked for, after which a block ends with the fewest batches, where its steps are slow."""
HELD = "held"
"""`pipeline` of settings that stand for no loader: batches are fetched once, and handed out again and again."""
ORDERS = "tuning.orders"
ANSWERS = "tuning.answers"
MOST_BYTES = 1 << 20
"""Bytes of one message; nothing said here comes near it."""
WITHOUT_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|DefaultCPUAllocator|can(?:no|')t allocate memory|_ALLOC_FAILED"
    r"|unable to mmap|unable to allocate shared memory|(?:out of|insufficient) shared memory"
    r"|torch_\S*>: No space left on device|bus error|sigbus|sigkill|signal: killed",
    re.IGNORECASE,
)
"""Words of a message, or of a line that a program printed: by torch, its libraries, Python or the kernel. That a
disk is full is none of them."""


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are made: what `tune` chooses. The fields are those of `tune --json`."""

    num_workers: int
    prefetch_factor: int | None = None
    """Batches each worker may have under way; `None` without workers."""
    pin_memory: bool = False
    batch_size: int | None = None
    """Samples in a batch; `None`: as the program makes them."""
    pipeline: str | None = None
    """Loader of a scenario; `HELD`: no loader; `None`: the program's own torch DataLoader."""
    in_order: bool = True
    persistent_workers: bool = False

    def __post_init__(self) -> None:
        if self.num_workers == 0 and (self.prefetch_factor is not None or self.persistent_workers or not self.in_order):
            raise ValueError(f"without workers there is nothing to prefetch, persist or order: {self}")
        if self.num_workers > 0 and self.prefetch_factor is None:
            raise ValueError(f"{self.num_workers} workers need a prefetch_factor")

    @property
    def outstanding(self) -> int:
        """Batches under way at most: ordered, being made, or finished and not handed over."""
        return self.num_workers * (self.prefetch_factor or 0)

    @property
    def held(self) -> bool:
        """Whether they stand for no loader."""
        return self.pipeline == HELD

    def without_loader(self) -> LoaderSettings:
        """Give what stands for no loader at this batch size."""
        return LoaderSettings(0, batch_size=self.batch_size, pipeline=HELD)

    def with_workers(self, workers: int) -> LoaderSettings:
        """Give the same with another number of workers, as torch's DataLoader allows it."""
        if workers == 0:
            return replace(self, num_workers=0, prefetch_factor=None, in_order=True, persistent_workers=False)
        return replace(self, num_workers=workers, prefetch_factor=self.prefetch_factor or DEFAULT_PREFETCH)

    @property
    def arguments(self) -> dict[str, Any]:
        """As arguments of torch's DataLoader, the batch size left out; those of workers only where there are any."""
        said: dict[str, Any] = {"num_workers": self.num_workers, "pin_memory": self.pin_memory}
        if self.num_workers:
            said |= {"prefetch_factor": self.prefetch_factor, "persistent_workers": self.persistent_workers}
            said |= {"in_order": self.in_order}
        return said

    def with_arguments(self, arguments: Mapping[str, Any]) -> LoaderSettings:
        """Give the same with these arguments of torch's DataLoader, those of workers as torch has them unsaid."""
        given = dict(arguments)
        workers = self.with_workers(int(given.pop("num_workers", self.num_workers)))
        return replace(workers, **given) if workers.num_workers or "pin_memory" in given else workers

    def changed_to(self, other: LoaderSettings) -> dict[str, Any]:
        """List the arguments of torch's DataLoader to set for `other`, without those that torch sets so by itself."""
        usual = replace(LoaderSettings(1, DEFAULT_PREFETCH), pin_memory=self.pin_memory).arguments
        before = {**usual, **self.arguments}
        return {name: value for name, value in other.arguments.items() if value != before[name]}


class Word:
    """`say` of a message."""

    READY = "ready"
    """Answer: the training runs, its loader was found; its `settings`, `batches_per_epoch`, `samples` of the dataset,
    `fixed`, `device`, and the `steps` done."""
    REFUSED = "refused"
    """Answer: there is nothing to tune here; `why`."""
    MEASURE = "measure"
    """Order: train on with `settings`; drop what was prefetched, settle, then measure `seconds` or longer. With
    `first`, indices of the samples that its first batches are made of: say what memory it takes, too."""
    CLOSE = "close"
    """Order: these `settings` will not be asked for again: end their workers. Not answered."""
    STOP = "stop"
    """Order: end the process at once, saving nothing. Not answered."""
    BLOCK = "block"
    """Answer to MEASURE: a `Block`."""
    FAILED = "failed"
    """Answer to MEASURE: these settings do not work here; `why`. The training goes on."""
    OOM = "oom"
    """The same: for want of memory."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory of a training, bytes. `None`: not known."""

    peak_bytes: int | None
    """The most so far; of a device, what the allocator took from it."""
    capacity_bytes: int | None
    """Size of what there is for this training: what it holds and what is free now, so without what others hold."""
    on_device: bool
    retries: int = 0
    """Times that the allocator had to free its caches to serve a request."""


@dataclass(frozen=True)
class Block:
    """Steps measured in a row with one setting. Times are ns of CLOCK_MONOTONIC."""

    settings: LoaderSettings
    batches: int
    samples: int
    begin_ns: int
    end_ns: int
    """Both at borders of steps; on a device with a queue it was empty at both."""
    wait_ns: int
    """In fetches, between the two."""
    start_ns: int | None = None
    """Where the loader was made anew for this block: from asking for its iterator to its first batch."""
    restart_ns: int | None = None
    """Where its workers persist: the same, of beginning another pass with the same workers. `None`: not measured."""
    workers_bytes: int | None = None
    """Memory of the loader's workers, bytes; what they share is counted once. `None`: not measured."""
    workers_cpus: float | None = None
    """CPUs that the loader's workers used; `None`: not measured."""
    memory: MemoryUse | None = None
    """Most memory that the training took since the order came; `None`: not asked for."""

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / (self.end_ns - self.begin_ns)

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


_KINDS: dict[str, type[Any]] = {"settings": LoaderSettings, "memory": MemoryUse, "block": Block}
"""Names, of what a message holds and of what that holds, under which something else than plain JSON is."""


def _decoded(content: dict[str, Any]) -> dict[str, Any]:
    return {name: _KINDS[name](**value) if name in _KINDS and value else value for name, value in content.items()}


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One side's end of the two pipes."""

    def __init__(self, reads: Path, writes: Path) -> None:
        # Opened for both directions, so that neither side waits for the other to open, and none gets SIGPIPE.
        self._in = os.open(reads, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._out = os.open(writes, os.O_RDWR | os.O_CLOEXEC)
        self._buffer = b""
        # Not select(): a training may have more than 1024 files open.
        self._poll = select.poll()
        self._poll.register(self._in, select.POLLIN)

    @classmethod
    def of_tuner(cls, folder: Path) -> Channel:
        """Make the pipes in the run folder."""
        for name in (ORDERS, ANSWERS):
            os.mkfifo(folder / name, 0o600)
        return cls(folder / ANSWERS, folder / ORDERS)

    @classmethod
    def of_training(cls, folder: Path) -> Channel:
        return cls(folder / ORDERS, folder / ANSWERS)

    def send(self, say: str, **content: Any) -> None:
        """Say something; settings and blocks may be in it."""
        os.write(self._out, json.dumps({"say": say, **content}, default=asdict).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any] | None:
        """Wait so many seconds for the next message, and give it with the settings or block in it; `None`: none came.

        Raises:
            ChannelClosed: what comes is no message.
        """
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left < 0 or not self._poll.poll(1000 * left):
                return None
            self._buffer += os.read(self._in, 65536)
            if len(self._buffer) > MOST_BYTES:
                raise ChannelClosed("a message without end")
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message: dict[str, Any] = json.loads(line, object_hook=_decoded)
            return {**message, "say": message["say"]}
        except (ValueError, TypeError, KeyError) as error:
            raise ChannelClosed(f"no message: {line[:80]!r}") from error

    def close(self) -> None:
        os.close(self._in)
        os.close(self._out)
