"""Writing a trace into a file: piece by piece in order of time, never more than was asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from .events import Event, EventSource, Tracks
from .stretch import Stretch

PIECES = 400
"""A trace is cut between pieces of equal time."""
MOST_EVENTS = 1_000_000
"""Of more, viewers get slow."""


@dataclass(frozen=True)
class Written:
    events: int
    bytes: int
    """Before any compression."""
    cut_ns: int | None
    """Where it was cut because it became too large; `None` where it is whole."""


def write_trace(tracks: Tracks, stretch: Stretch, about: dict[str, Any], most_bytes: int, file: TextIO) -> Written:
    """`about`: what the file says of itself. A trace that is cut has whole events and whole flows all the same."""
    about_bytes = len(_json(about)) + 400
    written = file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    lines = [_json(event) for event in tracks.metadata]
    events = len(lines)
    text = ",\n".join(lines)
    written += file.write(text)
    cut: int | None = None
    for upto, piece in _pieces(tracks.sources, stretch):
        lines = [_json(event) for event in piece]
        text = "".join(f",\n{line}" for line in lines)
        if written + len(text) + about_bytes > most_bytes or events + len(lines) > MOST_EVENTS:
            cut = upto
            break
        written += file.write(text)
        events += len(lines)
    if cut is not None:
        about = about | {"cut": f"at {cut / 1e9:.3f} s: the rest would make the file too large"}
    written += file.write('\n],"otherData":' + _json(about) + "}\n")
    return Written(events, written, cut)


def _pieces(sources: list[EventSource], stretch: Stretch) -> Iterator[tuple[int, Iterator[Event]]]:
    """When a piece begins, and its events. What began before the stretch and reaches into it is in the first piece."""
    edges = np.linspace(stretch.low, stretch.high, PIECES + 1).astype(np.int64)
    places = [
        np.concatenate(([0], np.searchsorted(source.at_ns, edges[1:-1], side="left"), [len(source.at_ns)]))
        for source in sources
    ]
    for number in range(PIECES):
        spans = [(source, int(at[number]), int(at[number + 1])) for source, at in zip(sources, places, strict=True)]
        yield int(edges[number]), _events(spans)


def _events(spans: list[tuple[EventSource, int, int]]) -> Iterator[Event]:
    for source, first, last in spans:
        for place in range(first, last):
            yield from source.make(place)


def _json(value: Any) -> str:
    """In ASCII, so that its length in characters is that in bytes."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
