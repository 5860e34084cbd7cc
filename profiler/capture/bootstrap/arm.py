"""In a process that has imported torch: waits for a training to begin, then records it.

Launchers, compile workers and loader workers import torch too and never train. A recording begins with what only a
training does: it makes an optimizer, or iterates over a loader, a torch one or one of the libraries that are known, or
runs a backward pass.

Where a program makes its loaders is noted from then on, before there is a recording: there their settings are changed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import update_wrapper
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import DataLoader, get_worker_info

from ...record.files import APPENDED
from ...record.notices import ARMED, TRAINING_NOTICES, Notices
from ..hidden import forget_frame, is_ours, passes_on
from ..hooks.identity import ByIdentity
from ..hooks.switch import hand_on, ours
from ..imports import Imports, TimedImports, armed
from ..libraries import SOURCES, Source, called_from
from ..stacks.permit import TRACER, permit
from . import LEAST_TORCH, options, run_folder, too_old

NAMES = ("__module__", "__name__", "__qualname__", "__doc__")
"""Attributes of a function that what stands in for it has as well."""
MOST_CALLS = 64
"""Calls of a stack that are kept, the innermost ones."""

Place = tuple[str, str, int]
"""Function, file and line of a call."""

_made: ByIdentity[tuple[Place, ...]] = ByIdentity()
_unfit = False
"""Whether the hooks could not be loaded: it is not tried again."""


def arm(imports: TimedImports | None = None) -> None:
    """Put triggers on torch. They stay for good: a forked child begins a recording of its own.

    `imports`: what times this Python's imports.

    On a torch that is older than the hooks take nothing is put: that is said in the run's notices.
    """
    if too_old(torch.__version__):
        _notice(
            f"Trainings were not watched: they use torch {torch.__version__}, and the hooks need {LEAST_TORCH} or "
            "newer. Update torch."
        )
        return
    armed(imports)
    _put()
    if (folder := run_folder()) is not None:
        # A spawned worker imports torch before it knows its parent.
        if multiprocessing.parent_process() is None and "--multiprocessing-fork" not in sys.orig_argv:
            with contextlib.suppress(OSError):
                os.close(os.open(folder / ARMED, APPENDED, 0o644))
        permit(os.environ.get(TRACER))


def _put() -> None:
    if "tune" in options():
        from ..tuning.guard import cover_libraries

        cover_libraries()
    _note_loaders()
    _trigger_on_optimizer()
    _trigger(DataLoader, "__iter__")
    with contextlib.suppress(ImportError, AttributeError):
        # Loaders of other libraries (fastai's) make torch's iterators themselves.
        from torch.utils.data import dataloader

        _trigger(dataloader._BaseDataLoaderIter, "__init__")
    _trigger(torch.autograd, "backward")
    imports = Imports()
    for module in {source.module for source in SOURCES}:
        imports.when(module, _trigger_on_library)


def begin(optimizer: Any = None) -> None:
    """Begin recording this process, if it is to be and is not yet. Never raises.

    Args:
        optimizer: the one that was just made, whose parameters tell the device.
    """
    with ours():
        folder = run_folder()
        # A dataset that iterates over a loader of its own, in a worker, is no training.
        if folder is None or get_worker_info() is not None:
            return
        # A child of multiprocessing imports the program's main module, whatever it is for: what it is asked to do
        # follows.
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            return
        if (active := _active()) is None:
            return
        if active.current() is None:
            from ..hooks.learning import gpu_of_parameters

            active.begin(folder, options=options(), gpu=None if optimizer is None else gpu_of_parameters(optimizer))


def _active() -> ModuleType | None:
    """The module that records this process; `None` where it cannot be loaded, which is said once."""
    global _unfit
    if _unfit:
        return None
    try:
        from .. import active
    except Exception as error:
        hand_on(error)
        # What the hooks cannot do without has another name in this torch, or numpy is missing.
        _unfit = True
        _notice(
            f"Trainings were not watched: the hooks cannot be loaded with torch {torch.__version__} "
            f"({type(error).__name__}: {error})."
        )
        return None
    return active


def _notice(sentence: str) -> None:
    if (folder := run_folder()) is not None:
        Notices(folder / TRAINING_NOTICES)(sentence)


def _trigger_on_library(module: ModuleType) -> None:
    for source in SOURCES:
        if source.module == module.__name__ and hasattr(module, source.owner):
            _trigger(getattr(module, source.owner), source.method, source)


def _trigger_on_optimizer() -> None:
    """Call `begin` after an optimizer was made, until the recording has begun."""
    optimizers: Any = torch.optim.Optimizer
    original: Callable[..., Any] = optimizers.__init__
    state = _Trigger()

    def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        with passes_on:
            original(self_, *args, **kwargs)
        if state.rests_in != os.getpid():
            begin(self_)
            state.rest_if_begun()

    optimizers.__init__ = update_wrapper(__init__, original, NAMES, ())


def _trigger(owner: Any, name: str, source: Source | None = None) -> None:
    """Call `begin` before `owner.name`, until the recording has begun.

    `source`: it is a method of this library, which iterates over data for purposes of its own too.
    """
    original: Callable[..., Any] = getattr(owner, name)
    state = _Trigger()

    def triggered(*args: Any, **kwargs: Any) -> Any:
        if state.rests_in == os.getpid() or state.within or (source is not None and called_from(source, 2)):
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                forget_frame(error)
                raise
        state.within = True
        try:
            with passes_on:
                before = getattr(owner, name)
                begin()
                state.rest_if_begun()
                # The hooks lie on top of this trigger now: this very call is the first that they shall see.
                call = getattr(owner, name)
                return call(*args, **kwargs) if call is not before else original(*args, **kwargs)
        finally:
            state.within = False

    setattr(owner, name, update_wrapper(triggered, original, NAMES, ()))


class _Trigger:
    def __init__(self) -> None:
        self.within = False
        self.rests_in = 0
        """Process in which there is nothing left to trigger."""

    def rest_if_begun(self) -> None:
        active = _active()
        if active is None or active.current() is not None:
            self.rests_in = os.getpid()


def _note_loaders() -> None:
    """Note from now on where each DataLoader is made, for as long as this process lives."""
    loaders: Any = DataLoader
    original: Callable[..., None] = loaders.__init__
    if hasattr(original, "_whyidle_notes"):
        return

    def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        with passes_on:
            original(self_, *args, **kwargs)
        with ours():
            _made.put(self_, _calls())

    update_wrapper(__init__, original)
    __init__._whyidle_notes = True  # type: ignore[attr-defined]
    loaders.__init__ = __init__


def made_at(loader: Any) -> tuple[Place, ...]:
    """The calls in which a loader was made, the outermost first; none where that was not seen."""
    return _made.get(loader) or ()


def _calls() -> tuple[Place, ...]:
    calls: list[Place] = []
    frame = sys._getframe(2)
    while frame is not None and len(calls) < MOST_CALLS:
        code = frame.f_code
        if not is_ours(code.co_filename):
            calls.append((code.co_qualname, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back  # type: ignore[assignment]
    calls.reverse()
    return tuple(calls)
