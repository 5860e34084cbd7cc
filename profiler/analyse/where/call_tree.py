"""Stacks that begin alike drawn together: which calls most looks stand in, from the outermost on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...record.stacks import Call, CallStack


@dataclass(frozen=True, slots=True)
class CallNode:
    """A function that stood at a line, called by those above it in a tree."""

    call: Call
    looks: int
    """That saw it there."""
    below: tuple[CallNode, ...]
    """What it called, most looks first; calls that too few saw are left out, so these may be fewer than `looks`."""


@dataclass(slots=True)
class _Growing:
    looks: int = 0
    below: dict[Call, _Growing] = field(default_factory=dict)


def call_tree(
    stacks: Iterable[tuple[CallStack, int]], least_share: float, most_calls: int, most_deep: int
) -> tuple[CallNode, ...]:
    """The outermost calls of these stacks, each with what it called.

    Args:
        stacks: each with how often it was seen; an empty one adds nothing.
        least_share: of all of these looks; calls that fewer saw are left out.
        most_calls: as many calls are kept, those that most looks saw.
        most_deep: calls within each other that are kept.
    """
    root = _Growing()
    for stack, looks in stacks:
        root.looks += looks if stack else 0
        at = root
        for call in stack[:most_deep]:
            at = at.below.setdefault(call, _Growing())
            at.looks += looks
    least = max(1.0, least_share * root.looks)
    seen = sorted((looks for looks in _all_looks(root) if looks >= least), reverse=True)
    if len(seen) > most_calls:
        least = max(least, seen[most_calls] + 1)
    return _kept(root, least)


def _all_looks(root: _Growing) -> Iterable[int]:
    waiting = list(root.below.values())
    while waiting:
        node = waiting.pop()
        yield node.looks
        waiting.extend(node.below.values())


def _kept(node: _Growing, least: float) -> tuple[CallNode, ...]:
    shown = sorted((item for item in node.below.items() if item[1].looks >= least), key=lambda item: -item[1].looks)
    return tuple(CallNode(call, each.looks, _kept(each, least)) for call, each in shown)
