"""A hook that can fail without the training noticing, and attributes that can be put back."""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
from collections.abc import Callable
from types import CodeType
from typing import Any

_ABSENT = object()


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


class Unexpected(Exception):
    """Something to be hooked is missing or takes other arguments than the hook passes on."""


class Patches:
    """Attributes replaced on classes and modules, each with what it takes to put it back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, wrap: Callable[[Any], Any], *example: Any) -> None:
        """Put `wrap(original)` in the place of `owner.name`.

        Args:
            example: arguments the original must accept, checked where it has a signature.

        Raises:
            Unexpected: there is no such attribute, or it does not take them.
        """
        original = getattr(owner, name, None)
        place = f"{_name(owner)}.{name}"
        if not callable(original):
            raise Unexpected(f"{place} does not exist")
        try:
            inspect.signature(original).bind(*example)
        except TypeError as error:
            raise Unexpected(f"{place} takes other arguments ({error})") from None
        except ValueError:
            pass  # built in, without a signature
        wrapped = wrap(original)
        _look_like(wrapped, original, owner, name)
        self._done.append((owner, name, vars(owner).get(name, _ABSENT), wrapped))
        setattr(owner, name, wrapped)

    def put_back(self) -> None:
        """Restore everything, except where somebody else has put something on top of ours since."""
        while self._done:
            owner, name, before, wrapped = self._done.pop()
            if vars(owner).get(name, _ABSENT) is not wrapped:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def _look_like(wrapped: Any, original: Any, owner: Any, name: str) -> None:
    """As `functools.wraps`; built-in methods lack a module, and what is pickled by name must be found by it."""
    for attribute in ("__name__", "__doc__"):
        with contextlib.suppress(AttributeError):
            setattr(wrapped, attribute, getattr(original, attribute))
    if inspect.isfunction(original):
        wrapped.__module__, wrapped.__qualname__ = original.__module__, original.__qualname__
    elif inspect.isclass(owner):
        wrapped.__module__, wrapped.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
    wrapped.__wrapped__ = original


def _name(owner: Any) -> str:
    if inspect.isclass(owner):
        return f"{owner.__module__}.{owner.__qualname__}"
    return str(getattr(owner, "__name__", owner))
