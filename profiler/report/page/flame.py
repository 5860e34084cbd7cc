"""Stacks as icicles: a box a call, as wide as its share of the looks, below the one that called it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ...analyse.intervals import inside
from ...analyse.run.stall_breakdown import Partition
from ...analyse.where.call_tree import CallNode, call_tree
from ...analyse.where.looks import Looks, ProcessLooks, looks_at, makes
from ...analyse.where.places import is_users, own_part
from ...record.run import Run, Writer
from ...record.stacks import Call, CallStack
from ..words.code import short_file
from ..words.figures import counted, share

LEAST_SHARE = 0.002
"""Of the looks of an icicle, below which a call is no box of its own."""
MOST_BOXES = 1000
"""Of an icicle."""
MOST_DEEP = 80
_PARTS = {
    "loading": "waiting for data",
    "copying": "waiting for copies to the device",
    "computing": "while the device computed",
    "syncing": "in synchronising calls",
    "hosting": "other work of the training loop",
    "outside": "outside the steps",
}


@dataclass(frozen=True)
class Box:
    """A call, or a part of the steps' time that calls stand in."""

    name: str
    place: str
    """Its file and line; empty of a part."""
    says: str
    """All that is known of it, in lines."""
    kind: str
    """`own`: code of the user's own; `library`; `part`."""
    looks: int
    width: float
    """Of the box that it lies in, 0..100."""
    below: tuple[Box, ...]


@dataclass(frozen=True)
class Icicle:
    """The stacks of threads that do the same."""

    name: str
    """Whose, in words."""
    looks: int
    """That saw a stack."""
    boxes: tuple[Box, ...]
    is_open: bool
    """Before anyone has asked for it."""


@dataclass(frozen=True)
class Stacks:
    """All that was seen of the stacks of a training process and of what works for it."""

    icicles: tuple[Icicle, ...]
    """One for each kind of work that there are looks at."""
    looks: int
    failed: int
    """Of `looks`, those that saw nothing."""


def stacks_of(run: Run, writer: Writer, parts: Partition) -> Stacks | None:
    """Of a training that was recorded from within, by `parts` of its time; `None` where no stacks were looked at."""
    looks = looks_at(run, writer)
    if looks is None:
        return None
    by_part = [(words, getattr(parts, name)) for name, words in _PARTS.items()]
    rest = ~np.any([inside(when, looks.training.records["t_ns"]) for _, when in by_part], axis=0)
    shown = [(words, looks.training.during(when)) for words, when in by_part]
    return drawn(looks, [*shown, ("before and after the window, or not told apart", looks.training.kept(rest))])


def drawn(looks: ProcessLooks, parts: Iterable[tuple[str, Looks]]) -> Stacks:
    """All of it. `parts`: looks at the thread that trains which belong together, each with what they are, in words."""
    training = Icicle("The thread that trains", _good(looks.training), _in_parts(parts, looks.training), True)
    shown = [each for each in (training, *(_calls(*told) for told in _roles(looks))) if each.looks]
    of = (looks.training, looks.workers, looks.sending, looks.threads, looks.others)
    return Stacks(tuple(shown), sum(map(len, of)), sum(each.failed for each in of))


def _roles(looks: ProcessLooks) -> Iterator[tuple[str, str, Looks, bool]]:
    waiting = looks.workers.where(lambda stack: bool(stack) and not makes(stack))
    yield "Workers that make batches", "looks at workers that make a batch", looks.making, True
    yield "Workers that wait", "looks at workers that make none", waiting, False
    yield "Threads that send and pin batches", "looks at them", looks.sending, False
    yield "Other threads of the training", "looks at them", looks.threads, False
    yield "Other processes that it started", "looks at them", looks.others, False


def _calls(name: str, of: str, looks: Looks, is_open: bool) -> Icicle:
    whole = _good(looks)
    return Icicle(name, whole, _boxes(_tree(looks, LEAST_SHARE, MOST_BOXES), whole, whole, of), is_open)


def _in_parts(parts: Iterable[tuple[str, Looks]], whole: Looks) -> tuple[Box, ...]:
    """A box for each part, and in it the calls of the looks that fell into it."""
    of, all_looks = "the looks at this thread", max(1, _good(whole))
    boxes = []
    for words, looks in parts:
        mine = _good(looks)
        if mine == 0:
            continue
        calls = _tree(looks, LEAST_SHARE * all_looks / mine, max(1, MOST_BOXES * mine // all_looks))
        says = f"{words}\n{_spent(mine, all_looks, of)}"
        boxes.append(Box(words, "", says, "part", mine, 100 * mine / all_looks, _boxes(calls, mine, all_looks, of)))
    return tuple(boxes)


def _tree(looks: Looks, least_share: float, most: int) -> tuple[CallNode, ...]:
    return call_tree(((_shown(stack), count) for stack, count in looks.stacks()), least_share, most, MOST_DEEP)


def _shown(stack: CallStack) -> CallStack:
    """Of a worker what it does itself."""
    return own_part(stack) or stack


def _boxes(nodes: Iterable[CallNode], within: int, whole: int, of: str) -> tuple[Box, ...]:
    return tuple(
        Box(
            node.call.function or "?",
            _place(node.call),
            "\n".join(filter(None, (_named(node.call), node.call.text, _spent(node.looks, whole, of)))),
            "own" if is_users(node.call) else "library",
            node.looks,
            100 * node.looks / max(1, within),
            _boxes(node.below, node.looks, whole, of),
        )
        for node in nodes
    )


def _place(call: Call) -> str:
    return f"{short_file(call.file)}:{call.line}" if call.line else short_file(call.file)


def _named(call: Call) -> str:
    return f"{_place(call)} in {call.function or '?'}"


def _spent(looks: int, whole: int, of: str) -> str:
    return f"{share(looks / max(1, whole))} of {of}; {counted(looks, 'look')}"


def _good(looks: Looks) -> int:
    return len(looks) - looks.failed
