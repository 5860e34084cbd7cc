"""What the training's own process costs in steps and outside them: alone, together, and where nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import add, add_events, amend, evidence, facts_of_run, found, train_on_cpu
from support.judged_waits import rates
from support.planted_runs import (
    COMPUTE,
    SEVERITIES,
    Making,
    Spans,
    batch,
    boundaries,
    evaluated,
    happened,
    hosted,
    looked,
    pooled,
    shares,
    threads,
    told,
    trained,
    until,
)
from whyidle.analyse.causes.claim import Claim, Piece
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.causes.host_and_device import gil
from whyidle.analyse.causes.pieces import pieces_of
from whyidle.analyse.run.host_gaps import LEAST_STAGE
from whyidle.analyse.run.stall_breakdown import PARTS, gil_of, own_time, running_of
from whyidle.analyse.run.window import Window
from whyidle.analyse.statistics import SCATTER_SD, scattered
from whyidle.record.reader import Records, with_column
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import BATCH, EVENT, HOST, NOT_MEASURED, PAUSE, EventKind, LoaderFlag, StepFlag
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train


def of_wall(share: float) -> int:
    """Time beside a computation of 10 ms that makes up so much of the step."""
    return round(COMPUTE * share / (1 - share))


def gapped(folder: Path, gap_ns: int) -> Path:
    """A training whose loop works for so long once the device is done."""
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, host_ns=gap_ns)] * 150])
    return folder


def waiting(folder: Path, own_ns: int, waited_ns: int) -> Path:
    """Of `own_ns` a step outside fetches and calls, the thread does not run for `waited_ns`."""
    amend(folder, lambda steps: steps["cpu_ns"].fill(own_ns - waited_ns))
    return folder


def held_up(folder: Path, gap_ns: int, waited_ns: int, cpus: float = 1.0) -> Path:
    """A loop that works so long, and does not run for a part of that, beside threads that use CPUs."""
    return waiting(threads(gapped(folder, gap_ns), cpus), gap_ns, waited_ns)


def queuing(folder: Path, share: float) -> Path:
    """The training's thread waits for a CPU for so much of the time."""
    looks = range(START, until(folder), 200 * MS)
    add(folder, HOST, [{"t_ns": t, "main_thread_queue_ns": round(share * (t - START))} for t in looks])
    return folder


def collect(folder: Path, each_ns: int) -> None:
    """A garbage collection at the end of each step."""
    happened(folder, EventKind.GARBAGE, 0, lambda s: [(e - each_ns, e) for e in s["step_end_ns"]])


SYNC = Step(fetch_ns=0, compute_ns=COMPUTE, sync_within=True)


def anew(folder: Path, share: float) -> None:
    """Workers that live for one epoch are stopped at its end."""
    bounded(folder, share, epochs=True)
    told(folder, 3, None, 0)


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize(
    ("cause", "plant", "words", "told"),
    [
        (
            "host.step_gap",
            lambda folder, share: gapped(folder, of_wall(share)),
            "at every step",
            {"Host time between the optimizer and the next fetch": 100},
        ),
        ("host.gc", lambda folder, share: collect(gapped(folder, of_wall(share)), of_wall(share)), "garbage", {}),
        ("host.gil", lambda folder, share: held_up(folder, of_wall(share), of_wall(share)), "global lock", {}),
        (
            "host.sync",
            lambda folder, share: train(folder, [[replace(SYNC, within_ns=of_wall(share))] * 150]),
            "calls, at every step",
            {},
        ),
        (
            "input.main_process",
            lambda folder, share: staged(folder, of_wall(share) / MS),
            "before their forward pass, at every step",
            {},
        ),
        ("host.boundary", lambda folder, share: bounded(folder, share), "validation, checkpoints, hooks", {}),
        (
            "host.boundary",
            lambda folder, share: evaluated(folder, bounded(folder, share), 0.8, 0),
            "most of it on validation that waits for data",
            {"Validation that waits for data": 80, "Validation that computes": 20},
        ),
        (
            "host.boundary",
            anew,
            "at the ends of epochs, where workers that live for one epoch are stopped.",
            # Nothing follows the last of four passes, so its end is no such one.
            {"Ends of epochs explained by stopping workers": 75},
        ),
    ],
)
def test_a_cause_alone_has_its_share_and_is_said_as_it_is(
    tmp_path: Path, cause: str, plant: Callable[[Path, float], object], words: str, told: dict[str, int], share: float
) -> None:
    plant(tmp_path / "run", share)
    (finding,) = found(tmp_path / "run").values()
    assert (finding.cause, finding.share) == (cause, pytest.approx(share, abs=0.02))
    assert words in finding.title
    seen = {name: value for name, value in evidence(finding).items() if name in told}
    assert seen == pytest.approx({name: times * share for name, times in told.items()}, abs=2)
    if cause in ("host.step_gap", "input.main_process"):
        # A step of 10 ms for 8 samples is left.
        _, rate, high = rates(finding.next[0])
        assert rate < 800 < high < scattered(800) * 1.03


def halves(cause: str, share: float) -> dict[str, float]:
    """Such a cause, and as much of the loop's own work."""
    each = of_wall(share) / (COMPUTE + 2 * of_wall(share))
    return {cause: each, "host.step_gap": each}


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lambda folder: held_up(folder, 0, -MS, 0.9), {}),
        # Collections and waits for the lock leave the rest of the gap its own.
        *(
            (lambda folder, plant=plant, share=share: plant(folder, of_wall(share)), halves(cause, share))
            for share in SEVERITIES
            for cause, plant in (
                ("host.gc", lambda folder, ns: collect(gapped(folder, 2 * ns), ns)),
                ("host.gil", lambda folder, ns: held_up(folder, 2 * ns, ns)),
            )
        ),
        # A loop that sleeps waits for no lock, nor beside threads that hardly run, nor where its own clock is unknown.
        (lambda folder: waiting(gapped(folder, COMPUTE), COMPUTE, COMPUTE), {"host.step_gap": 0.5}),
        (lambda folder: held_up(folder, COMPUTE, COMPUTE, 0.02), {"host.step_gap": 0.5}),
        (lambda folder: waiting(held_up(folder, COMPUTE, 0), NOT_MEASURED, 0), {"host.step_gap": 0.5}),
        # No more than others ran meanwhile: 26 of the 40 ms of a step; what they hardly explain is a loop that sleeps.
        (lambda folder: held_up(folder, 3 * COMPUTE, 3 * COMPUTE, 0.65), {"host.gil": 0.65, "host.step_gap": 0.1}),
        *(
            (lambda folder, cpus=cpus: held_up(folder, 3 * COMPUTE, 3 * COMPUTE, cpus), {"host.step_gap": 0.75})
            for cpus in (0.1, 0.25, 0.4)
        ),
        # 20 of 40 ms not running, 10 of them queuing for a CPU.
        (
            lambda folder: queuing(held_up(folder, 3 * COMPUTE, 2 * COMPUTE), 0.25),
            {"host.gil": 0.25, "host.step_gap": 0.5},
        ),
        # Work on a batch while the device is busy; validation that takes little.
        (lambda folder: trained(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, before_ns=8 * MS)] * 120]), {}),
        (lambda folder: evaluated(folder, bounded(folder, 0.02), 0.9, 0), {}),
    ],
)
def test_what_happens_together_is_told_apart_and_what_costs_nothing_is_none(
    tmp_path: Path, plant: Callable[[Path], object], expected: dict[str, float]
) -> None:
    plant(tmp_path / "run")
    assert shares(tmp_path / "run") == pytest.approx(expected, abs=0.02)


ODD = {11, 12, 40, 77, 93, 101, 130, 149}


@pytest.mark.parametrize(
    ("gaps", "words", "longest"),
    [
        (dict.fromkeys(range(10, 160, 20), 210), "every 20th step", 210),
        (dict.fromkeys(ODD, 210), "at 8 of 155 steps, the longest 210 ms", 210),
        ({100: 3000}, "stood still once, for 3.0 s in step 100: a breakpoint", 3000),
    ],
)
def test_rare_long_gaps_are_counted_and_the_longest_is_told(
    tmp_path: Path, gaps: dict[int, int], words: str, longest: int
) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0, sync=True, host_ns=gaps.get(n, 0) * MS) for n in range(160)]])
    finding = found(tmp_path / "run")["host.step_gap"]
    assert words in finding.title
    assert finding.share == pytest.approx(sum(gaps.values()) / (sum(gaps.values()) + 155 * 10), abs=0.02)
    assert evidence(finding).get("Longest stretch", longest) == pytest.approx(longest, abs=1)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [(0.2, {"host.step_gap": 0.3}), (0.4, {"host.step_gap": 0.3}), (0.9, {"host.gil": 0.28})],
)
def test_a_loop_on_the_processor_is_charged_before_the_computation_and_once(
    tmp_path: Path, cpus: float, expected: dict[str, float]
) -> None:
    """Logging over the network, while another thread computes outside Python, or within it."""
    folder = train_on_cpu(tmp_path / "run", [{"gap": 30, "cpu_ms": 62}] * 60)
    before = facts_of_run(folder).parts
    parts = facts_of_run(threads(folder, cpus)).parts
    assert parts.share("compute") == pytest.approx(0.6, abs=0.005)
    if "host.gil" not in expected:
        assert (parts.compute_ns, parts.host_ns, parts.gil_ns) == (before.compute_ns, before.host_ns, 0)
    # Of the gap 2 % are left beside the lock: too little for a word.
    host = {cause: share for cause, share in shares(folder).items() if str(cause).startswith("host.")}
    assert host == pytest.approx(expected, abs=0.01)


Calls = tuple[Window, Records, Records]


def on_cuda(folder: Path) -> Calls:
    """Steps of 15 ms, of which the backward pass takes 6 and the loop 5; the thread runs 9."""
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, host_ns=15 * MS)] * 150])

    def change(steps: Records) -> None:
        steps["cpu_ns"] = 9 * MS
        for name, ms in (("backward_begin_ns", 3), ("optimizer_begin_ns", 9), ("optimizer_end_ns", 10)):
            steps[name] = steps["fetch_begin_ns"] + ms * MS

    amend(folder, change)
    run = open_run(folder)
    return facts_of_run(folder).window, run.records(PAUSE), run.records(EVENT)


def changed(calls: Calls, **columns: Any) -> Calls:
    window = calls[0]
    for name, value in columns.items():
        window = replace(window, steps=with_column(window.steps, name, np.broadcast_to(value, len(window.steps))))
    return window, *calls[1:]


@pytest.mark.parametrize("cpus", [0.1, 0.3, 1.0])
def test_a_backward_pass_in_autograds_thread_is_no_wait_for_the_lock(tmp_path: Path, cpus: float) -> None:
    calls = on_cuda(tmp_path / "run")
    threads(tmp_path / "run", cpus)
    window, pauses, _ = calls
    run = open_run(tmp_path / "run")
    there = own_time(window, pauses, run.records(EVENT), backward_elsewhere=True)
    assert running_of(*there) == pytest.approx(1.0, abs=0.01)
    seen = gil_of(window, *there, run.records(EVENT), run.records(HOST))
    assert seen is not None
    assert seen.waited.sum() < 0.01 * window.wall_ns
    # Elsewhere the thread that calls it runs it.
    span, cpu = own_time(*calls)
    assert running_of(span, cpu) == pytest.approx(0.6, abs=0.01)
    assert (span - cpu).sum() == pytest.approx(0.4 * window.wall_ns, rel=0.05)


def test_a_backward_pass_that_the_optimizer_calls_lasts_until_that_ends(tmp_path: Path) -> None:
    calls = on_cuda(tmp_path / "run")
    called = changed(calls, optimizer_begin_ns=calls[0].steps["fetch_begin_ns"] + 1 * MS)
    assert own_time(*called, True)[0] == pytest.approx(8 * MS, rel=0.02)


def test_steps_whose_backward_pass_has_no_end_say_nothing(tmp_path: Path) -> None:
    """Gradients are only accumulated."""
    endless = changed(on_cuda(tmp_path / "run"), optimizer_begin_ns=NOT_MEASURED, optimizer_end_ns=NOT_MEASURED)
    assert np.isnan(running_of(*own_time(*endless, True)))
    # Steps without a backward pass are the thread's own.
    none = changed(endless, backward_begin_ns=NOT_MEASURED)
    assert running_of(*own_time(*none, True)) == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("utilisation", [None, 50])
@pytest.mark.parametrize("handed", [0.0, 0.2])
def test_waits_for_the_lock_are_behind_the_loop_between_launches_and_for_finished_batches(
    tmp_path: Path, handed: float, utilisation: int | None
) -> None:
    folder = held_up(tmp_path / "run", COMPUTE // 2, COMPUTE // 2)
    if utilisation is not None:
        looked(folder, {}, utilisation_pct=30.0)
    facts = facts_of_run(folder)
    handed_ns = round(handed * facts.parts.wall_ns)
    finding = gil(Claim(facts, pieces_of(facts)[Piece.GIL] + handed_ns))
    assert finding is not None
    within = 0.0 if utilisation is None else 2 / 3 - 0.3
    assert finding.share == pytest.approx(1 / 3 + within + handed, abs=0.02)


@pytest.mark.parametrize("share", SEVERITIES)
def test_on_the_processor_waits_for_the_lock_are_no_computing(tmp_path: Path, share: float) -> None:
    waited = 100 * share
    folder = train_on_cpu(tmp_path / "run", [{"cpu_ms": 90 - waited}] * 60)
    before = facts_of_run(folder).parts
    threads(folder, 1.0)
    parts = facts_of_run(folder).parts
    assert parts.share("input") == before.share("input") == pytest.approx(0.1)
    assert before.gil_ns == 0
    assert before.share("host") == pytest.approx(0.05)
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns
    assert parts.gil_ns / parts.wall_ns == pytest.approx(share, abs=0.02)
    # 5 of the 100 ms were the host's already.
    assert parts.share("compute") == pytest.approx(0.85 - (share - 0.05), abs=0.005)
    assert found(folder)["host.gil"].share == pytest.approx(share, abs=0.02)


def staged(folder: Path, stage_ms: float, **step: Any) -> Path:
    """The loop works so long on each batch before its model; the device is done with the last step."""
    each = Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, before_ns=round(stage_ms * MS), **step)
    return trained(folder, [[each] * 120])


@pytest.mark.parametrize(("stage_ms", "seen"), [(8, True), (30, True), (60, True), (30, False)])
def test_a_stage_has_its_share_on_the_processor_where_the_model_s_call_is_seen(
    tmp_path: Path, stage_ms: int, seen: bool
) -> None:
    """Steps of 100 ms, 10 of them a fetch."""
    steps = [{"flags": StepFlag.FORWARD_SEEN * seen, "gap": 0}] * 60
    folder = train_on_cpu(tmp_path / "run", steps)

    def later(steps: Records) -> None:
        steps["forward_begin_ns"] += stage_ms * MS

    amend(folder, later)
    assert (facts_of_run(folder).staging is not None) == seen
    expected = stage_ms / 100 if seen else None
    assert shares(folder).get("input.main_process") == (expected and pytest.approx(expected, abs=0.01))
    assert "host.step_gap" not in found(folder)


def test_what_is_short_is_the_loop_s_own_bookkeeping(tmp_path: Path) -> None:
    """As `zero_grad` and a scheduler are: beside other work of the loop it is part of that."""
    folder = staged(tmp_path / "run", 0.9 * LEAST_STAGE * 13.0, host_ns=2 * MS)
    assert shares(folder) == {"host.step_gap": pytest.approx(facts_of_run(folder).parts.share("host"))}


@pytest.mark.parametrize(
    ("workers", "words"),
    [(0, "with `num_workers=1` or more"), (1, "in the worker,"), (3, "in the 3 workers,"), (None, "a DataLoader with")],
)
def test_where_to_put_it_depends_on_the_loader(tmp_path: Path, workers: int | None, words: str) -> None:
    folder = staged(tmp_path / "run", 10)
    if workers is not None:
        told(folder, workers, 2 if workers else None, 0)
    (finding,) = found(folder).values()
    assert (finding.cause, words in finding.next[0].change) == ("input.main_process", True)


@pytest.mark.parametrize(
    ("cpus", "used", "kind", "rate"),
    [(8, 1.0, "in_workers", 2 * 8 / 0.034), (1, 0.2, "in_workers", 8 / 0.034), (2, 2.0, "cheaper", None)],
)
def test_no_more_is_promised_than_workers_and_cpus_can_give(
    tmp_path: Path, cpus: float, used: float, kind: str, rate: float | None
) -> None:
    """Two workers that make a batch in 4 ms; the stage takes 30 beside 10 of computing."""
    each = Step(fetch_ns=4 * MS, compute_ns=COMPUTE, sync=True, before_ns=30 * MS)
    pooled(tmp_path / "run", [[each] * 120], PlantedWorkers(2, 2), Making())
    hosted(tmp_path / "run", used, cpus)
    update_run(tmp_path / "run", {"device": {"kind": "emulated"}})
    first = found(tmp_path / "run")["input.main_process"].next[0]
    low, predicted, high = rates(first)
    assert first.kind == kind
    assert low < predicted == pytest.approx(rate or predicted, rel=0.02)
    if cpus == 8:
        assert high == pytest.approx(1.2 * predicted, rel=0.01)


@pytest.mark.parametrize("drawn_ms", [8, 15, 25])
def test_what_the_training_waits_for_its_sampler_is_that_and_no_more(tmp_path: Path, drawn_ms: int) -> None:
    """Of fetches of 30 ms that follow computations of 10, the sampler takes the end."""
    folder = trained(tmp_path / "run", [[Step(fetch_ns=30 * MS)] * 100])
    drawn_ns = drawn_ms * MS
    happened(folder, EventKind.SAMPLER, 8, lambda s: [(e - drawn_ns, e) for e in s["fetch_end_ns"]])
    facts = facts_of_run(folder)
    # The first 10 ms of each fetch the device computes.
    share = min(drawn_ms, 20) / 30
    assert found(folder)["input.sampler"].share == pytest.approx(share, abs=0.01)
    assert facts.waits.total_ns == facts.parts.input_ns
    assert facts.waits.making_ns / facts.parts.wall_ns == pytest.approx(2 / 3 - share, abs=0.01)


# Time outside the steps.

PASSES = 4
BUSY = {"starting": 0.02, "busy": 0.95}


def bounded(folder: Path, share: float, epochs: bool = False) -> Spans:
    """So much of the time outside the steps, after every 40th, each of which ends an epoch or none; when that was."""
    each = round(400 * MS * share / (1 - share))
    plan = [Step(fetch_ns=0)] * 39 + [Step(fetch_ns=0, sync=True, boundary_ns=each)]
    train(folder, [plan] * PASSES if epochs else [plan * PASSES])
    return boundaries(folder)


def made(folder: Path, spans: Spans, workers: int, starting: float, busy: float, first: int = 1, **of: Any) -> None:
    """Batches of the validation's loader: taken up after a share of each pass (of the first, where the workers are
    persistent), each worker busy a share of the rest, and on a CPU, or reading, for a part of that."""
    rows, persistent = [], of.pop("persistent", False)
    for number, (begin, end) in enumerate(spans):
        if not persistent or number == 0:
            begin += round(starting * (end - begin))
        length = (end - begin) // 10 * first
        for place in range(10 // first * workers):
            at = begin + place // workers * length
            row = batch(Making(**of), place % workers, at, at + round(busy * length), number, place, persistent)
            unknown = {} if "cpu" in of else dict.fromkeys(("cpu_ns", "run_queue_ns"), NOT_MEASURED)
            rows.append(row | {"loader": 90 if persistent else 90 + number} | unknown)
    add(folder, BATCH, rows)


def validated(
    folder: Path, waited: float, workers: int | None, batches: dict[str, Any], cpus: int | None = None
) -> Finding:
    spans = bounded(folder, 0.3)
    evaluated(folder, spans, waited, workers)
    if batches:
        made(folder, spans, workers or 0, **batches)
    if cpus:
        add(folder, HOST, [{"t_ns": START + n * 100 * MS, "cpus": 1000 * cpus} for n in range(20)])
    return found(folder)["host.boundary"]


@pytest.mark.parametrize(
    "row",
    [
        (0.8, 0, {}, None, "serial", "in the training process, one after the other.", "num_workers="),
        (0.8, 2, BUSY, None, "too_few_workers", ": 2 workers are busy all the time.", "instead of 2"),
        # Where more workers are of no use samples have to be cheaper.
        (0.8, 4, BUSY, 2, "too_few_workers", "", "make samples cheaper"),
        (0.8, 2, {"starting": 0.7, "busy": 0.5}, None, "worker_restart", "", "persistent_workers=True"),
        # The first batch takes its part; both together are half of the waiting, and workers that idle not too few.
        (0.6, 2, {"starting": 0.27, "busy": 0.45}, None, "worker_restart", "ms per epoch.", "persistent_workers=True"),
        (0.6, 2, {"starting": 0.2, "busy": 0.95}, None, "too_few_workers", "", ""),
        (0.7, 2, {"starting": 0.05, "busy": 0.9, "first": 5}, None, "pipeline_fill", "", ""),
        # Rules of the training's own wait that need no steps.
        (
            0.8,
            2,
            BUSY | {"cpu": 0.1, "read": 0.8},
            None,
            "storage",
            ": the loader waits for storage.",
            "faster storage",
        ),
        (0.8, None, {}, None, None, "most of it on validation that waits for data.", ""),
        (0.05, 2, {}, None, None, "most of it on validation that computes.", "Validate less often"),
        # Little's law: the time its batches take over the time it needs for them, the workers busy 80 %; no more than
        # make two of a pass's batches. Those that mostly wait may be more than the CPUs.
        *(
            (waited, workers, batches, cpus, cause, "", f"For the validation loader: set `num_workers={wanted}`")
            for waited, workers, batches, cpus, cause, wanted in (
                (0.6, 0, {}, 192, "serial", 2),
                (0.79, 0, {}, 192, "serial", 5),
                (0.89, 0, {}, 192, "serial", 11),
                (0.999, 0, {}, 192, "serial", 64),
                (0.999, 0, {}, 4, "serial", 4),
                (0.99, 2, BUSY, 192, "too_few_workers", 10),
                (0.99, 2, BUSY | {"cpu": 0.9}, 4, "too_few_workers", 4),
                (0.99, 2, BUSY | {"cpu": 0.1}, 4, "too_few_workers", 10),
            )
        ),
    ],
)
def test_what_validation_lacks_is_told_by_its_waits_and_workers(tmp_path: Path, row: tuple[Any, ...]) -> None:
    waited, workers, batches, cpus, cause, title, change = row
    finding = validated(tmp_path / "run", waited, workers, batches, cpus)
    seen = evidence(finding)
    assert seen.get("Cause of the validation's wait") == (cause and f"input.{cause}")
    assert seen["Workers of the validation loader"] == workers
    assert finding.title.endswith(title)
    assert change in finding.next[0].change
    if cause == "too_few_workers":
        assert seen["Validation workers busy"] == pytest.approx(95, abs=2)


@pytest.mark.parametrize(
    ("recorded", "cpus", "change"), [(1, 192, "num_workers=4"), (2, 192, "num_workers=4"), (1, 1, "")]
)
def test_a_validation_that_draws_on_from_one_iterator_waits_for_workers_at_work(
    tmp_path: Path, recorded: int, cpus: int, change: str
) -> None:
    """One batch a pass, whose making begins where the pass before ends; of the batches each, or each second, is known.
    Making takes all the time, of which 63 % is waited for: Little's law, 1 / 0.37 at 80 % busy."""
    folder = tmp_path / "run"
    spans = bounded(folder, 0.7)
    evaluated(folder, spans, 0.9, workers=1)
    ends = [spans[0][1] - (spans[1][1] - spans[0][1]), *(end for _, end in spans)]
    rows = [
        {"worker": 0, "begin_ns": ends[n], "end_ns": ends[n + 1] - MS, "samples": 8, "loader": 90, "batch": n}
        | {"threads": 1, "cpu_ns": NOT_MEASURED, "skipped": recorded - 1}
        | {"skipped_ns": (recorded - 1) * (spans[1][1] - spans[0][1])}
        for n in range(0, len(spans), recorded)
    ]
    add(folder, BATCH, rows)
    add(folder, HOST, [{"t_ns": START + n * 100 * MS, "cpus": 1000 * cpus} for n in range(20)])
    finding = found(folder)["host.boundary"]
    seen = evidence(finding)
    assert seen["Cause of the validation's wait"] == "input.too_few_workers"
    assert seen["Validation workers busy"] > 95
    change = f"set `{change}" if change else "make samples cheaper"
    assert finding.next[0].change.startswith(f"For the validation loader: {change}")


@pytest.mark.parametrize(("waited", "cpus", "goes"), [(0.8, None, 0.8), (0.999, 2, 0.5), (0.999, 4, 0.75)])
def test_no_more_is_promised_than_the_waiting_that_so_many_workers_remove(
    tmp_path: Path, waited: float, cpus: int | None, goes: float
) -> None:
    _, rate, high = rates(validated(tmp_path / "run", waited, 0, {}, cpus).next[0])
    facts = facts_of_run(tmp_path / "run")
    most = facts.samples_per_s_without(goes * facts.parts.boundary_ns)
    assert most is not None
    assert rate <= most < high < most * math.exp(1.645 * SCATTER_SD) * 1.1


@pytest.mark.parametrize(("of_training", "advised"), [(2, False), (4, True)])
def test_validation_is_not_told_to_take_what_it_has(tmp_path: Path, of_training: int, advised: bool) -> None:
    """Its two workers have time to spare, and what it waits for is not known."""
    validated(tmp_path / "run", 0.6, 2, {"starting": 0.02, "busy": 0.3})
    told(tmp_path / "run", of_training, None, 0)
    changes = [change.change for change in found(tmp_path / "run")["host.boundary"].next]
    assert any(change.startswith("Give the validation loader") for change in changes) is advised
    assert [change.startswith("Validate less often") for change in changes].count(True) == 1


def test_workers_that_start_once_are_not_told_to_be_persistent(tmp_path: Path) -> None:
    """They are: only the first pass waits for them to start."""
    spans = bounded(tmp_path / "run", 0.3)
    evaluated(tmp_path / "run", spans[:1], waited=0.8)
    evaluated(tmp_path / "run", spans[1:], waited=0.02, workers=2)
    made(tmp_path / "run", spans, workers=2, starting=0.7, busy=0.5, persistent=True)
    outside = facts_of_run(tmp_path / "run").outside
    assert outside is not None
    assert outside.evaluation is not None
    assert outside.evaluation.started_once
    finding = found(tmp_path / "run")["host.boundary"]
    assert "Cause of the validation's wait" not in evidence(finding)
    assert not any("persistent_workers" in change.change for change in finding.next)


def test_validation_and_a_checkpoint_within_it_are_counted_apart(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.4)
    evaluated(tmp_path / "run", spans, waited=0.0, workers=1)
    add_events(tmp_path / "run", [((begin + end) // 2, EventKind.SAVE, 0, end) for begin, end in spans])
    seen = evidence(found(tmp_path / "run")["host.boundary"])
    assert seen["Validation that computes"] == pytest.approx(20, abs=2)
    assert seen["Saving checkpoints"] == pytest.approx(20, abs=2)


def test_workers_that_live_on_are_offered_before_what_validation_lacks(tmp_path: Path) -> None:
    spans = bounded(tmp_path / "run", 0.2, epochs=True)
    told(tmp_path / "run", 3, None, 0)
    evaluated(tmp_path / "run", [(at, end - (end - at) // 7) for at, end in spans], waited=0.9, workers=2)
    finding = found(tmp_path / "run")["host.boundary"]
    assert evidence(finding)["persistent_workers"] == "off"
    assert finding.next[0].change.startswith("Set `persistent_workers=True` in a DataLoader")
    assert "validation" in finding.next[1].change


@pytest.mark.parametrize(
    ("share", "epochs", "loader", "meanwhile"),
    [
        (0.3, True, (3, None, LoaderFlag.PERSISTENT_WORKERS), None),
        (0.3, True, None, None),
        (0.3, True, (0, None, 0), None),
        (0.3, False, (3, None, 0), None),  # within epochs
        (0.8, True, (3, None, 0), None),  # longer than ending workers takes
        *((0.3, True, (3, None, 0), known) for known in (EventKind.EVALUATION, EventKind.SAVE, EventKind.PHASE)),
    ],
)
def test_what_ending_workers_does_not_explain_is_not_blamed_on_it(
    tmp_path: Path, share: float, epochs: bool, loader: tuple[int, None, int] | None, meanwhile: int | None
) -> None:
    spans = bounded(tmp_path / "run", share, epochs)
    if loader:
        told(tmp_path / "run", *loader)
    if meanwhile is not None:
        add_events(tmp_path / "run", [(begin, meanwhile, 0, end) for begin, end in spans])
    finding = found(tmp_path / "run")["host.boundary"]
    assert not any("persistent_workers" in change.change for change in finding.next)
    if meanwhile is None:
        assert finding.title.endswith("outside the steps: validation, checkpoints, hooks.")
        assert finding.next[0].change.startswith("Look at what runs between the steps")


def test_workers_that_live_on_are_not_ended_where_the_loader_is_made_anew(tmp_path: Path) -> None:
    bounded(tmp_path / "run", 0.3, epochs=True)
    told(tmp_path / "run", 3, None, LoaderFlag.PERSISTENT_WORKERS)
    facts = facts_of_run(tmp_path / "run")
    anew = dataclasses.replace(facts, waits=dataclasses.replace(facts.waits, iterators=PASSES))
    (one,) = (each for each in findings_of(anew) if each.cause == "host.boundary")
    assert not any("persistent_workers" in change.change for change in one.next)
