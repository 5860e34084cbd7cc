"""What the short versions of several documents say alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analyse.causes.finding import Finding
from ..document import Block, Paragraph, Space, changes_section, code_section
from ..words.figures import counted

MOST, LEAST_SAMPLES = 3, 5
"""Lines of code, changes and notes; stack samples of a line, of which fewer may be chance."""


def actions(verdict: Finding, found: Sequence[Finding], now: float | None) -> Iterator[Block]:
    """Show the lines of code, what to change, what else was found; `now`: samples a second."""
    if where := [each for each in verdict.where if each.share is None or each.samples >= LEAST_SAMPLES][:MOST]:
        yield from (code_section(where), Space())
    if verdict.next:
        yield from (changes_section(verdict.next[:MOST], now), Space())
    if worth := [each for each in found if each is not verdict and each.severity not in ("none", "minor")]:
        yield Paragraph(f"Also found: {', '.join(f'{each.cause} ({each.severity})' for each in worth)}.")


def quality(said: Sequence[str], notes: Sequence[str], show: bool = False) -> Iterator[Paragraph]:
    """Say what it rests on, and how many notes --full has. `show`: print the first, which say why there is no
    verdict."""
    shown = notes[: MOST * show]
    yield from (Paragraph(f"note: {note}") for note in shown)
    more = [f"{counted(len(notes) - len(shown), 'note')}: --full"] if len(notes) > len(shown) else []
    if said or more:
        yield Paragraph(" · ".join([*said, *more]))
