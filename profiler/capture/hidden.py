"""Errors of the training's code, passed on without a trace of ours."""

from __future__ import annotations

import contextlib
from pathlib import Path

_HERE = __file__.removesuffix("hidden.py")
_API = str(Path(__file__).parents[1] / "api.py")
_INSTALLED = "-packages/whyidle/capture/"
"""In the paths of another installation's: what attaches to a training need not be the one that watches it."""


def is_ours(file: str) -> bool:
    """Whether a source file is of what watches a training: its time is that of the call it was made from."""
    return file.startswith(_HERE) or file == _API or _INSTALLED in file


def forget_frame(error: BaseException) -> None:
    """Take the catching function out of an error's traceback: to be called by it, just before a bare `raise`.

    A bare `raise` adds no entry for the function it stands in, so the traceback reads as if nobody had been there.
    """
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next


class _PassesOn(contextlib.AbstractContextManager[None]):
    """`with passes_on:` does what `forget_frame` does, for the function that the block is in.

    Hooks of every step call `forget_frame` themselves, and save the two calls.
    """

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            forget_frame(error)


passes_on = _PassesOn()


def forget_ours(error: BaseException) -> None:
    """As `forget_frame`, for all functions of ours that lie between the caller and the training's code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    error.__traceback__ = trace
