"""Windows of which no steps are known: a validation outside the steps, and a training seen from outside.

Both are judged by the rules of the wait for data, as the training itself is. The clock is that of the thread that
waits; all of the window is one step, with one batch of one sample, so no time of a step, batch or sample is told.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from ..intervals import EMPTY
from ..run.exposed_data_wait import Shape, Spread, Waits
from ..run.facts import Facts
from ..run.host_gaps import NO_STEP, Evaluation
from ..run.loader_stats import LoaderStats
from ..run.resource_usage import Sampled
from ..run.stall_breakdown import PARTS, Partition
from ..run.window import Window
from .finding import Finding

Known = TypeVar("Known")
OF_THE_MACHINE = ("input.foreign_load", "input.cpu_quota", "input.affinity")
"""Causes of a wait that no setting of a loader ends."""


def unknown(kind: type[Known], **known: Any) -> Known:
    """Return such figures, of which all that is not given, or `None`, and has no default is not measured."""
    needed = (each for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING)  # type: ignore[arg-type]
    unmeasured = {each.name: None if "None" in str(each.type) else math.nan for each in needed}
    return kind(**unmeasured | {name: value for name, value in known.items() if value is not None})


def window_facts(wall_ns: float, waits: dict[str, Any], loader: dict[str, Any], **facts: Any) -> Facts:
    """Return the facts of such a window.

    `waits`: pieces of the wait for data, ns, and figures of epochs, as `Waits` has them; `loader`, `facts`: the fields
    of `LoaderStats` and `Facts` that are known. `work_ms_per_batch` is the time of all its making.
    """
    pieces = dict.fromkeys((each.name for each in fields(Waits) if each.name.endswith("_ns")), 0)
    pieces |= {name: round(of) for name, of in waits.items() if name.endswith("_ns")}
    waited, wall = sum(pieces.values()), max(1, round(wall_ns))
    of_epochs = {"told": 1.0, "epochs": 1, "shape": Shape(Spread.NOWHERE)} | waits
    divided: dict[str, Any] = {each.name: 0 for each in fields(Partition) if each.compare}
    divided |= {"gaps_ns": EMPTY, "when": dict.fromkeys(PARTS, EMPTY)}
    divided |= {"wall_ns": wall, "input_ns": min(wall, waited), "compute_ns": max(0, wall - waited), "fetch_ns": waited}
    given = {"workers": 0, "slowest": (), "transforms": (), "make_ms_per_sample": loader.get("work_ms_per_batch")}
    return unknown(
        Facts,
        **{"window": Window(0, wall, NO_STEP, 0, NO_STEP), "device_kind": "cpu", "samples": 1, "copied_ahead": False}
        | {"parts": Partition(**divided), "waits": unknown(Waits, **of_epochs | pieces)}
        | {"loader": unknown(LoaderStats, **given | loader), "sampled": unknown(Sampled), "unfed_share": 0.0}
        | facts,
    )


def evaluation_facts(facts: Facts, evaluation: Evaluation) -> Facts:
    """Return the facts of the passes over loaders that train nothing: what they took outside the steps."""
    known, work_ms = evaluation.loader, None if evaluation.making_ns is None else evaluation.making_ns / 1e6
    all_of_it = {"make_ms_per_sample": work_ms, "work_ms_per_batch": work_ms}
    starting_ns, first_ns = evaluation.starting_ns, evaluation.first_ns
    # It is summed over the whole run.
    throttled = facts.sampled.throttled_s * evaluation.ns / facts.parts.wall_ns
    return window_facts(
        evaluation.ns,
        {
            **{"starting_ns": starting_ns, "filling_ns": first_ns, "epochs": evaluation.passes},
            "making_ns": max(0, evaluation.waited_ns - starting_ns - first_ns),
            **{"iterators": evaluation.iterators, "batches_per_epoch": evaluation.batches},
        },
        {"workers": evaluation.workers or 0} | ({} if known is None else vars(known)) | all_of_it,
        device_kind=facts.device_kind,
        sampled=replace(facts.sampled, throttled_s=throttled),
        machine_cpus=facts.machine_cpus,
        set_workers=evaluation.workers,
    )


def of_validation(found: Finding) -> str:
    """Return the first change that ends a validation's wait, in words: to its loader, or to the machine."""
    change = found.next[0].change
    if found.cause in OF_THE_MACHINE:
        return change
    return f"For the validation loader: {change[0].lower()}{change[1:]}"
