"""A recording from outside as a page: the words of the text report, the stacks as trees, and the sampler over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...analyse.attached.attached import Attached
from ...analyse.attached.series import Series, series_of
from ...analyse.causes.finding import Finding
from ...record.attached import STACKS, Thread, read_stacks
from ...record.run import Run
from ..documents.attached import further, headline, told_shares, top_places, why
from ..render.html import page_sections
from .attach_tree import Tree, tree
from .frame import render

MOST_TREES = 8
WIDE, HIGH = 1000, 100
"""Units of a curve."""


def page(run: Run, seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> str:
    """The whole page."""
    has_stacks = (run.folder / STACKS).is_file()
    return render(
        "attach.html.j2",
        title=headline(seen),
        styles=("table.css",),
        scripts=("table.js",),
        verdict=verdict,
        why=[
            (why(seen, each), told_shares(seen, each), top_places(each), each.looks)
            for each in seen.trainers
            if each.shares
        ],
        sections=page_sections(further(seen, verdict, findings)),
        series=[(each, _curve(each)) for each in series_of(run)],
        trees=_trees(seen, read_stacks(run.folder)) if has_stacks else [],
        stacks=STACKS if has_stacks else None,
    )


def _trees(seen: Attached, threads: Sequence[Thread]) -> list[Tree]:
    """The threads that train, their workers together, then whatever else was looked at most."""
    training = {(trainer.pid, trainer.thread): trainer for trainer in seen.trainers}
    found, rest = [], []
    workers: list[Thread] = []
    processes = {trainer.pid for trainer in seen.trainers} | {other.pid for other in seen.others}
    for thread in threads:
        trainer = training.get((thread.pid, thread.name))
        if trainer is not None:
            rank = "" if trainer.rank is None else f"rank {trainer.rank}, "
            found.append(tree(f"{rank}process {thread.pid}, {thread.name}: the thread that trains", [thread]))
        elif thread.pid not in processes:
            workers.append(thread)
        else:
            rest.append(thread)
    if workers:
        count = len({thread.pid for thread in workers})
        found.append(tree(f"{count} worker process{'es' * (count != 1)}, all together", workers))
    rest.sort(key=lambda thread: -thread.looks)
    found += [tree(f"process {each.pid}, {each.name}", [each]) for each in rest]
    return [each for each in found if each.looks][:MOST_TREES]


def _curve(series: Series) -> str:
    """An SVG path; what was not measured is a gap."""
    top = 100.0 if series.unit == "%" else series.highest or 1.0
    words, drawing = [], False
    for at, value in zip(series.at, series.values, strict=True):
        if not math.isfinite(value):
            drawing = False
            continue
        x, y = WIDE * at / (series.seconds or 1.0), HIGH - HIGH * min(value, top) / top
        # A single value between two gaps shows as a short stroke.
        words.append(f"L{x:.1f} {y:.1f}" if drawing else f"M{x:.1f} {y:.1f}h1")
        drawing = True
    return "".join(words)
