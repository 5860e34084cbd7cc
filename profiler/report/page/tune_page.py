"""A tuning as a page: what is gained, the change to paste, what was tried, batch sizes, what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from ...analyse.statistics import Estimate
from ...tune.search.tuning import Tuning
from ..document import Caution, CodeChange, blocks_of_kind
from ..documents.tuning import BATCH, CHANGE, TRIED, change, said_rate, tuning_document
from ..render.html import page_parts, page_sections
from ..words.settings import arguments
from .frame import render
from .tune_charts import size_rows, trial_rows


def page(result: Tuning, notices: Sequence[str] = (), environment: Sequence[tuple[str, str]] = ()) -> str:
    """The whole page. `notices`: of its data; `environment`: (what, value) of what was tuned when and where."""
    tuned, document = result.tuned, tuning_document(result)
    sections = {section.title: section for section in page_sections(document.blocks)}
    because = sections.pop("")
    changes = list(change(result)) if result.changed else []
    batch = sections.pop(BATCH, None)
    for shown_otherwise in (CHANGE, TRIED):
        sections.pop(shown_otherwise, None)
    return render(
        "tune.html.j2",
        title=document.title,
        styles=("table.css",),
        scripts=("table.js",),
        cautions=blocks_of_kind(document, Caution),
        notices=notices,
        because=because.blocks,
        emulated=result.device.get("kind") == "emulated",
        tiles=_tiles(result),
        change=[line for block in changes if isinstance(block, CodeChange) for line in block.lines],
        instead=page_parts([block for block in changes if not isinstance(block, CodeChange)]),
        paste=_to_paste(result),
        trials=trial_rows(result),
        batch=None if tuned.batch is None or batch is None else batch.blocks,
        sizes=[] if tuned.batch is None else size_rows(tuned.batch),
        sections=list(sections.values()),
        environment=environment,
    )


def _tiles(result: Tuning) -> list[tuple[str, str, str]]:
    """(what, figure, what it is about)."""
    tuned = result.tuned
    emulated = "emulated " if result.device.get("kind") == "emulated" else ""
    best, now = (said_rate(trial.samples_per_s) for trial in (tuned.best, tuned.baseline))
    tiles = [(f"now, {emulated}samples/s", now, _between(tuned.baseline.rate))]
    if result.changed:
        tiles.append((f"best, {emulated}samples/s", best, _between(tuned.best.rate)))
        tiles.append(("speed-up", f"{tuned.speedup.value:.2f} ×", _speedup_range(tuned.speedup)))
    if tuned.headroom is not None:
        tiles.append(("a loader that takes no time", *_headroom(result, tuned.headroom)))
    return [*tiles, ("time it took", f"{tuned.wall_s:.0f} s", f"{result.steps} steps, thrown away")]


def _headroom(result: Tuning, headroom: float) -> tuple[str, str]:
    """What was measured; where a setting was faster than that, the setting's gain, which noise explains."""
    now, most = result.tuned.baseline.samples_per_s, result.beyond_ceiling
    if not now or most is None:
        return f"{100 * headroom:+.0f} %", "what it would gain"
    measured = f"no more than the fastest setting, within noise (measured {100 * headroom:+.0f} %)"
    return f"{100 * (most / now - 1):+.0f} %", measured


def _speedup_range(speedup: Estimate) -> str:
    if not isfinite(speedup.low):
        return "its interval is not known"
    return f"95 %: {speedup.low:.2f} " + (f"to {speedup.high:.2f}" if isfinite(speedup.high) else "or more")


def _between(rate: Estimate | None) -> str:
    return "" if rate is None else f"95 %: {said_rate(rate.low)} to {said_rate(rate.high)}"


def _to_paste(result: Tuning) -> str | None:
    """All arguments of the DataLoader; `None` where nothing is to change, or the change is another command."""
    if not result.changed or result.scenario is not None:
        return None
    best = arguments(result.settings(result.tuned.best.settings))
    return ", ".join(f"{name}={value}" for name, value in best.items())
