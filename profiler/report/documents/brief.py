"""What the short versions of several documents say alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...analyse.causes.finding import Finding
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ..document import Block, Changes, LinesOfCode, Paragraph, Space
from ..phrase import Bar, PartSign, line
from ..words.figures import LEAST_SHARE, counted, part_name, share

MOST, BAR, LEAST_SAMPLES = 3, 60, 5
"""Lines of code, changes and notes; signs of the bar; stack samples of a line, of which fewer may be chance."""


def time_bar(shares: Mapping[str, float], step_ms: float) -> Iterator[Block]:
    """Where a step's time went, in a bar and a line."""
    shown = [part for part in (*PARTS, UNTOLD) if shares.get(part, 0.0) >= LEAST_SHARE]
    yield Paragraph(line(Bar(shares, BAR)), 1)
    parts = (line(PartSign(part), f" {part_name(part)} {share(shares[part])}   ") for part in shown)
    yield Paragraph(line(*parts, f"a step: {step_ms:.2f} ms"), 1)


def actions(verdict: Finding, found: Sequence[Finding], now: float | None) -> Iterator[Block]:
    """The lines of code, what to change, what else was found; `now`: samples a second."""
    if where := [each for each in verdict.where if each.share is None or each.samples >= LEAST_SAMPLES][:MOST]:
        yield LinesOfCode(tuple(where))
        yield Space()
    if verdict.next:
        yield Changes(verdict.next[:MOST], now)
        yield Space()
    worth = [each for each in found if each is not verdict and each.severity not in ("none", "minor")]
    if worth:
        yield Paragraph(f"Also found: {', '.join(f'{each.cause} ({each.severity})' for each in worth)}.")


def quality(said: Sequence[str], notes: Sequence[str], show: bool = False) -> Iterator[Paragraph]:
    """What it rests on, and how many notes --full has. `show`: print the first, which say why there is no verdict."""
    shown = notes[: MOST * show]
    yield from (Paragraph(f"note: {note}") for note in shown)
    more = [f"{counted(len(notes) - len(shown), 'note')}: --full"] if len(notes) > len(shown) else []
    if said or more:
        yield Paragraph(" · ".join([*said, *more]))
