"""A program run for a few optimizer steps with another batch size, in a process that does nothing else.

Where the program makes a DataLoader (or a BatchSampler) of its usual batch size, it gets one of the size to try: as if
the number had been changed in its code. So everything is of that size from the first step on, the memory that was
taken at most tells of nothing else, and what libraries make of a loader (Lightning, accelerate) is made of the right
one. A loader of another size, for validation say, is left alone.

*Options.* In those for `tune`: `"probe": {"batch_size": 64, "was": 16, "steps": 20, "seconds": 9.0, "first": [17, 3],
"tuner": PID}`.
`steps` of the optimizer, or as many as `seconds` allow, but 3 at least. `first`: indices of samples that the first
batches are made of, over and over, for the worst case. `tuner`: the process whose end ends the program.

*What comes back.* `probe-PID.json` in the run folder, written anew with each step: `steps`, `done`, `loaders` made with
the size, whether `first` was used, and `memory` (`MemoryUse`). When done, the process ends at once: it saves nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch.optim import optimizer as torch_optimizer
from torch.utils.data import BatchSampler, DataLoader

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Device
from ...record.files import write_json
from ..memory_limits import memory_available
from .processes import PROC, descendants, goes_first, kill_descendants, lives, proportional_bytes


@dataclass(frozen=True)
class MemoryUse:
    """Memory of this training, bytes. `None`: not known."""

    peak_bytes: int | None
    """The most so far; of a device, what the allocator took from it."""
    capacity_bytes: int | None
    """Size of what there is for this training: what it holds and what is free now, so without what others hold."""
    on_device: bool
    retries: int = 0
    """Times that the allocator had to free its caches to serve a request."""
    refused: int = 0
    """Times that it could not serve one after that."""


def memory_use(device: Device | None = None) -> MemoryUse:
    """Measure this process and, where the processor is the device, its children.

    Args:
        device: an emulated one has a memory of its own; else what torch uses is looked at.
    """
    if isinstance(device, EmulatedDevice):
        return MemoryUse(device.peak_bytes, device.spec.memory_bytes, True, device.allocation_retries() or 0)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    # Nothing is initialised for it.
    if cuda is None or not cuda.is_initialized():
        return _of_host()
    most, gpu = max((cuda.max_memory_allocated(index), -index) for index in range(cuda.device_count()))
    if not most:
        return _of_host()
    # Other processes' memory, and this one's context, is neither free nor reserved.
    stats, (free, _) = cuda.memory_stats(-gpu), cuda.mem_get_info(-gpu)
    peak, capacity = int(cuda.max_memory_reserved(-gpu)), int(free) + int(cuda.memory_reserved(-gpu))
    return MemoryUse(peak, capacity, True, int(stats.get("num_alloc_retries", 0)), int(stats.get("num_ooms", 0)))


def _of_host() -> MemoryUse:
    """Measure resident memory against what the machine or the control group can give; or, where the address space is
    limited to less than that, what is mapped of it."""
    own: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "self" / "status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("VmPeak", "VmHWM", "VmRSS"):
                own[name] = 1024 * int(rest.split()[0])
    children = sum(proportional_bytes(pid) for pid in descendants(os.getpid()))
    peak = own.get("VmHWM", 0) + children
    capacity = (memory_available() or 0) + own.get("VmRSS", 0) + children
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < capacity:
        return MemoryUse(own.get("VmPeak"), limit, False)
    return MemoryUse(peak or None, capacity if peak else None, False)


LEAST_STEPS = 3
WORST_BATCHES = 2
"""Batches of `first` samples in a pass: the second meets the optimizer's state."""


def install(folder: Path, asked: dict[str, Any]) -> None:
    """Called once torch is imported, before the program makes a loader.

    Raises:
        KeyError, TypeError, ValueError: `asked` is not as above.
    """
    probe = Probing(folder, asked)
    _resize(DataLoader, "batch_size", 1, probe, unless=("batch_sampler", 4))
    _resize(BatchSampler, "batch_size", 1, probe)
    if probe.first:
        probe.lead_with_worst()
    torch_optimizer.register_optimizer_step_post_hook(lambda *_: probe.stepped())


class Probing:
    """Counts steps, and ends the process when there were enough."""

    def __init__(self, folder: Path, asked: dict[str, Any], device: Device | None = None) -> None:
        """
        Raises:
            KeyError, TypeError, ValueError: `asked` is not as above.
        """
        self.size = int(asked["batch_size"])
        self.was = int(asked["was"])
        self.first = [int(index) for index in asked.get("first", ())]
        self.loaders = 0
        self._steps_wanted = max(LEAST_STEPS, int(asked["steps"]))
        self._seconds = float(asked["seconds"])
        self._tuner = int(asked.get("tuner", 0))
        self._folder = folder
        self._device = device
        self._steps = 0
        self._worst = 0
        self._began = 0.0
        self._failed = False
        goes_first()

    def stepped(self) -> None:
        """After each step of an optimizer; a program with several is done sooner."""
        if self._failed:
            return
        try:
            self._count()
        except Exception:
            # The tuner sees no result, and says so.
            self._failed = True

    def lead_with_worst(self) -> None:
        """Have each pass of a batch sampler of our size begin with the samples that take most."""
        draw: Callable[[Any], Iterator[Any]] = BatchSampler.__iter__
        probe = self

        @functools.wraps(draw)
        def worst_first(sampler: Any) -> Iterator[Any]:
            batches = draw(sampler)
            if sampler.batch_size == probe.size:
                endless = itertools.cycle(probe.first)
                for _ in itertools.islice(batches, WORST_BATCHES):
                    probe._worst += 1
                    yield list(itertools.islice(endless, probe.size))
            yield from batches

        BatchSampler.__iter__ = worst_first  # type: ignore[method-assign]

    def _count(self) -> None:
        now = time.monotonic()
        self._began = self._began or now
        self._steps += 1
        spent = now - self._began
        done = self._steps >= self._steps_wanted or (self._steps >= LEAST_STEPS and spent > self._seconds)
        if self._steps <= LEAST_STEPS or done or self._steps % 4 == 0:
            self._write(done)
        if self._tuner and not lives(self._tuner):
            kill_descendants()
            done = True
        if done:
            os._exit(0)

    def _write(self, done: bool) -> None:
        said = {
            "pid": os.getpid(),
            "steps": self._steps,
            "done": done,
            "loaders": self.loaders,
            "worst_first": self._worst > 0,
            "memory": asdict(memory_use(self._device)),
        }
        write_json(self._folder / f"probe-{os.getpid()}.json", said)


def _resize(owner: Any, name: str, place: int, probe: Probing, unless: tuple[str, int] | None = None) -> None:
    """Have `owner` made with the probe's size where it is made with the program's.

    Args:
        place: of the argument `name`, `self` not counted.
        unless: another argument and its place; where that is given, this one means nothing.
    """
    make = owner.__init__

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        def given(name: str, place: int, default: Any) -> Any:
            return args[place] if len(args) > place else kwargs.get(name, default)

        with contextlib.suppress(Exception):
            if (unless is None or given(*unless, None) is None) and given(name, place, 1) == probe.was:
                probe.loaders += 1
                if len(args) > place:
                    args = (*args[:place], probe.size, *args[place + 1 :])
                else:
                    kwargs = {**kwargs, name: probe.size}
        make(self, *args, **kwargs)

    owner.__init__ = made
