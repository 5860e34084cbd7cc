"""Stacks of a training and of its loader, as py-spy tells them."""

from __future__ import annotations

from dataclasses import replace

from whyidle.record.attached import Frame, Stack

TORCH = "/venv/lib/python3.12/site-packages/torch"
LIB = "/usr/lib/python3.12"
NEXT = f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__"
FETCH = f"{TORCH}/utils/data/_utils/fetch.py:_MapDatasetFetcher.fetch"
WORKER = f"{TORCH}/utils/data/_utils/worker.py:_worker_loop"
ENGINE = f"{TORCH}/autograd/graph.py:_engine_run_backward"


def stack(*frames: str, text: str = "") -> Stack:
    """Frames as `file:function`, the outermost first; `text` is the source line of the innermost."""
    made = [Frame(name, file, 7) for file, _, name in (f.rpartition(":") for f in ("/home/me/train.py:main", *frames))]
    return (*made[:-1], replace(made[-1], text=text))


BACKWARD = stack(f"{TORCH}/_tensor.py:Tensor.backward", ENGINE)
