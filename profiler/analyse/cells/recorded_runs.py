"""Recorded runs of somebody's own training as the cells of a comparison: grouped by what was recorded of them.

A changed number of workers must not be taken for the batch's doing: runs whose loader is set differently are different
loaders. What was not recorded of a setting is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...errors import WhyidleError
from ...record.run import Run
from ..attached.attached import is_attached
from ..run.analysis import Analysis, analyse, lacking_of
from .comparison import Cell

NAME = "training"
"""Name of the loader where nothing tells loaders apart."""


@dataclass(frozen=True)
class _Recorded:
    run: Run
    analysis: Analysis
    batch_size: int
    pipeline: str | None
    settings: dict[str, str | None]
    """What is set, in words; `None` where it was not recorded."""


def cells_of_runs(runs: Sequence[Run]) -> list[Cell]:
    """The cells of a table: loaders in the order they were named, each from its smallest batch on.

    Raises:
        WhyidleError: a run has no batch size to compare it by.
        RecordError: a record file cannot be read.
    """
    recorded = [_recorded(run) for run in runs]
    differing = {
        name
        for name in recorded[0].settings
        if len({each.settings[name] for each in recorded if each.settings[name] is not None}) > 1
    }
    cells: dict[tuple[str, int], list[_Recorded]] = {}
    for each in recorded:
        words = [word for name in each.settings if name in differing and (word := each.settings[name]) is not None]
        label = ", ".join([each.pipeline, *words] if each.pipeline else words) or NAME
        cells.setdefault((label, each.batch_size), []).append(each)
    loaders = list(dict.fromkeys(label for label, _ in cells))
    rounds: dict[Path, int] = {}
    for loader in loaders:
        rounds |= _rounds({key: alike for key, alike in cells.items() if key[0] == loader})
    return [
        Cell(
            *key,
            "ok",
            None,
            tuple(str(each.run.folder) for each in alike),
            tuple(each.analysis for each in alike),
            tuple(rounds[each.run.folder] for each in alike if each.run.folder in rounds),
        )
        for key, alike in sorted(cells.items(), key=lambda item: (loaders.index(item[0][0]), item[0][1]))
    ]


def _rounds(cells: dict[tuple[str, int], list[_Recorded]]) -> dict[Path, int]:
    """The round of each run of a loader, where its batch sizes were run in turn; empty where they were not."""
    begun = {
        each.run.folder: (int(each.run.info["clock"]["time_ns"]), key)
        for key, alike in cells.items()
        for each in alike
        if (each.run.info.get("clock") or {}).get("time_ns") is not None
    }
    if len(begun) < sum(map(len, cells.values())):
        return {}
    rounds: dict[Path, int] = {}
    done = dict.fromkeys(cells, 0)
    for folder, (_, key) in sorted(begun.items(), key=lambda item: item[1]):
        if any(done[key] > number for number in done.values()):
            return {}
        rounds[folder] = done[key]
        done[key] += 1
    return rounds


def differences(cells: Sequence[Cell]) -> list[str]:
    """What else than batch size and loader differs between the runs, or may, a sentence each."""
    analyses = [analysis for cell in cells for analysis in cell.analyses]
    infos = [analysis.info for analysis in analyses]
    budgets = [a.facts.sampled.cpu_budget if a.facts is not None else None for a in analyses]
    facts: dict[str, Iterable[Any]] = {
        "the program": (_program(info.get("command")) for info in infos),
        "the device": ((info.get("device") or {}).get("title") for info in infos),
        "the machine": ((info.get("host") or {}).get("name") for info in infos),
        "the CPUs the job may use": (f"{budget:g}" if budget is not None else None for budget in budgets),
        "the version of torch": (info.get("torch") for info in infos),
        "the version of Python": (info.get("python") for info in infos),
    }
    said = []
    for what, values in facts.items():
        found = list(dict.fromkeys(str(value) for value in values if value is not None))
        if len(found) > 1:
            said.append(f"{what} ({', '.join(found)})")
    notices = [f"These runs differ in more than the batch size: {'; '.join(said)}."] if said else []
    if any(len(analysis.ranks) > 1 for analysis in analyses):
        notices.append(
            "For jobs of several ranks, the effect of the batch size is that of one rank: the one the others wait for."
        )
    for cell in cells:
        for folder, analysis in zip(cell.runs, cell.analyses, strict=True):
            if lacking := lacking_of(Path(folder), analysis):
                notices.append(f"{folder}: {'; '.join(lacking)}. Only its recorded part counts.")
    return notices


def _recorded(run: Run) -> _Recorded:
    if is_attached(run):
        raise WhyidleError(
            f"{run.folder} was recorded from outside, which tells neither batch sizes nor samples. Record the training "
            "with `whyidle run -- python train.py …` instead."
        )
    analysis = analyse(run)
    facts = analysis.facts
    if facts is None:
        raise WhyidleError(f"{run.folder} holds no training step, so there is nothing to compare. Leave it out.")
    if facts.batch_size is None:
        raise WhyidleError(
            f"{run.folder}: the number of samples per batch was not seen, so it has no time per sample. Watch its "
            "loader (`whyidle.watch`), or leave it out."
        )
    ranks = max(1, len(analysis.ranks))
    return _Recorded(
        run,
        analysis,
        facts.batch_size,
        (run.info.get("trial") or {}).get("pipeline"),
        {
            "ranks": f"{ranks} rank{'s' * (ranks != 1)}",
            "workers": _number(facts.set_workers, "worker"),
            "prefetch": None if facts.set_prefetch is None else f"prefetch {facts.set_prefetch}",
            "pin_memory": _either(facts.pin_memory, "pinned memory", "memory not pinned"),
            "persistent_workers": _either(
                facts.persistent_workers if facts.set_workers else None, "persistent workers", "workers anew each epoch"
            ),
            "out_of_order": _either(facts.out_of_order, "out of order", "in order"),
            "starts_python": _either(facts.starts_python, "spawned workers", "forked workers"),
        },
    )


def _number(count: int | None, thing: str) -> str | None:
    if count is None:
        return None
    return f"{count or 'no'} {thing}{'s' * (count != 1)}"


def _either(value: bool | None, yes: str, no: str) -> str | None:
    if value is None:
        return None
    return yes if value else no


def _program(command: Any) -> str | None:
    """The script or module of a command, without its arguments."""
    if not isinstance(command, list) or not command:
        return None
    words = [str(word) for word in command]
    scripts = [word for word in words if word.endswith(".py")]
    modules = [after for flag, after in pairwise(words) if flag == "-m"]
    return (scripts or modules or words)[0]
