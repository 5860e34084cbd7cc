"""Ways of getting files and batches to whoever needs them, each to be done alone: what `ceilings` measures of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import cycle
from mmap import PAGESIZE, mmap
from pathlib import Path
from queue import SimpleQueue
from socket import recv_fds, send_fds, socketpair
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the protocol imports torch, which is not needed here
    from .protocol import Image


def uncached(files: Sequence[Path]) -> Callable[[], object] | None:
    """Reads one file after the other from where it is stored: what the system keeps of it in memory is given up first.
    `None` where the system keeps it all the same, as of a file system that is in memory."""
    if not _forgotten(files[0]):
        return None
    turn = cycle(files)

    def one() -> object:
        with next(turn).open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.read()

    return one


def _forgotten(path: Path) -> bool:
    """Whether the system gives a file up when asked to: then the file is not read without waiting."""
    try:
        with path.open("rb", buffering=0) as file:
            file.read()
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # it cannot be told there
        return False
    return False


def into_a_batch(images: Sequence[Image], batch: Image) -> Callable[[], object]:
    """Copies one image after the other into its place in the batch."""
    turn, places = cycle(images), cycle(batch)

    def one() -> object:
        np.copyto(next(places), next(turn))
        return batch

    return one


def to_a_thread(batch: Image) -> Callable[[], object]:
    """Through a queue to another thread, and its answer back."""
    there: SimpleQueue[Image] = SimpleQueue()
    back: SimpleQueue[Image] = SimpleQueue()

    def answer() -> None:
        while True:
            back.put(there.get())

    Thread(target=answer, daemon=True).start()

    def one() -> object:
        there.put(batch)
        return back.get()

    return one


def to_a_process(batch: Image) -> object:
    """As torch's DataLoader does: into fresh shared memory, whose descriptor is sent, and which is then seen there."""
    here, there = socketpair()
    with here, there:
        file = os.memfd_create("whyidle-ceiling")
        try:
            os.ftruncate(file, batch.nbytes)
            with mmap(file, batch.nbytes) as memory:
                made = np.ndarray(batch.shape, batch.dtype, buffer=memory)
                made[...] = batch
                del made
            send_fds(here, [b"1"], [file])
        finally:
            os.close(file)
        _, (received, *_), _, _ = recv_fds(there, 1, 1)
        try:
            with mmap(received, batch.nbytes) as memory:
                return sum(memory[place] for place in range(0, batch.nbytes, PAGESIZE))
        finally:
            os.close(received)
