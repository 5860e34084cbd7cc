"""What a text report prints, cut at its headings: each part is a card of a page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import RenderableType

from ..render.blocks import Block, Heading, blocks_of


@dataclass(frozen=True)
class Section:
    title: str
    """Empty of what stands before the first heading."""
    blocks: tuple[Block, ...]


def sections_of(shown: Iterable[RenderableType]) -> list[Section]:
    """The parts, in their order; without those that hold nothing."""
    parts: list[tuple[str, list[Block]]] = [("", [])]
    for block in blocks_of(shown):
        if isinstance(block, Heading):
            parts.append((block.words, []))
        else:
            parts[-1][1].append(block)
    return [Section(title, tuple(blocks)) for title, blocks in parts if title or blocks]
