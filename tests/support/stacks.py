"""Stacks of a training and of its loader, and recordings from outside that saw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from whyidle.analyse.attached.stacks import is_training
from whyidle.analyse.attached.trainers import SeenThread
from whyidle.record.schema import NOT_MEASURED, STACK, ThreadState
from whyidle.record.segment import RecordWriter
from whyidle.record.stacks import Call, CallStack, StackNames
from whyidle.scenarios.planted import MS, START

TORCH = "/venv/lib/python3.12/site-packages/torch"
LIB = "/usr/lib/python3.12"
NEXT = f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__"
FETCH = f"{TORCH}/utils/data/_utils/fetch.py:_MapDatasetFetcher.fetch"
WORKER = f"{TORCH}/utils/data/_utils/worker.py:_worker_loop"
ENGINE = f"{TORCH}/autograd/graph.py:_engine_run_backward"


def stack(*frames: str, text: str = "") -> CallStack:
    """Frames as `file:function`, the outermost first; `text`: the source line of the innermost."""
    made = [Call(name, file, 7) for file, _, name in (f.rpartition(":") for f in ("/home/me/train.py:main", *frames))]
    return (*made[:-1], replace(made[-1], text=text, line=7 + len(text)))


WAIT = stack(
    NEXT, f"{TORCH}/utils/data/dataloader.py:_try_get_data", f"{LIB}/queue.py:Queue.get", f"{LIB}/selectors.py:select"
)
CALL = f"{TORCH}/nn/modules/module.py:Module._call_impl"
IMPORTS = (
    "<frozen importlib._bootstrap>:_find_and_load",
    "<frozen importlib._bootstrap_external>:_LoaderBasics.exec_module",
)
BACKWARD = stack(f"{TORCH}/_tensor.py:Tensor.backward", ENGINE)


def record_threads(
    folder: Path,
    threads: Iterable[SeenThread],
    parents: Mapping[int, int] | None = None,
    before: Sequence[CallStack] = (),
) -> None:
    """Looks, ten a second at each thread, whose stacks take turns from one that trains on; last those it
    missed. `before`: those before that."""
    writer, names = RecordWriter(folder, STACK), StackNames(folder)
    for thread in threads:
        turns = sorted(
            (number / count, not is_training(seen), at, seen)
            for at, (seen, count) in enumerate(thread.stacks.items())
            for number in range(count)
        )
        stood = [names.number(seen) for seen in [*before, *(seen for *_, seen in turns)]]
        stood += [NOT_MEASURED] * thread.missed
        for number, at in enumerate(stood):
            parent = (parents or {}).get(thread.pid, NOT_MEASURED)
            writer.append(START + 100 * number * MS, thread.pid, thread.tid, at, ThreadState.RUNS, 0, parent)
    writer.close()
