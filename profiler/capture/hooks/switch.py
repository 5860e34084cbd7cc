"""A hook that can fail without the training noticing."""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
from collections.abc import Callable, Iterator
from opcode import opname
from types import CodeType
from typing import Any

_BETWEEN = ("RESUME", "JUMP_BACKWARD")
"""Instructions that raise nothing themselves: Python asks there whether a signal came."""


class Switch:
    """One hook: on until something of ours fails in it, then off for good, with one notice.

    As a context (`with switch:`) it takes an error of ours in the block, which ends there. The hooks of every step
    catch what fails themselves, and save the two calls.
    """

    __slots__ = ("_notice", "_on_failure", "_without", "name", "on")

    def __init__(
        self,
        name: str,
        without: str,
        notice: Callable[[str], object],
        on_failure: Callable[[], object] | None = None,
    ) -> None:
        """
        Args:
            name: what is hooked, for people.
            without: what a report lacks without this hook; a clause such as "copies are not measured".
            on_failure: called when the hook fails, to leave nothing half recorded.
        """
        self.name = name
        self.on = True
        self._without = without
        self._notice = notice
        self._on_failure = on_failure

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None or from_a_signal(error):
            return False
        self.fail(error)
        return True

    def fail(self, error: BaseException) -> None:
        """Something of ours went wrong in this hook.

        What a signal handler of the program raised is the program's, wherever it struck: that is raised again.
        """
        hand_on(error)
        if not self.on:
            return
        self.on = False
        if self._on_failure is not None:
            with ours():
                self._on_failure()
        self._say(f"The hook on {self.name} failed and was switched off ({type(error).__name__}: {error})")

    def stay_out(self, why: str) -> None:
        """What this hook needs is not as expected."""
        if self.on:
            self.on = False
            self._say(f"The hook on {self.name} was left out: {why}")

    def _say(self, what: str) -> None:
        with ours():
            self._notice(f"{what}; {self._without}.")


class ours(contextlib.AbstractContextManager[Any, bool]):  # noqa: N801 - as `contextlib.suppress`
    """Errors of ours end the block and are forgotten."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        return error is not None and not from_a_signal(error)


def hand_on(error: BaseException) -> None:
    """Raise again what is the program's."""
    if from_a_signal(error):
        raise error


def from_a_signal(error: BaseException) -> bool:
    """Whether it is the program's, which was interrupted in our code: what is no `Exception`, as Ctrl-C, and what one
    of its signal handlers raised, a time limit by SIGALRM say.

    A handler is known by its frame. One that is written in C has none: where it struck between two instructions of
    ours it is known by that, where it struck as a function in C returned it is not.
    """
    if not isinstance(error, Exception):
        return True
    handlers = {code for number in signal.valid_signals() for code in _codes_of(signal.getsignal(number))}
    last, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        last, trace = trace, trace.tb_next
    # Functions that Cython made have frames without a place.
    return last is not None and last.tb_lasti >= 0 and opname[last.tb_frame.f_code.co_code[last.tb_lasti]] in _BETWEEN


def _codes_of(handler: Any) -> Iterator[CodeType]:
    """Of a handler, and of what it wraps."""
    for _ in range(8):
        function = getattr(handler, "__func__", handler)
        if not inspect.isfunction(function):
            function = getattr(type(handler), "__call__", None)  # noqa: B004 - the function itself is wanted
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        handler = handler.func if isinstance(handler, functools.partial) else getattr(handler, "__wrapped__", None)
