"""Whether a recording is whole: every part of it ended well, and every rank of its job is in it to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...record.run import is_run, open_run, runs_within
from ..ranks.membership import listed, unended
from .analysis import Analysis


def parts_of(folder: Path) -> list[Path]:
    """The run folders of a job on several hosts, of the folder around them; else the folder itself."""
    if is_run(folder):
        return [folder]
    parts = runs_within(folder)
    return parts if len(parts) > 1 else [folder]


def lacking_of(folder: Path, analysis: Analysis) -> tuple[str, ...]:
    """What did not end, or is not there, in a few words each; nothing of a whole recording."""
    return (*_endings(parts_of(folder)), *_ranks(analysis))


def _endings(parts: Sequence[Path]) -> Iterator[str]:
    for part in parts:
        if why := _ending(open_run(part).info.get("ended")):
            yield why if len(parts) == 1 else f"{part}: {why}"


def _ending(ended: dict[str, Any] | None) -> str | None:
    if ended is None:
        return "no end is recorded: it still runs, or it was killed"
    status = ended.get("status")
    return None if status in (None, "ok") else f"it did not end well ({status})"


def _ranks(analysis: Analysis) -> Iterator[str]:
    without = [part.rank for part in analysis.ranks if part.analysis.facts is None]
    if killed := [rank for rank in analysis.killed if rank not in without]:
        yield unended(killed)
    if without:
        yield f"no step of {listed(without)} was recorded"
    if analysis.missing:
        yield (
            f"nothing of {listed(analysis.missing)} was recorded: if other hosts recorded them, name the folder "
            "around the hosts' run folders"
        )
