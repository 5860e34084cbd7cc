"""What a planted fault really cost, from the training's own stamps and what the device's engines did.

Nothing here is told by the analysis; only the window is its, so that both speak of the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from whyidle.devices.conditions import Conditions
from whyidle.record.run import Run
from whyidle.record.schema import SPAN, SpanKind

from .case import EVERY, Case, Hit

TRUTH = "truth.json"

ORDER = ("start", "lost", "compute", "boundary", "lost copying", "copying", "fetch", "copy", "sync", "host")
"""Of what happens at an instant, the earlier counts."""


class Stamp(NamedTuple):
    """Something the training did, by its own clock. `copy` and `boundary` among them, `compute` on the processor."""

    what: str
    begin_ns: int
    end_ns: int
    tag: str = ""


class EngineSpan(NamedTuple):
    """Something an engine of the device did: `compute` or `copying`, and what of it was `lost` or `lost copying`."""

    what: str
    begin_ns: int
    end_ns: int


def is_hit(hit: Hit, tag: str) -> bool:
    return hit(tag) if callable(hit) else hit in (EVERY, tag)


def exposed_ns(
    stamps: Iterable[Stamp], spans: Iterable[EngineSpan], begin_ns: int, end_ns: int, part: str, hit: Hit
) -> int:
    """Time within [begin, end) that a part took, and nothing that counts more: with the device not computing.

    Only the stamps that are hit count; those of the device's own all do.
    """
    marks: list[tuple[int, int, str, bool]] = []
    for what, low, high, hits in (
        *((s.what, s.begin_ns, s.end_ns, is_hit(hit, s.tag)) for s in stamps),
        *((s.what, s.begin_ns, s.end_ns, True) for s in spans),
    ):
        if high > begin_ns and low < end_ns and high > low:
            marks.append((max(low, begin_ns), 1, what, hits))
            marks.append((min(high, end_ns), -1, what, hits))
    marks.sort()
    active = dict.fromkeys(ORDER, 0)
    hitting = total = 0
    at = begin_ns
    for moment, change, what, hits in marks:
        if hitting > 0 and next((name for name in ORDER if active[name]), None) == part:
            total += moment - at
        at = moment
        active[what] += change
        if what == part and hits:
            hitting += change
    return total


def true_share(
    stamps: Sequence[Stamp],
    spans: Sequence[EngineSpan],
    window: tuple[int, int],
    case: Case,
    run: tuple[int, int] | None = None,
) -> dict[str, float]:
    """For each planted cause the share of the window, 0..1, that it cost; of what lies before it, of the whole run."""
    conditions = case.plan.accelerator.conditions
    if conditions is not None:
        spans = [*spans, *lost(spans, conditions)]
    shares = {}
    for planted in case.planted:
        begin, end = run if run is not None and planted.part == "start" else window
        shares[planted.cause] = exposed_ns(stamps, spans, begin, end, planted.part, planted.hit) / (end - begin)
    return shares


def lost(spans: Iterable[EngineSpan], conditions: Conditions) -> list[EngineSpan]:
    """The end of each span: what it would not have taken under the best of conditions."""
    longer = {"compute": conditions.computing, "copying": conditions.copying}
    names = {"compute": "lost", "copying": "lost copying"}
    return [
        EngineSpan(names[what], begin + round((end - begin) / longer[what]), end)
        for what, begin, end in spans
        if longer[what] > 1
    ]


def write_truth(folder: Path, case: Case, stamps: Sequence[Stamp]) -> None:
    """What the training says of itself, beside what was recorded of it."""
    said = {"case": case.name, "causes": case.causes, "stamps": [list(stamp) for stamp in stamps]}
    (folder / TRUTH).write_text(json.dumps(said))


def read_stamps(folder: Path) -> list[Stamp]:
    return [Stamp(*stamp) for stamp in json.loads((folder / TRUTH).read_text())["stamps"]]


def read_spans(run: Run) -> list[EngineSpan]:
    """What the engines of the emulated device did."""
    spans = run.records(SPAN)
    return [
        EngineSpan("compute" if what == SpanKind.COMPUTE else "copying", int(begin), int(end))
        for what, begin, end in zip(spans["what"], spans["begin_ns"], spans["end_ns"], strict=True)
    ]
