"""Whether what a tool said is right: pure functions of its words and of what was planted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from whyidle_bench.cases.case import Case

from .tool import Meaning, Said, Tool

EXACT, FAMILY, WRONG, SILENT, NEEDS_GPU = "exact", "part", "wrong", "silent", "needs a GPU"
"""Of a fault: its cause is named; the part of the training is (input, copy, host, device, rank) but not what is wrong
in it; another part is; nothing is; nothing that could be said without a GPU."""
ALARM, QUIET = "false alarm", "quiet"
"""Of a healthy training."""


_PARTS = {"fetch": "input", "host": "host", "boundary": "host", "lost": "device"}
"""Of the training, by where a case's stamps say that its time goes."""


def judged(tool: Tool, said: Said, case: Case) -> str:
    """The best that can be made of a tool's words about a run of this case."""
    return level([tool.meaning(word) for word in said.words], case.causes, parts_of(case))


def level(meanings: Sequence[Meaning], causes: Collection[str], parts: Collection[str]) -> str:
    """What words with these meanings are worth.

    Args:
        causes: any of these is right; none of a healthy training.
        parts: of the training that the fault is in.
    """
    if not causes:
        found = ALARM if any(each.alarms for each in meanings) else QUIET
    elif any(cause in each.exact for cause in causes for each in meanings):
        found = EXACT
    elif any(part in each.families for part in parts for each in meanings):
        found = FAMILY
    else:
        found = WRONG if any(each.families and each.alarms for each in meanings) else SILENT
    return NEEDS_GPU if found in (QUIET, SILENT) and _only_gpu(meanings) else found


def parts_of(case: Case) -> set[str]:
    """The parts of the training that a fault is in.

    A rank, or a validation, that waits for its data is an input's fault as well.
    """
    validates = {"input"} if case.plan.between.validation_batches else set()
    return validates | {cause.partition(".")[0] for cause in case.causes} | {_PARTS[each.part] for each in case.planted}


def _only_gpu(meanings: Sequence[Meaning]) -> bool:
    return bool(meanings) and all(each.needs_gpu for each in meanings)
