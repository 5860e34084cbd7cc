"""Looks at stacks, planted into a recording: whose, when, and what they saw."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from support.crafted import add, amend, steps_of
from support.stacks import LIB, TORCH
from whyidle.record.reader import Records
from whyidle.record.schema import NOT_MEASURED, STACK, ThreadState
from whyidle.record.stacks import Call, CallStack, StackNames
from whyidle.scenarios.planted import MS, START

MAIN = Call("main", "/home/me/train.py", 61, "train(model, loader)")
NEXT = Call("_BaseDataLoaderIter.__next__", f"{TORCH}/utils/data/dataloader.py", 734, "data = self._next_data()")
WAIT = Call("wait", f"{LIB}/multiprocessing/connection.py", 1136, "ready = selector.select(timeout)")
ENGINE = Call("_engine_run_backward", f"{TORCH}/autograd/graph.py", 829, "return engine.run_backward(")
LOOP = Call("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 351, "data = fetcher.fetch(index)")
ORDER = Call("Queue.get", f"{LIB}/multiprocessing/queues.py", 113, "if not self._poll(timeout):")
FETCH = Call(
    "_MapDatasetFetcher.fetch",
    f"{TORCH}/utils/data/_utils/fetch.py",
    54,
    "data = [self.dataset[idx] for idx in possibly]",
)
OPEN = Call("Shards.__getitem__", "/home/me/data.py", 27, "with zipfile.ZipFile(self.path) as archive:")
CONTENTS = Call("ZipFile._RealGetContents", f"{LIB}/zipfile/__init__.py", 1438, "fp.seek(self.start_dir, 0)")
DECODE = Call("Shards.__getitem__", "/home/me/data.py", 29, "return to_tensor(Image.open(file))")

FETCHING: CallStack = (MAIN, Call("train", "/home/me/train.py", 24, "for images, labels in loader:"), NEXT, WAIT)
FORWARD: CallStack = (MAIN, Call("train", "/home/me/train.py", 27, "loss = model(images, labels)"))
BACKWARD: CallStack = (MAIN, Call("train", "/home/me/train.py", 28, "loss.backward()"), ENGINE)
OPENING: CallStack = (*FETCHING[:2], NEXT, LOOP, FETCH, OPEN, CONTENTS)
"""Of a worker that was forked where the training asked for its first batch."""
DECODING: CallStack = (*FETCHING[:2], NEXT, LOOP, FETCH, DECODE)
WAITING: CallStack = (*FETCHING[:2], NEXT, LOOP, ORDER)

IMPORTING: CallStack = (Call("<module>", "/home/me/train.py", 3, "import torch"),)
LOGGING: CallStack = (
    MAIN,
    Call("train", "/home/me/train.py", 31, "log(<b>loss</b>)"),
    Call("log", "/home/me/logs.py", 8),
)
MONITORING: CallStack = (Call("Thread.run", f"{LIB}/threading.py", 1010), Call("watch", "/home/me/logs.py", 19))

WORKER = 9_000_001
"""The process of a first planted worker; a second one's is the next."""


def look(
    folder: Path,
    at: Iterable[int],
    stack: Callable[[int, int], CallStack | None],
    process: int | None = None,
    thread: int | None = None,
    state: int = ThreadState.RUNS,
) -> Path:
    """Looks at one thread: by default at the one that trains, in this process.

    `stack`: (number of the look, when) → what it saw; `None`: it failed. Another process is one that this one started.
    """
    names = StackNames(folder)
    pid = os.getpid() if process is None else process
    rows = []
    for number, moment in enumerate(at):
        seen = stack(number, moment)
        rows.append(
            {
                "t_ns": moment,
                "process": pid,
                "thread": pid if thread is None else thread,
                "stack": NOT_MEASURED if seen is None else names.number(seen),
                "state": state,
                "flags": 0,
                "parent": NOT_MEASURED if process is None else os.getpid(),
            }
        )
    add(folder, STACK, rows)

    def put_in_order(kept: Records) -> None:
        kept[:] = kept[np.argsort(kept["t_ns"], kind="stable")]
        kept["seq"] = np.arange(1, len(kept) + 1)

    amend(folder, put_in_order, STACK)
    return folder


def plant_stacks(run: Path, end_ns: int, opening: int = 7) -> Path:
    """Looks at a training every 10 ms, and at its two workers in turn.

    Workers wait in two looks of ten; of the others they open an archive in `opening` of eight. One look in fifty fails.
    """
    steps = steps_of(run)
    begins, arrives = steps["fetch_begin_ns"], steps["fetch_end_ns"]
    optimized = steps["optimizer_end_ns"]

    def training(number: int, at: int) -> CallStack | None:
        place = max(0, int(np.searchsorted(begins, at, side="right")) - 1)
        if number % 50 == 49:
            return None
        if at < begins[0]:
            return IMPORTING
        if at < arrives[place]:
            return FETCHING
        return LOGGING if at >= optimized[place] else FORWARD

    def worker(number: int, at: int) -> CallStack:
        return WAITING if number % 10 in (3, 6) else OPENING if number % 8 < opening else DECODING

    look(run, range(START - 200 * MS, end_ns, 10 * MS), training)
    for which in range(2):
        look(run, range(START + 5 * MS + which * 10 * MS, end_ns, 20 * MS), worker, WORKER + which)
    look(run, range(START, end_ns, 80 * MS), lambda *_: MONITORING, None, WORKER + 10)
    return run


def plant_log(run: Path, end_ns: int, every: int, log: Call) -> Path:
    """Looks at a training every 10 ms, of which one in `every` sees it in `log`."""
    rest = (FETCHING, FORWARD, FORWARD)
    at = range(START, end_ns, 10 * MS)
    return look(run, at, lambda number, _: rest[number % 3] if number % every else (MAIN, log))
