"""What the report says of a run that has ended: the live view's last word on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import WhyidleError
from ...record.run import open_run
from ..attached.attached import attached, is_attached
from ..attached.causes import findings_of, verdict_of
from ..run.analysis import analyse
from .snapshot import Snapshot


def of_whole_run(view: Snapshot, folder: Path) -> Snapshot:
    """The view with the verdict of the whole run; as it is where the folder cannot be analysed (any more)."""
    try:
        run = open_run(folder)
        if is_attached(run):
            seen = attached(run)
            verdict, rate = verdict_of(seen, findings_of(seen)), None
        else:
            analysis = analyse(run)
            verdict, rate = analysis.verdict, None
            if analysis.facts is not None and analysis.facts.samples_known:
                rate = (analysis.facts if analysis.job is None else analysis.job).samples_per_s
    except (WhyidleError, OSError):
        return view
    return replace(view, verdict=verdict, verdict_since_s=None, verdict_samples_per_s=rate, verdict_of_whole_run=True)
