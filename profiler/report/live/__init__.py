"""The live view: pure functions of a snapshot. What draws it again and again is the command."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from ...analyse.recent.snapshot import Snapshot
from .layout import lists, screen
from .words import Options, Row, duration, line

__all__ = [
    "Options",
    "Row",
    "as_json",
    "duration",
    "line",
    "lists",
    "render",
    "screen",
]

HEIGHT = 24


def as_json(view: Snapshot) -> dict[str, Any]:
    """Keys as in `analyse/recent/snapshot.py`. Not measured: `null`, in a series NaN, which JSON has as `null`."""
    return {"format": "whyidle-live", "version": 1, **asdict(view)}


def render(view: Snapshot, width: int = 80, height: int = HEIGHT, ascii_only: bool = False) -> RenderableType:
    """The screen for rich: at most `height` rows of at most `width` cells."""
    return Group(*(row.text() for row in screen(view, width, height, Options(ascii_only=ascii_only))))
