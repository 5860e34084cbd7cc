"""A hook that can fail without the training noticing."""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
from collections.abc import Callable
from types import CodeType
from typing import Any


class Switch:
    """One hook: on until something of ours fails in it, then off for good, with one notice."""

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

    def fail(self, error: Exception) -> None:
        """Something of ours went wrong in this hook.

        What a signal handler of the program raised is the program's, wherever it struck: that is raised again.
        """
        if from_a_signal(error):
            raise error
        if not self.on:
            return
        self.on = False
        if self._on_failure is not None:
            with contextlib.suppress(Exception):
                self._on_failure()
        self._say(f"The hook on {self.name} failed and was switched off ({type(error).__name__}: {error})")

    def stay_out(self, why: str) -> None:
        """What this hook needs is not as expected."""
        if self.on:
            self.on = False
            self._say(f"The hook on {self.name} was left out: {why}")

    def _say(self, what: str) -> None:
        with contextlib.suppress(Exception):
            self._notice(f"{what}; {self._without}.")


def from_a_signal(error: BaseException) -> bool:
    """Whether one of the program's signal handlers raised it, a time limit by SIGALRM say."""
    handlers = {code for number in signal.valid_signals() if (code := _code_of(signal.getsignal(number))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = inspect.unwrap(handler) if inspect.isfunction(handler) else handler
    function = getattr(handler, "__func__", handler)
    if not inspect.isfunction(function):
        function = getattr(type(handler), "__call__", None)  # noqa: B004 - the function itself is wanted
    return getattr(function, "__code__", None)
