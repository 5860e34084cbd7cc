"""A recorded run as flat figures: as it went, then as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...analyse.attached.attached import is_attached
from ...analyse.run.analysis import analyse
from ...analyse.timeline.scalar_series import stretches
from ...analyse.timeline.timeline import timelines
from ...errors import WhyidleError
from ...record.run import open_run
from ...record.scalars import PREFIX, Values
from .scalars import measured, of_run, of_shares

EMULATED = "whyidle-emulated/"
"""Of a device that was emulated: its figures are never beside measured ones."""
WHOLE = "whole_run/"


def figures_of(folder: Path, every_s: float) -> Iterator[tuple[Values, int]]:
    """Figures by their full names, with the number of the step they belong to, in order.

    Of several ranks the stretches are those of the first, the last figures the job's.

    Raises:
        WhyidleError: no run there, or one without steps.
    """
    run = open_run(folder)
    if is_attached(run):
        raise WhyidleError(f"{folder} was watched from outside: it has no steps to log figures for.")
    analysis = analyse(run)
    lines = timelines(analysis, [run])
    if not lines:
        raise WhyidleError(f"{folder} holds no training step: there are no figures to log.")
    emulated = (analysis.info.get("device") or {}).get("kind") == "emulated"
    prefix = EMULATED if emulated else PREFIX
    last = 0
    for each in stretches(lines[0], every_s):
        values = of_shares(each.shares) | {
            "samples_per_s": each.samples_per_s,
            "utilisation_pct": each.utilisation_pct,
            "queue_ready": each.queue_ready,
        }
        last = each.step
        yield {prefix + name: value for name, value in measured(values).items()}, last
    yield {f"{prefix}{WHOLE}{name}": value for name, value in of_run(analysis).items()}, last
