"""Stacks as icicles: a box for each call, as wide as its share of the stack samples, below its caller."""

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
from ..words.figures import share

LEAST_SHARE = 0.002
"""Least share of an icicle's stack samples for a call to have a box of its own."""
MOST_BOXES = 1000
"""Of an icicle."""
MOST_DEEP = 80
_PARTS = {
    "loading": "waiting for data",
    "copying": "waiting for copies to the device",
    "computing": "while the device computes",
    "syncing": "in synchronising calls",
    "hosting": "other work of the training loop",
    "outside": "outside the steps",
}


@dataclass(frozen=True)
class Box:
    """A call, or a part of the steps' time that holds calls."""

    name: str
    place: str
    """Its file and line; empty of a part."""
    says: str
    """All that is known of it, one line each."""
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
    """Stack samples that are not empty."""
    boxes: tuple[Box, ...]
    is_open: bool
    """Whether the page shows it at first."""


@dataclass(frozen=True)
class Stacks:
    """All stack samples of a training process and of what works for it."""

    icicles: tuple[Icicle, ...]
    """One for each kind of work that has stack samples."""
    looks: int
    failed: int
    """Those of `looks` that are empty."""


def stacks_of(run: Run, writer: Writer, parts: Partition) -> Stacks | None:
    """Draw those of a training recorded from within, by `parts` of its time; `None` without stack samples."""
    looks = looks_at(run, writer)
    if looks is None:
        return None
    by_part = [(words, getattr(parts, name)) for name, words in _PARTS.items()]
    rest = ~np.any([inside(when, looks.training.records["t_ns"]) for _, when in by_part], axis=0)
    shown = [(words, looks.training.during(when)) for words, when in by_part]
    return drawn(looks, [*shown, ("before and after the window, or unknown", looks.training.kept(rest))])


def drawn(looks: ProcessLooks, parts: Iterable[tuple[str, Looks]]) -> Stacks:
    """Draw all of it. `parts`: stack samples of the training thread that belong together, each with its name."""
    training = Icicle("The training thread", _good(looks.training), _in_parts(parts, looks.training), True)
    shown = [each for each in (training, *(_calls(*told) for told in _roles(looks))) if each.looks]
    of = (looks.training, looks.workers, looks.sending, looks.threads, looks.others)
    return Stacks(tuple(shown), sum(map(len, of)), sum(each.failed for each in of))


def _roles(looks: ProcessLooks) -> Iterator[tuple[str, str, Looks, bool]]:
    waiting = looks.workers.where(lambda stack: bool(stack) and not makes(stack))
    yield "Workers that prepare batches", "the stack samples of workers that prepare a batch", looks.making, True
    yield "Workers that wait", "the stack samples of workers that wait", waiting, False
    yield "Threads that send and pin batches", "their stack samples", looks.sending, False
    yield "Other threads of the training", "their stack samples", looks.threads, False
    yield "Other processes that it started", "their stack samples", looks.others, False


def _calls(name: str, of: str, looks: Looks, is_open: bool) -> Icicle:
    whole = _good(looks)
    return Icicle(name, whole, _boxes(_tree(looks, LEAST_SHARE, MOST_BOXES), whole, whole, of), is_open)


def _in_parts(parts: Iterable[tuple[str, Looks]], whole: Looks) -> tuple[Box, ...]:
    """Make a box for each part, and in it the calls of its stack samples."""
    of, all_looks = "this thread's stack samples", max(1, _good(whole))
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
    """Show of a worker what it does itself."""
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
    return f"{share(looks / max(1, whole))} of {of} ({looks} of {whole})"


def _good(looks: Looks) -> int:
    return len(looks) - looks.failed
