"""A tuning as a page: what is gained, the change to paste, what was tried with its intervals, batch sizes with
throughput and memory. Places and lengths of charts are in percent of their width."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any

from ...tune.result import Trial, Tuning, describe
from ..document import Caution, CodeChange, blocks_of_kind
from ..documents.tuning import BATCH, CHANGE, TRIED, change, mark_of, measured, said_rate, tuning_document
from ..render import page_parts, page_sections
from ..words.figures import arguments
from .frame import render

WIDEST = 0.97
"""Share of the chart's width at which the largest value stands: at the right is room for half of the largest mark."""


def page(result: Tuning, notices: Sequence[str] = (), environment: Sequence[tuple[str, str]] = ()) -> str:
    """Make the page. `notices`: of its data; `environment`: (what, value) of what was tuned when and where."""
    document = tuning_document(result)
    sections = {section.title: section for section in page_sections(document.blocks)}
    because = sections.pop("")
    changes = list(change(result)) if result.changed else []
    batch = sections.pop(BATCH, None)
    for shown_otherwise in (CHANGE, TRIED):
        sections.pop(shown_otherwise, None)
    paste = arguments(result.best.settings) if result.changed and result.scenario is None else {}
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
        # All arguments of the DataLoader; none where the change is another command.
        paste=", ".join(f"{name}={value}" for name, value in paste.items()) or None,
        trials=_trials(result),
        batch=None if result.batch is None or batch is None else batch.blocks,
        sections=list(sections.values()),
        environment=environment,
    )


def _trials(result: Tuning) -> list[dict[str, Any]]:
    """Give a row for each setting, the fastest first; what was not measured last."""
    trials = sorted(result.trials, key=lambda trial: -(trial.samples_per_s or 0.0))
    ends = (value for t in trials for value in (t.samples_per_s, t.rate.high if t.rate else None, t.predicted))
    whole = max((value for value in ends if value is not None), default=0.0) / WIDEST

    def place(value: float | None) -> float | None:
        """In percent of the width."""
        return None if value is None or isnan(value) or whole <= 0 else 100 * value / whole

    def row(trial: Trial) -> dict[str, Any]:
        settings, beside = trial.settings, result.baseline.settings
        words = describe(settings, beside)
        differ = settings.num_workers and settings.persistent_workers != beside.persistent_workers
        if differ and "persistent" not in words:
            words += ", persistent" if settings.persistent_workers else ", not persistent"
        return {
            "settings": words,
            "said": measured(trial).plain.strip(),
            "predicted_said": said_rate(trial.predicted),
            "predicted": place(trial.predicted),
            "blocks": trial.blocks,
            "mark": mark_of(result, trial),
            "note": " ".join(((trial.error if trial.status != "ok" else trial.dropped) or "").split()),
            "at": place(trial.samples_per_s),
            "low": place(trial.rate.low if trial.rate else None),
            "high": place(trial.rate.high if trial.rate else None),
        }

    return [row(trial) for trial in trials]


def _tiles(result: Tuning) -> list[tuple[str, str, str]]:
    """Give (what, figure, what it is about)."""
    emulated = "emulated " if result.device.get("kind") == "emulated" else ""

    def rate(word: str, trial: Trial) -> tuple[str, str, str]:
        ends = "" if trial.rate is None else f"95 %: {said_rate(trial.rate.low)} to {said_rate(trial.rate.high)}"
        return f"{word}, {emulated}samples/s", said_rate(trial.samples_per_s), ends

    tiles = [rate("now", result.baseline)]
    if result.changed:
        gain = result.gain
        ends = f"95 %: {gain.low:.2f} " + (f"to {gain.high:.2f}" if isfinite(gain.high) else "or more")
        ends = ends if isfinite(gain.low) else "interval unknown"
        tiles += [rate("best", result.best), ("speed-up", f"{gain.value:.2f}×", ends)]
    if result.headroom is not None:
        most = result.headroom
        if result.ceiling is not None and result.baseline.samples_per_s:
            most = result.ceiling / result.baseline.samples_per_s - 1
        tiles.append(("an infinitely fast loader", f"{100 * most:+.0f} %", "compared with now"))
    return [*tiles, ("time of the search", f"{result.wall_s:.0f} s", f"{result.steps} steps; weights are discarded")]
