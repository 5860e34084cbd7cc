"""The stacks of a thread as a tree, from the outermost function on: shares of the looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...analyse.attached.stacks import short
from ...record.attached import Frame, Stack, Thread

LEAST = 0.01
"""Of the looks at a thread, below which a branch is left out."""
MOST_DEEP = 24
"""Branchings within each other."""
OPEN = 0.25
"""Branches with this share are open from the start."""


@dataclass
class _Node:
    looks: int = 0
    below: dict[tuple[str, str], _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class Branch:
    """A function; functions that only ever call one other are left out on the way to it (`through`)."""

    name: str
    file: str
    share: float
    through: tuple[str, ...]
    below: tuple[Branch, ...]
    rest: float
    """Share of the looks in branches too small to be shown."""

    @property
    def is_open(self) -> bool:
        return self.share >= OPEN


@dataclass(frozen=True)
class Tree:
    name: str
    looks: int
    branches: tuple[Branch, ...]


def tree(name: str, threads: Sequence[Thread]) -> Tree:
    """Of one thread, or of several alike together."""
    root = _Node()
    for thread in threads:
        for stack, looks in thread.stacks.items():
            _add(root, stack, looks)
    return Tree(name, root.looks, tuple(_branches(root, max(1, root.looks), MOST_DEEP)))


def _add(root: _Node, stack: Stack, looks: int) -> None:
    root.looks += looks
    node = root
    for frame in stack:
        node = node.below.setdefault(_key(frame), _Node())
        node.looks += looks


def _key(frame: Frame) -> tuple[str, str]:
    return frame.name, frame.file


def _branches(node: _Node, looks: int, deep: int) -> Iterable[Branch]:
    shown = sorted(node.below.items(), key=lambda item: -item[1].looks)
    return (_branch(key, each, looks, deep) for key, each in shown if each.looks >= LEAST * looks)


def _branch(key: tuple[str, str], node: _Node, looks: int, deep: int) -> Branch:
    through: list[str] = []
    while len(node.below) == 1:
        [(following, only)] = node.below.items()
        if only.looks < node.looks:
            break
        through.append(key[0])
        key, node = following, only
    below = tuple(_branches(node, looks, deep - 1)) if deep > 0 else ()
    hidden = sum(each.looks for each in node.below.values()) / looks - sum(branch.share for branch in below)
    return Branch(key[0], short(key[1]), node.looks / looks, tuple(through), below, max(0.0, hidden))
