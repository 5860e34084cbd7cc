"""Planted faults, recorded for real and diagnosed: a part of `whyidle compare faults`.

What is asserted are counters that a fault leaves behind, and its name. Beside programs that use the machine's CPUs a
training may rightly be told that it is those: then it is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from whyidle.analyse.analysis import Analysis, analyse
from whyidle.analyse.facts import Facts
from whyidle.commands.faults import TARGET, judge
from whyidle.record.run import Run, open_run
from whyidle.record.schema import BATCH, EVENT, NOT_MEASURED, PAUSE, EventKind, PauseKind, StepFlag
from whyidle.scenarios.faults.case import Case
from whyidle.scenarios.faults.machine import unmet
from whyidle.scenarios.faults.registry import CASES
from whyidle.scenarios.faults.trial import FaultSpec
from whyidle.tune.trial import TrialServer

TRIES = 3
"""Runs of a case, as long as other programs disturb them."""
DISTURBED_CPUS = 0.4
"""CPUs in use by others from which on a run is disturbed."""

Counter = Callable[[Facts, Run, Case], bool]


def slow_samples(_facts: Facts, run: Run, case: Case) -> bool:
    """Each planted slow sample took its time; no other did."""
    batches = run.records(BATCH)
    planted = sum(case.plan.is_slow(batch) for batch in range(case.plan.batches))
    return int((batches["slowest_ns"] >= 0.9e6 * case.plan.data.slow_ms).sum()) == planted


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


def events(what: int) -> Counter:
    return lambda _facts, run, _case: bool((run.records(EVENT)["what"] == what).any())


def calls_a_step(facts: Facts, run: Run, case: Case) -> bool:
    calls = int((run.records(PAUSE)["what"] == PauseKind.SYNC).sum())
    return abs(calls - case.plan.step.reads * len(facts.window.all_steps)) <= len(facts.window.all_steps) * 0.1 + 1


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least


def _at_most(value: float | None, most: float) -> bool:
    return value is not None and value <= most


FAULTS: dict[str, Counter | None] = {
    "input.serial-middle": made_in_the_training,
    "input.too_few_workers-middle": lambda facts, _run, _case: _at_least(facts.loader.worker_busy_pct, 85),
    "input.too_few_workers.cpu-severe": lambda facts, _run, _case: _at_least(facts.loader.worker_busy_pct, 85),
    "input.cpu_exhausted-middle": lambda facts, _run, _case: _at_most(facts.loader.waiting_pct, 10),
    "input.oversubscribed-severe": lambda facts, _run, _case: _at_least(facts.loader.run_queue_pct, 50),
    "input.worker_threads-severe": lambda facts, _run, _case: _at_least(
        facts.loader.process_cpu_pct, 2 * (facts.loader.cpu_pct or np.inf)
    ),
    "input.cpu_quota-middle": lambda facts, _run, _case: _at_least(facts.sampled.throttled_s, 0.1),
    "input.affinity-severe": lambda facts, _run, _case: facts.loader.cpus == 1,
    "input.storage-middle": lambda facts, _run, case: (
        case.plan.data.reading is not None
        and _at_least(facts.loader.read_bytes_per_sample, case.plan.data.reading.bytes)
    ),
    "input.straggler-middle": slow_samples,
    "input.prefetch_depth-middle": None,
    "input.worker_restart-middle": lambda facts, _run, case: facts.waits.epochs >= case.plan.epochs - 1,
    "input.pipeline_fill-middle": lambda facts, _run, case: _at_most(
        facts.waits.batches_per_epoch, 1.2 * case.plan.batches
    ),
    "input.handoff-middle": sent_through_the_pipe,
    "input.sharding-middle": lambda facts, _run, _case: _at_most(facts.loader.even_workers, 1.1),
    "copy.pageable-middle": lambda facts, _run, _case: facts.pinned is False,
    "copy.serial-middle": lambda facts, _run, _case: facts.pinned is True and not facts.copied_ahead,
    "device.throttled-middle": None,
    "device.memory_pressure-middle": events(EventKind.ALLOCATOR_RETRIES),
    "device.shape_churn-middle": new_shapes,
    "host.sync-middle": calls_a_step,
    "host.launch-middle": None,
    "host.gc-middle": events(EventKind.GARBAGE),
    "host.step_gap-middle": None,
    "host.boundary-middle": events(EventKind.EVALUATION),
}
"""Case → what it leaves behind, besides its share."""

COMPOUNDS = ("compound.too_few_workers+worker_restart", "compound.straggler+sync", "compound.pageable+too_few_workers")
CONTROLS = ("control.compute", "control.in-memory", "control.light-validation", "control.warm-up")


@pytest.fixture(scope="module")
def server() -> TrialServer:
    return TrialServer(TARGET)


def runs(server: TrialServer, folder: Path, name: str) -> Iterator[tuple[Case, Run, Analysis]]:
    """Runs of a case, until one is not disturbed."""
    case = CASES[name]
    if (why := unmet(case.needs)) is not None:
        pytest.skip(why)
    for number in range(TRIES):
        spec = FaultSpec(name, str(folder / str(number)), 0, number)
        outcome = server.run(folder / str(number), spec, {"trial": {"scenario": "faults"}}, lambda: None)
        assert outcome.status == "ok", outcome.error
        run = open_run(folder / str(number))
        analysis = analyse(run)
        yield case, run, analysis
        facts = analysis.facts
        assert facts is not None
        steal = facts.sampled.steal_pct or 0.0
        if (facts.foreign_cpus or 0.0) < DISTURBED_CPUS + case.plan.machine.foreign and steal < 5:
            return


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_and_leaves_its_counters(server: TrialServer, tmp_path: Path, name: str) -> None:
    said = []
    for case, run, analysis in runs(server, tmp_path, name):
        facts, count = analysis.facts, FAULTS[name]
        assert facts is not None
        assert count is None or count(facts, run, case)
        judged = judge(name, case.causes, run.folder, analysis, False)
        assert judged is not None
        (cause,) = case.causes
        # The share is that of the truth, on a machine that may be busy: half to twice.
        reported, truth = judged.reported(cause), judged.truth.get(cause)
        close = reported is not None and truth is not None and truth / 2 < reported < 2 * truth
        said.append((analysis.verdict.cause, reported, truth))
        if analysis.verdict.cause == cause and close:
            for change in analysis.verdict.next:
                assert change.low is None or change.high is None or change.low <= change.high
            return
    pytest.fail(f"{name}: (named, share, true share) {said}")


@pytest.mark.parametrize("name", COMPOUNDS)
def test_both_causes_of_a_compound_are_found(server: TrialServer, tmp_path: Path, name: str) -> None:
    said = []
    for case, _, analysis in runs(server, tmp_path, name):
        said.append([finding.cause for finding in analysis.findings[:3]])
        if set(case.causes) <= set(said[-1]):
            return
    pytest.fail(f"{name}: {said}")


@pytest.mark.parametrize("name", CONTROLS)
def test_nothing_is_found_in_a_healthy_training(server: TrialServer, tmp_path: Path, name: str) -> None:
    said = []
    for _, _, analysis in runs(server, tmp_path, name):
        loud = [finding for finding in analysis.findings if finding.severity not in ("none", "minor")]
        said.append([finding.title for finding in loud])
        if not loud:
            return
    pytest.fail(f"{name}: {said}")
