"""The sampler's loop: look, store, wait, until it is told to end or left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import RecordError
from ...record.notices import SAMPLER_NOTICES, Notices
from ...record.schema import DEVICE, HOST, MEMORY
from ...record.segment import EVERY_NS, RecordWriter
from ..stacks.spy import Spy
from .devices import Devices
from .host import Host
from .receiver import Receiver
from .schedule import NS_PER_S, Beat
from .stack_looks import StackLooks
from .start import StackOptions

CANNOT_RECORD = 1
"""Exit code: the run folder cannot be written, or another sampler records into it."""


class Ending:
    """Ends on EOF of standard input, SIGTERM or SIGHUP, the death of the starter, or the run folder's removal.

    The death of the training is no reason: whoever started the sampler says when it is over. Standard input alone
    would not do for the starter's death: a process it has forked may hold the other end of the pipe open.
    """

    def __init__(self, folder: Path, listener: socket.socket | None) -> None:
        """`listener`: where something to read is a reason to wait no longer."""
        self._folder = folder
        self._inputs = [sys.stdin, *([listener] if listener is not None else [])]
        self._starter = os.getppid()
        self._wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Any handler will do: the signal's number arrives in the pipe.
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float, others: Sequence[Spy] = ()) -> bool:
        """Wait, at most that long; true if it is time to end. Returns earlier when input arrives, here or at others."""
        if self.folder_gone() or os.getppid() != self._starter:
            return True
        try:
            poll, stdin = select.poll(), sys.stdin.fileno()
            for each in (*self._inputs, self._wake, *others):
                poll.register(each, select.POLLIN)
            inputs = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
            return self._wake in inputs or (stdin in inputs and os.read(stdin, 4096) == b"")
        except (OSError, ValueError, AttributeError, TypeError):
            # Standard input is closed, or was never there.
            return True

    def folder_gone(self) -> bool:
        return not self._folder.is_dir()


def record(
    folder: Path, pid: int, rate: float, start_ns: int, stacks: StackOptions, listener: socket.socket | None = None
) -> int:
    """Sample into a run folder until told to end. Returns the exit code.

    Args:
        folder: the run.
        pid: root of the training's process tree.
        rate: samples per second.
        start_ns: when the sampler started, on the monotonic clock.
        stacks: which stacks to look at.
        listener: where processes deliver what they have to say.
    """
    say = Notices(folder / SAMPLER_NOTICES)
    receiver = Receiver(folder, listener)
    ending = Ending(folder, listener)
    if not _only_one(folder):
        say("Another sampler already records this run, so a second one ended at once.")
        return CANNOT_RECORD
    try:
        writers = [RecordWriter(folder, kind) for kind in (HOST, MEMORY, DEVICE)]
    except RecordError as error:
        say(f"Host and accelerator figures are not recorded: {error}")
        return CANNOT_RECORD
    looks = None
    try:
        looks = StackLooks(folder, pid, stacks, say) if stacks.rate else None
        host, devices, (to_host, to_memory, to_device) = Host(pid, start_ns), Devices(folder, say, start_ns), writers
        beat = Beat(round(NS_PER_S / rate), time.monotonic_ns())
        ended = False
        while not ended:
            now = time.monotonic_ns()
            wait = min(beat.wait_ns(now), EVERY_NS)
            if looks is None:
                ended = ending.wait(wait / NS_PER_S)
            else:
                ended = ending.wait(min(wait, looks.wait_ns(now)) / NS_PER_S, looks.inputs)
            receiver.refused = looks is not None and looks.refused
            receiver.look()
            now = time.monotonic_ns()
            if ended and ending.folder_gone():
                break
            if looks is not None and not ended:
                looks.look(now, host.members)
            if now < beat.planned_ns and not ended:
                continue
            # The last look comes when it is asked for: it cannot be late.
            late = 0 if ended else beat.taken(now)
            to_host.append(*host.sample(now, late, last=ended))
            if host.memory is not None:
                to_memory.append(*host.memory)
            for body in devices.sample(now, last=ended):
                to_device.append(*body)
    except Exception as error:
        say(f"The sampler ended because of its own defect ({type(error).__name__}: {error}).")
        raise
    finally:
        receiver.close()
        for writer in writers:
            writer.close()
        if looks is not None:
            looks.close()
    return 0


def _only_one(folder: Path) -> bool:
    """Hold the run folder against a second sampler, as long as this process lives."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    # Where the file system has no locks, there is nothing to hold.
    return True
