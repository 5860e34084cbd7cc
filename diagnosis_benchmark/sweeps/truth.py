"""What a sample really took, term by term, from the training's own stamps and what the device's engines did.

Nothing here is told by the analysis; only the window is its, so that both speak of the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cases.case import EVERY, RETRY
from ..cases.truth import EngineSpan, Stamp, exposed_ns

PARTS = {
    "compute": ("compute",),
    "input": ("fetch",),
    "copy": ("copying", "copy"),
    "sync": ("sync",),
    "host": ("host",),
    "boundary": ("boundary",),
}
"""Term → what of the stamps and spans it is."""
TOTAL = "total"


def true_terms(
    stamps: Sequence[Stamp], spans: Sequence[EngineSpan], window: tuple[int, int], batch: int
) -> dict[str, float] | None:
    """Term → µs a sample; `None` where nothing was computed. What neither stamp nor span covers is the host's own.

    A sample counts when the device has computed it: what is queued at the end of the warm-up belongs to the window in
    which it is done, as its time does. Every step is computed in as many pieces.
    """
    begin, end = window
    ends = [until for what, _, until in spans if what == "compute"]
    fetches = sum(stamp.what == "fetch" for stamp in stamps)
    within = sum(begin < until <= end for until in ends)
    if not within or not fetches:
        return None
    computed = batch * within * fetches / len(ends)
    terms = {
        term: sum(exposed_ns(stamps, spans, begin, end, part, EVERY) for part in parts) for term, parts in PARTS.items()
    }
    # A pause of the host within a step's computation, between its first and last event, is computing by definition.
    retrying = exposed_ns(stamps, spans, begin, end, "host", RETRY)
    terms["host"] += end - begin - sum(terms.values()) - retrying
    terms["compute"] += retrying
    return {term: ns / 1e3 / computed for term, ns in (terms | {TOTAL: end - begin}).items()}
