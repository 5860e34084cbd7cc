"""How an iterable dataset comes to the samples that it gives: what is made on the way, and not given.

For the length of one batch every call of the worker's thread is looked at. Of the calls that a generator makes itself
(or torch's fetcher, through iterators written in C) it is remembered what they returned. Where what a generator gives
is what its last call returned, or was made of that, the calls before were for nothing: their results were filtered out,
or left to other workers.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import CO_GENERATOR
from time import monotonic_ns
from types import CodeType, FrameType
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as torch_fetch

from ..hooks.switch import hand_on

MOST_EVENTS = 20_000
"""Calls and returns of a batch that are looked at, 0.6 µs each, some 12 ms; what comes later is not."""
OF_A_GIVER = 8
"""So many times as long it takes to look at a call that a generator makes itself, or at what it gives."""
FIRST = (4, 5)
EVERY, OFFSET = 50, 25
"""Batches of a worker that are looked at: two of the first, then one in so many. None whose transforms are timed."""
NEARLY_ALL = 0.8
"""Of what a generator gives, so much has to come from a call for the call to be what makes it."""
REMEMBERED = 3
"""Results of a call since something was given: where two of them are in it, several make one sample."""
WIDEST = 16
"""Parts of what is given, and arguments, that are looked through."""
LIKE_WORKERS = 0.15
"""How far samples made may be from the number of workers for each one given, as a share."""
_FETCH = torch_fetch._IterableDatasetFetcher.fetch.__code__
_NUMBERS = (int, float, bool, str, type(None))


def is_due(number: int) -> bool:
    """Whether the calls of a worker's batch with this number, from 0, are looked at."""
    return number in FIRST or number % EVERY == OFFSET


@dataclass
class _Maker:
    """A place where a generator calls a function or goes through another generator, or a variable that it sets."""

    calls: int = 0
    used: int = 0
    """Of these, whose result was given."""
    ns: int = 0
    """In all calls up to when something was given last."""
    used_ns: int = 0
    pending: list[int] = field(default_factory=list)
    """What the calls since took."""
    results: deque[Any] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    arguments: tuple[Any, ...] = ()
    together: bool = False
    """Several of its results make one sample, or each is made of the one before."""

    def made(self, result: Any, ns: int) -> None:
        self.results.append(result)
        self.pending.append(ns)

    def gave(self, parts: list[Any]) -> None:
        hits = [result for result in self.results if _is_in(result, parts)]
        self.together |= len(hits) > 1
        self.calls += len(self.pending)
        self.ns += sum(self.pending)
        if hits and self.pending:
            self.used += 1
            self.used_ns += self.pending[-1]
        self.pending.clear()
        self.results.clear()


class StreamCalls:
    """`begin` and `end` around a batch; what it learnt of a dataset's generators it keeps for the next."""

    def __init__(self) -> None:
        self._variables: dict[CodeType, set[str]] = {}
        """By generator, those that held what it gave."""
        self._begin_ns = 0
        self._given_ns = 0
        """When torch's fetcher got the last sample that was seen."""
        self._hook: Callable[[FrameType, str, Any], None] | None = None

    def begin(self) -> None:
        """Look at what the calling thread calls from now on; not where something else does so already."""
        if sys.getprofile() is not None or sys.gettrace() is not None:
            return
        self._makers: dict[tuple[CodeType, CodeType | str, int], _Maker] = {}
        """By generator, what it calls, and where in its code; or by the variable, and 0."""
        self._given: dict[CodeType, int] = {}
        self._open: dict[int, tuple[int, tuple[Any, ...]]] = {}
        self._resumed: dict[tuple[CodeType, str], int] = {}
        self._held: dict[tuple[CodeType, str], Any] = {}
        self._events = 0
        self._hook = self._happens
        self._begin_ns = monotonic_ns()
        sys.setprofile(self._hook)

    def end(self) -> tuple[int, int] | None:
        """Time until the last sample that was seen to be given, and how much of it went into what was not, in ns;
        `None` where none was."""
        hook, self._hook = self._hook, None
        if hook is None:
            return None
        if sys.getprofile() == hook:
            sys.setprofile(None)
        seen_ns = self._given_ns - self._begin_ns
        unused = [0]
        info = get_worker_info()
        workers = 1 if info is None else info.num_workers
        for (giver, what, _), maker in self._makers.items():
            if maker.together or not maker.used or maker.used < NEARLY_ALL * self._given.get(giver, 0):
                continue
            each = maker.calls / maker.used
            if isinstance(what, str) and (workers < 2 or abs(each - workers) > LIKE_WORKERS * workers):
                continue  # a window that moves on is set anew as well
            unused.append(maker.ns - maker.used_ns)
        self._makers, self._open, self._held = {}, {}, {}
        return (seen_ns, min(seen_ns, max(unused))) if _FETCH in self._given else None

    def _happens(self, frame: FrameType, event: str, arg: Any) -> None:
        try:
            self._events += 1
            if self._events > MOST_EVENTS:
                sys.setprofile(None)
                return
            back = frame.f_back
            if event == "call":
                if back is not None and _gives(back):
                    self._events += OF_A_GIVER
                    self._watch(back)
                    self._open[id(frame)] = monotonic_ns(), _arguments(frame)
                if _streams(frame):
                    now = monotonic_ns()
                    for name in self._variables.get(frame.f_code, ()):
                        self._resumed[frame.f_code, name] = now
            elif event == "return":
                if arg is not None and _streams(frame):
                    self._events += OF_A_GIVER
                    self._watch(frame)
                    self._gives(frame, arg)
                began = self._open.pop(id(frame), None)
                if began is not None and back is not None and arg is not None:
                    self._returned((back.f_code, frame.f_code, back.f_lasti), arg, *began)
            elif event == "c_return" and frame.f_code is _FETCH and arg.__name__ == "append":
                data = frame.f_locals.get("data")
                if data:
                    self._gives(frame, data[-1])
            elif event == "c_call" and _streams(frame):
                self._watch(frame)
        except Exception as error:
            sys.setprofile(None)
            hand_on(error)

    def _returned(
        self, place: tuple[CodeType, CodeType, int], result: Any, began: int, arguments: tuple[Any, ...]
    ) -> None:
        maker = self._makers.setdefault(place, _Maker())
        maker.together |= any(_is_in(before, list(arguments)) for before in maker.results)
        maker.arguments = arguments
        maker.made(result, monotonic_ns() - began)

    def _gives(self, frame: FrameType, value: Any) -> None:
        giver = frame.f_code
        if giver is _FETCH:
            self._given_ns = monotonic_ns()
        self._given[giver] = self._given.get(giver, 0) + 1
        parts = _parts(value)
        mine = [maker for (of, _, _), maker in self._makers.items() if of is giver]
        for maker in mine:
            if not maker.together and any(_is_in(result, parts) for result in maker.results):
                parts += maker.arguments
        if giver is not _FETCH:
            held = parts if type(value) is not list else [value]
            names = {
                name for name, local in frame.f_locals.items() if type(local) not in _NUMBERS and _is_in(local, held)
            }
            self._variables.setdefault(giver, set()).update(names)
        for maker in mine:
            maker.gave(parts)

    def _watch(self, frame: FrameType) -> None:
        """Whether a generator has set the variables that it gives."""
        for name in self._variables.get(frame.f_code, ()):
            key = frame.f_code, name
            local = frame.f_locals.get(name)
            if local is None or local is self._held.get(key):
                continue
            now = monotonic_ns()
            self._held[key] = local
            maker = self._makers.setdefault((*key, 0), _Maker())
            maker.made(local, now - self._resumed.get(key, now))
            self._resumed[key] = now


def _gives(frame: FrameType) -> bool:
    return frame.f_code is _FETCH or _streams(frame)


def _streams(frame: FrameType) -> bool:
    """Whether a generator may be part of the stream of samples: an expression that a function goes through, as
    `sum(… for … in …)`, makes a part of one."""
    code, back = frame.f_code, frame.f_back
    if not code.co_flags & CO_GENERATOR:
        return False
    return code.co_name != "<genexpr>" or (back is not None and _gives(back))


def _arguments(frame: FrameType) -> tuple[Any, ...]:
    code = frame.f_code
    if code.co_flags & CO_GENERATOR:
        return ()
    held = frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [held[name] for name in names if name in held]
    if code.co_flags & 0x04:  # *args
        found += _parts(held.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount]))
    return tuple(found[:WIDEST])


def _parts(value: Any) -> list[Any]:
    """A value, and what lies in it."""
    if type(value) in (list, tuple):
        return [value, *value[:WIDEST]]
    if type(value) is dict:
        return [value, *list(value.values())[:WIDEST]]
    return [value]


def _is_in(thing: Any, parts: list[Any]) -> bool:
    return type(thing) not in (bool, type(None)) and any(thing is part for part in parts)
