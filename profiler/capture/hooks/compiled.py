"""Keeps torch's compiler away from code of ours that runs between the graphs of a compiled training.

Where a compiled function leaves its graph, as it does for a backward pass, Dynamo goes on to compile the functions that
are called there. In a hook it would find "compiling" to be true, and what the hook does would be compiled away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

_PACKAGE = __name__.partition(".capture.")[0]
_OURS = tuple(f"{_PACKAGE}.{folder}" for folder in ("api", "capture", "devices", "record"))


def leave_uncompiled() -> bool:
    """Have every function of ours that is called during a step run as it is; false where this torch has no such wish.

    Does not import Dynamo, which takes seconds: its list of such functions is kept by torch's core.
    """
    skip = _skip()
    if skip is None:
        return False
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and isinstance(module, ModuleType):
            for code in _codes_in(module):
                skip(code)
    return True


def _skip() -> Callable[[CodeType], object] | None:
    core: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    older = getattr(core, "skip_code", None)
    if older is not None:
        return older  # type: ignore[no-any-return]
    try:
        as_it_is = core._FrameExecStrategy(core._FrameAction.SKIP, core._FrameAction.DEFAULT)
        wish = core.set_code_exec_strategy
    except AttributeError:
        return None
    return lambda code: wish(code, as_it_is)


def _codes_in(module: ModuleType) -> Iterator[CodeType]:
    for thing in list(vars(module).values()):
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        for function in _functions_of(thing):
            yield from _with_inner(function.__code__)


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    members = list(vars(thing).values()) if isinstance(thing, type) else [thing]
    for member in members:
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        if isinstance(function, FunctionType):
            yield function


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
