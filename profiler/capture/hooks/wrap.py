"""Functions of torch replaced by ones that tell us of their calls, and put back again.

`Wraps.around` is how a hook sees calls: it says what it wants to know before and after one, and nothing of how that is
done without the training noticing. `Patches.replace` is for the calls that every step makes, whose hooks are written
out for that.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.compiler import is_dynamo_compiling
from torch.overrides import handle_torch_function, has_torch_function

from ...record.segment import tell_of_fork
from ..hidden import forget_frame
from ..imports import Imports
from .loop import Loop
from .switch import Switch, hand_on, ours

_ABSENT = object()

Before = Callable[..., Any]
"""Of the call's arguments: what `After` is given, `None` where the call is of no interest."""
After = Callable[[Any, Any], object]
"""Of that and what the call returned, `None` where it raised."""


class Unexpected(Exception):
    """Something to be hooked is missing or takes other arguments than the hook passes on."""


class Patches:
    """Functions that a hook has replaced, each with what it takes to put it back. In a forked child they are back."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []
        tell_of_fork(self)

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
        self.put(owner, name, wrapped)

    def put(self, owner: Any, name: str, what: Any) -> None:
        """Put this in the place of `owner.name`."""
        self._done.append((owner, name, vars(owner).get(name, _ABSENT), what))
        setattr(owner, name, what)

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

    def remove(self) -> None:
        """Take the hook out that these functions are."""
        self.put_back()

    def forked(self) -> None:
        """This is a child of the process that trains, a worker of its loader say: there is nothing to see here."""
        self.put_back()


class Wraps(Patches):
    """Functions around which a hook is called."""

    def __init__(self, switch: Switch, listens: Callable[[], bool] | None = None) -> None:
        """
        Args:
            switch: the hook's; while it is off, calls go straight on.
            listens: whether a call made now may be of interest, asked before anything else; default: each may.
        """
        super().__init__()
        self.switch = switch
        self._listens = listens
        self.under_way = False
        """`after` is still to be called: whatever is called until then is part of that."""

    def around(self, owner: Any, name: str, before: Before, after: After | None, *example: Any) -> None:
        """Call `before` and `after` around each call of `owner.name`; arguments, result and errors stay what they are.

        What `before` or `after` raise turns the hook's switch off, and goes no further. Code that torch compiles calls
        the original alone.

        Args:
            example: arguments the original must accept, checked where it has a signature.

        Raises:
            Unexpected: there is no such attribute, or it does not take them.
        """
        switch, listens = self.switch, self._listens
        overloaded = inspect.isclass(owner) and issubclass(owner, torch.Tensor)

        def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                if is_dynamo_compiling():
                    return original(*args, **kwargs)
                told = None
                if switch.on and not self.under_way and (listens is None or listens()):
                    try:
                        told = before(*args, **kwargs)
                    except Exception as error:
                        switch.fail(error)
                returned, ends = None, told is not None and after is not None
                try:
                    self.under_way |= ends
                    if overloaded and has_torch_function(args):
                        # A method of tensors written in C asks subclasses and modes by its own name, which is ours now:
                        # they would be given a function that they do not know (`torch/csrc/utils/python_arg_parser`).
                        returned = handle_torch_function(original, args, *args, **kwargs)
                    else:
                        returned = original(*args, **kwargs)
                except BaseException as error:
                    forget_frame(error)
                    raise
                finally:
                    if ends:
                        # At once: an interrupt may come before `after` has done anything.
                        self.under_way = False
                        try:
                            after(told, returned)  # type: ignore[misc]
                        except Exception as error:
                            switch.fail(error)
                return returned

            return wrapped

        self.replace(owner, name, wrap, *example)


class Hook(Wraps):
    """A hook of one recording: functions of torch that are replaced, or around which it is called."""

    name: ClassVar[str]
    """What is hooked, for people."""
    without: ClassVar[str]
    """What a report lacks without the hook; a clause such as "copies are not measured"."""

    def __init__(
        self,
        loop: Loop,
        listens: Callable[[], bool] | None = None,
        on_failure: Callable[[], object] | None = None,
    ) -> None:
        """
        Args:
            loop: what is told of the training's calls.
            listens: as in `Wraps`.
            on_failure: called when the hook fails, to leave nothing half recorded.
        """
        super().__init__(Switch(self.name, self.without, loop.session.notice, on_failure), listens)
        self._loop, self._session, self._steps, self._now = loop, loop.session, loop.steps, loop.now
        self.imports = Imports()
        """What is to be hooked once it is imported."""

    def install(self) -> None:
        """Put the hook in. Raises `Unexpected` where what it needs is not as expected."""

    def put_back(self) -> None:
        self.imports.forget()
        super().put_back()

    def leave_out(self, error: Exception) -> None:
        """Do without the hook, which this kept from being put in."""
        hand_on(error)
        why = str(error) if isinstance(error, Unexpected) else f"{type(error).__name__}: {error}"
        self.switch.stay_out(why)
        with ours():
            self.remove()


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
