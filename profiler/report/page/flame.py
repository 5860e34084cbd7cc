"""Stacks as icicles: a box for each call, as wide as its share of the stack samples, below its caller."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ...analyse.intervals import inside
from ...analyse.run.stall_breakdown import Partition
from ...analyse.where.looks import Looks, ProcessLooks, looks_at, makes
from ...analyse.where.places import is_users, own_part
from ...record.run import Run, Writer
from ...record.stacks import Call
from ..words.code import short_file
from ..words.figures import share

LEAST_SHARE = 0.002
"""Least share of an icicle's stack samples for a call to have a box of its own."""
MOST_BOXES, MOST_DEEP = 1000, 80
"""Of an icicle: boxes, and rows."""
_PARTS = {
    "input": "waiting for data",
    "copy": "waiting for copies to the device",
    "compute": "while the device computes",
    "sync": "in synchronising calls",
    "host": "other work of the training loop",
    "boundary": "outside the steps",
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
    by_part = [(words, parts.when[name]) for name, words in _PARTS.items()]
    rest = ~np.any([inside(when, looks.training.records["t_ns"]) for _, when in by_part], axis=0)
    shown = [(words, looks.training.during(when)) for words, when in by_part]
    return drawn(looks, [*shown, ("before and after the window, or unknown", looks.training.kept(rest))])


def drawn(looks: ProcessLooks, parts: Iterable[tuple[str, Looks]]) -> Stacks:
    """Draw all of it. `parts`: stack samples of the training thread that belong together, each with its name."""
    whole, of, boxes = _good(looks.training), "this thread's stack samples", list[Box]()
    for words, of_part in parts:
        if mine := _good(of_part):
            says, width = f"{words}\n{_spent(mine, whole, of)}", 100 * mine / whole
            boxes.append(Box(words, "", says, "part", mine, width, _boxes(of_part, whole, of)))
    shown = [Icicle("The training thread", whole, tuple(boxes), True)]
    waiting = looks.workers.where(lambda stack: bool(stack) and not makes(stack))
    roles = (
        ("Workers that prepare batches", "the stack samples of workers that prepare a batch", looks.making),
        ("Workers that wait", "the stack samples of workers that wait", waiting),
        ("Threads that send and pin batches", "their stack samples", looks.sending),
        ("Other threads of the training", "their stack samples", looks.threads),
        ("Other processes that it started", "their stack samples", looks.others),
    )
    for name, of, at in roles:
        shown.append(Icicle(name, _good(at), _boxes(at, _good(at), of), at is roles[0][2]))
    every = (looks.training, looks.workers, looks.sending, looks.threads, looks.others)
    icicles = tuple(icicle for icicle in shown if icicle.looks)
    return Stacks(icicles, sum(map(len, every)), sum(each.failed for each in every))


@dataclass(slots=True)
class _CallNode:
    """Stacks that begin alike: how many stack samples saw the call there, and what it called."""

    looks: int = 0
    below: dict[Call, _CallNode] = field(default_factory=dict)


def _boxes(looks: Looks, whole: int, of: str) -> tuple[Box, ...]:
    """Draw the outermost calls of these stacks, each with what it called, most stack samples first: those that most
    saw. `whole`, `of`: stack samples that shares are told of, and what these are."""
    root, nodes = _CallNode(), list[_CallNode]()
    for stack, count in looks.stacks():
        root.looks += count if stack else 0
        at = root
        # Of a worker what it does itself.
        for call in (own_part(stack) or stack)[:MOST_DEEP]:
            if call not in at.below:
                nodes.append(at.below.setdefault(call, _CallNode()))
            at = at.below[call]
            at.looks += count
    least, most = max(1.0, LEAST_SHARE * whole), max(1, MOST_BOXES * root.looks // max(1, whole))
    seen = sorted((node.looks for node in nodes if node.looks >= least), reverse=True)
    if len(seen) > most:
        least = max(least, seen[most] + 1)

    def kept(node: _CallNode) -> tuple[Box, ...]:
        shown = sorted((item for item in node.below.items() if item[1].looks >= least), key=lambda item: -item[1].looks)
        return tuple(box(call, each, node.looks) for call, each in shown)

    def box(call: Call, node: _CallNode, within: int) -> Box:
        name, place = call.function or "?", short_file(call.file) + (f":{call.line}" if call.line else "")
        says = "\n".join(filter(None, (f"{place} in {name}", call.text, _spent(node.looks, whole, of))))
        kind, width = "own" if is_users(call) else "library", 100 * node.looks / max(1, within)
        return Box(name, place, says, kind, node.looks, width, kept(node))

    return kept(root)


def _spent(looks: int, whole: int, of: str) -> str:
    return f"{share(looks / max(1, whole))} of {of} ({looks} of {whole})"


def _good(looks: Looks) -> int:
    return len(looks) - looks.failed
