"""Planted faults, recorded for real: what each leaves in the records, whatever the machine does beside it.

Whether they are named, and with which share, the benchmark of diagnosis measures; how records are judged, the tests
of the causes show.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.facts import Facts
from whyidle.matrix.trial import TrialServer
from whyidle.record.run import Run, open_run
from whyidle.record.schema import BATCH, EVENT, NOT_MEASURED, PAUSE, EventKind, PauseKind, StepFlag
from whyidle_bench.cases.case import Case
from whyidle_bench.cases.machine import unmet
from whyidle_bench.cases.registry import CASES
from whyidle_bench.cases.trial import FaultSpec
from whyidle_bench.faults import TARGET, judge

Left = Callable[[Facts, Run, Case], bool]


def slow_samples(_facts: Facts, run: Run, case: Case) -> bool:
    """Each planted slow sample took its time at least."""
    batches = run.records(BATCH)
    slow = [case.plan.is_slow(int(batch)) for batch in batches["batch"]]
    return any(slow) and bool((batches["slowest_ns"][slow] >= 1e6 * case.plan.data.slow_ms).all())


def made_in_the_training(facts: Facts, run: Run, _case: Case) -> bool:
    """Of batches that the training makes itself, nothing is said of a worker's process: not measured is no counter."""
    batches = run.records(BATCH)
    unsaid = (batches["process_cpu_ns"] == NOT_MEASURED) & (batches["sent_bytes"] == NOT_MEASURED)
    return facts.set_workers == 0 and len(batches) > 0 and bool(unsaid.all())


def new_shapes(facts: Facts, _run: Run, case: Case) -> bool:
    planted = case.plan.batches // case.plan.data.new_shape_every
    told = int(((facts.window.all_steps["flags"] & StepFlag.NEW_SHAPE) != 0).sum())
    return abs(told - planted) <= 1


def sent_through_the_pipe(facts: Facts, _run: Run, _case: Case) -> bool:
    sent, nbytes = facts.loader.sent_bytes_per_batch, facts.loader.mean_batch_bytes
    return sent is not None and nbytes is not None and sent > 0.8 * nbytes


def read_bytes(facts: Facts, _run: Run, case: Case) -> bool:
    told, reading = facts.loader.read_chars_bytes_per_sample, case.plan.data.reading
    return told is not None and reading is not None and told >= reading.bytes


def busy_threads(facts: Facts, _run: Run, _case: Case) -> bool:
    process, thread = facts.loader.process_cpu_pct, facts.loader.cpu_pct
    return process is not None and thread is not None and process > thread


def events(what: int) -> Left:
    return lambda _facts, run, _case: bool((run.records(EVENT)["what"] == what).any())


def calls_a_step(facts: Facts, run: Run, case: Case) -> bool:
    calls = int((run.records(PAUSE)["what"] == PauseKind.SYNC).sum())
    return abs(calls - case.plan.step.reads * len(facts.window.all_steps)) <= len(facts.window.all_steps) * 0.1 + 1


LEFT: dict[str, Left] = {
    "input.serial-middle": made_in_the_training,
    "input.worker_threads-severe": busy_threads,
    "input.affinity-severe": lambda facts, _run, _case: facts.loader.cpus == 1,
    "input.storage-middle": read_bytes,
    "input.straggler-middle": slow_samples,
    "input.worker_restart-middle": lambda facts, _run, case: facts.waits.epochs >= case.plan.epochs - 1,
    "input.handoff-middle": sent_through_the_pipe,
    "copy.pageable-middle": lambda facts, _run, _case: facts.pinned is False,
    "copy.serial-middle": lambda facts, _run, _case: facts.pinned is True and not facts.copied_ahead,
    "device.memory_pressure-middle": events(EventKind.ALLOCATOR_RETRIES),
    "device.shape_churn-middle": new_shapes,
    "host.sync-middle": calls_a_step,
    "host.gc-middle": events(EventKind.GARBAGE),
    "host.boundary-middle": events(EventKind.EVALUATION),
}
"""Case → what it leaves behind."""
QUICK = ("input.serial-middle",)


@pytest.fixture(scope="module")
def server() -> TrialServer:
    return TrialServer(TARGET)


def _cases() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in LEFT]


@pytest.mark.parametrize("name", _cases())
def test_a_planted_fault_leaves_its_counters_and_its_truth(server: TrialServer, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    if (why := unmet(case.needs)) is not None:
        pytest.skip(why)
    spec = FaultSpec(name, str(tmp_path / "run"), 0, 0)
    outcome = server.run(tmp_path / "run", spec, {"trial": {"scenario": "faults"}}, lambda: None)
    assert outcome.status == "ok", outcome.error
    run = open_run(tmp_path / "run")
    analysis = analyse(run)
    facts = analysis.facts
    assert facts.window.count + facts.window.warmup_steps == case.plan.steps
    assert LEFT[name](facts, run, case)
    # The training told what it cost by its own clock, beside which the verdict can be judged.
    judged = judge(name, case.causes, run.folder, analysis, False)
    assert 0 < judged.truth[case.causes[0]] < 1
