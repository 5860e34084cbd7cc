"""What the run waits for so far, since when, and what to try first."""

from __future__ import annotations

from ...analyse.recent.snapshot import UNDER_WAY, Snapshot
from ..words.figures import evidence_value, expected, prediction
from . import words
from .devices import LABEL
from .lines import Row, cut, safe, wrapped
from .options import Options

EVIDENCE = 4
"""Most lines of evidence."""
_STYLE = {"none": "green", "minor": "yellow", "major": "yellow", "critical": "red"}


def verdict(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Detail -1: cause and share, in a row. 0: the verdict in full. 1: and what to do first. 2: and the evidence."""
    if view.state == "watching":
        return []
    head = " verdict"
    if view.verdict is None:
        none = "waiting for the first steps" if view.state in UNDER_WAY else words.NO_STEPS
        return [Row(head.ljust(LABEL)).add(none, "dim")]
    found, room = view.verdict, width - LABEL
    severity = found.severity if found.cause is not None else "none"
    said = f"{found.title}{stretch(view)}"
    style = f"bold {_STYLE[severity]}" if found.cause is not None else ""
    if detail < 0:
        said = safe(found.title) if found.cause is None else f"{safe(found.cause)}, {100 * found.share:.0f} %"
        return [Row(head.ljust(LABEL)).add(cut(said, room, options.ascii_only), style)]
    rows = [Row((head if not i else "").ljust(LABEL)).add(text, style) for i, text in enumerate(wrapped(said, room))]
    if detail and found.next:
        change = found.next[0]
        texts = wrapped(change.change + prediction(change, view.verdict_samples_per_s), room)
        rows += [Row((" try" if not i else "").ljust(LABEL)).add(text) for i, text in enumerate(texts)]
    if detail > 1:
        known = [item for item in found.evidence if item.value is not None][:EVIDENCE]
        for i, item in enumerate(known):
            row = Row((" because" if not i else "").ljust(LABEL))
            value = evidence_value(item.value, item.unit)
            aside = f" {expected(item.expected)}" if item.expected else ""
            what = safe(f"{item.what}: ")
            whole = what + safe(value) + safe(aside)
            if len(whole) > room:
                row.add(cut(whole, room, options.ascii_only))
            else:
                row.add(what, "dim").add(safe(value)).add(safe(aside), "dim")
            rows.append(row)
    return rows


def stretch(view: Snapshot) -> str:
    """What the verdict is about, to follow its sentence: the whole run, its end, or since when the same cause was
    named."""
    if view.verdict_of_whole_run:
        return " (of the whole run)" if view.verdict is not None and view.verdict.cause is not None else ""
    if view.state not in UNDER_WAY:
        return " (of its last seconds; of the whole run: whyidle report)"
    since = view.verdict_since_s
    return f" (for {words.duration(since)})" if since is not None and since >= 1 else ""
