"""What the training's own process costs: each cause at several sizes, alone and together, and where it is none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add, add_events, amend, evidence, facts_of_run, found, steps_of, train_on_cpu
from whyidle.analyse.causes.claim import Claim, Piece
from whyidle.analyse.causes.divided import pieces_of
from whyidle.analyse.causes.host import gil
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.divided_time import gil_of, own_time
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.analyse.run.window import Window
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.record.columns import with_column
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import DEVICE, EVENT, HOST, NOT_MEASURED, PAUSE, EventKind, Kind
from whyidle.scenarios.planted import MS, START, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
COMPUTE = 10 * MS


def of_wall(share: float) -> int:
    """Time beside a computation of 10 ms that makes up so much of the step."""
    return round(COMPUTE * share / (1 - share))


def gapped(folder: Path, gap_ns: int, steps: int = 150) -> Path:
    """A training whose loop works for so long once the device is done."""
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, host_ns=gap_ns)] * steps])
    return folder


def threads(folder: Path, cpus: float) -> None:
    """Other Python threads that keep so many CPUs busy."""
    steps = steps_of(folder)
    looks = range(START, int(steps["step_end_ns"].max()), 20 * MS)
    add_events(folder, [(t, EventKind.PYTHON_THREADS, round(cpus * (t - START)), NOT_MEASURED) for t in looks])


def queueing(folder: Path, share: float) -> None:
    """The training's thread waits for a CPU so much of the time."""
    end = int(steps_of(folder)["step_end_ns"].max())
    rows = [{"t_ns": t, "main_thread_queue_ns": round(share * (t - START))} for t in range(START, end, 200 * MS)]
    add(folder, HOST, rows)


def waiting(folder: Path, own_ns: int, waited_ns: int) -> None:
    """Of `own_ns` a step outside fetches and calls, the thread does not run for `waited_ns`."""

    def change(steps: object) -> None:
        steps["cpu_ns"] = own_ns - waited_ns  # type: ignore[index]

    amend(folder, change)


def collect(folder: Path, each_ns: int) -> None:
    """A garbage collection at the end of each step."""
    ends = steps_of(folder)["step_end_ns"].tolist()
    add_events(folder, [(end - each_ns, EventKind.GARBAGE, 0, end) for end in ends])


@pytest.mark.parametrize("share", SEVERITIES)
def test_work_between_the_steps_has_its_share_and_is_at_every_step(tmp_path: Path, share: float) -> None:
    finding = found(gapped(tmp_path / "run", of_wall(share)))["host.step_gap"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "at every step" in finding.title
    where = evidence(finding)["host time between the optimizer and the next fetch, of the wall time"]
    assert where == pytest.approx(100 * share, abs=2)
    (change,) = finding.next
    assert change.predicted_samples_per_s is not None
    assert change.high is not None
    assert change.predicted_samples_per_s < 800 < change.high < 800 * math.exp(1.645 * SCATTER_SD) * 1.03


def test_a_healthy_training_has_no_host_finding(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", 0)
    threads(folder, 0.9)
    waiting(folder, MS, 0)
    assert found(folder) == {}


def test_rare_long_gaps_are_counted_and_the_longest_is_told(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=0, sync=True, host_ns=(210 if n % 20 == 10 else 0) * MS) for n in range(160)]
    train(tmp_path / "run", [plan])
    finding = found(tmp_path / "run")["host.step_gap"]
    # Seven of the 152 steps after the warm-up begin an interval of twenty; the eighth is the last.
    assert finding.share == pytest.approx(8 * 210 / (8 * 210 + 155 * 10), abs=0.02)
    assert "every 20th step" in finding.title
    assert evidence(finding)["the longest stretch"] == pytest.approx(210, abs=1)


def test_gaps_at_no_fixed_distance_are_so_many_of_the_steps(tmp_path: Path) -> None:
    hit = {11, 12, 40, 77, 93, 101, 130, 149}
    plan = [Step(fetch_ns=0, sync=True, host_ns=(210 if n in hit else 0) * MS) for n in range(160)]
    train(tmp_path / "run", [plan])
    assert "at 8 of 155 steps, the longest 210 ms" in found(tmp_path / "run")["host.step_gap"].title


def test_one_long_stop_is_called_a_pause_of_the_program(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=0, sync=True, host_ns=3000 * MS if n == 100 else 0) for n in range(160)]
    train(tmp_path / "run", [plan])
    finding = found(tmp_path / "run")["host.step_gap"]
    assert "stood still once, for 3.0 s in step 100: a breakpoint" in finding.title


def test_a_phase_of_the_program_in_the_gap_is_named(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", COMPUTE)
    ends = steps_of(folder)["step_end_ns"].tolist()
    add_events(folder, [(end - 8 * MS, EventKind.PHASE, 7, end) for end in ends])
    finding = found(folder)["host.step_gap"]
    (share,) = [value for what, value in evidence(finding).items() if "phase" in what]
    assert share == pytest.approx(40, abs=1)
    assert "phase" in finding.next[0].change


@pytest.mark.parametrize("share", SEVERITIES)
def test_garbage_collection_has_its_share_and_the_rest_of_the_gap_keeps_its_own(tmp_path: Path, share: float) -> None:
    gap = of_wall(share)
    alone = gapped(tmp_path / "alone", gap)
    collect(alone, gap)
    assert found(alone)["host.gc"].share == pytest.approx(share, abs=0.02)
    assert set(found(alone)) == {"host.gc"}
    both = gapped(tmp_path / "both", 2 * gap)
    collect(both, gap)
    shares = {cause: finding.share for cause, finding in found(both).items()}
    each = gap / (COMPUTE + 2 * gap)
    assert shares == {"host.gc": pytest.approx(each, abs=0.02), "host.step_gap": pytest.approx(each, abs=0.02)}


@pytest.mark.parametrize("share", SEVERITIES)
def test_waiting_for_the_lock_has_its_share_and_the_rest_of_the_gap_keeps_its_own(tmp_path: Path, share: float) -> None:
    gap = of_wall(share)
    alone = gapped(tmp_path / "alone", gap)
    threads(alone, 1.0)
    waiting(alone, gap, gap)
    assert {cause: finding.share for cause, finding in found(alone).items()} == {
        "host.gil": pytest.approx(share, abs=0.02)
    }
    both = gapped(tmp_path / "both", 2 * gap)
    threads(both, 1.0)
    waiting(both, 2 * gap, gap)
    each = gap / (COMPUTE + 2 * gap)
    assert {cause: finding.share for cause, finding in found(both).items()} == {
        "host.gil": pytest.approx(each, abs=0.02),
        "host.step_gap": pytest.approx(each, abs=0.02),
    }


def test_a_loop_that_sleeps_waits_for_no_lock(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", COMPUTE)
    waiting(folder, COMPUTE, COMPUTE)
    assert facts_of_run(folder).gil is None
    assert set(found(folder)) == {"host.step_gap"}
    # Threads that hardly run hold nothing up.
    threads(folder, 0.02)
    assert set(found(folder)) == {"host.step_gap"}


def test_no_more_waiting_for_the_lock_than_others_ran_meanwhile(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", 3 * COMPUTE)
    threads(folder, 0.65)
    waiting(folder, 3 * COMPUTE, 3 * COMPUTE)
    # Others ran 26 of the 40 ms of a step.
    assert found(folder)["host.gil"].share == pytest.approx(0.65, abs=0.02)
    assert found(folder)["host.step_gap"].share == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("cpus", [0.1, 0.25, 0.4])
def test_what_others_hardly_explain_is_a_loop_that_sleeps(tmp_path: Path, cpus: float) -> None:
    folder = gapped(tmp_path / "run", 3 * COMPUTE)
    threads(folder, cpus)
    waiting(folder, 3 * COMPUTE, 3 * COMPUTE)
    assert set(found(folder)) == {"host.step_gap"}
    assert found(folder)["host.step_gap"].share == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("cpus", [0.2, 0.4])
def test_a_loop_that_sleeps_on_the_processor_is_counted_once(tmp_path: Path, cpus: float) -> None:
    """Logging over the network, while another thread computes outside Python."""
    folder = train_on_cpu(tmp_path / "run", [{"gap": 30, "cpu_ms": 62}] * 60)
    before = facts_of_run(folder).parts
    threads(folder, cpus)
    parts = facts_of_run(folder).parts
    assert (parts.compute_ns, parts.host_ns, parts.gil_ns) == (before.compute_ns, before.host_ns, 0)
    assert "host.gil" not in found(folder)
    assert found(folder)["host.step_gap"].share == pytest.approx(0.3, abs=0.01)


def test_the_gap_behind_the_loop_is_charged_before_the_computation(tmp_path: Path) -> None:
    folder = train_on_cpu(tmp_path / "run", [{"gap": 30, "cpu_ms": 62}] * 60)
    threads(folder, 0.9)
    parts = facts_of_run(folder).parts
    assert parts.share("compute") == pytest.approx(0.6, abs=0.005)
    assert found(folder)["host.gil"].share == pytest.approx(0.28, abs=0.01)
    # 2 % are left of the gap: too little for a word.
    assert "host.step_gap" not in found(folder)


def on_cuda(folder: Path) -> Window:
    """Steps of 15 ms, of which the backward pass takes 6 and the loop 5; the thread runs 9."""
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, host_ns=15 * MS)] * 150])

    def change(steps: Records) -> None:
        steps["cpu_ns"] = 9 * MS
        steps["backward_begin_ns"] = steps["fetch_begin_ns"] + 3 * MS
        steps["optimizer_begin_ns"] = steps["fetch_begin_ns"] + 9 * MS
        steps["optimizer_end_ns"] = steps["fetch_begin_ns"] + 10 * MS

    amend(folder, change)
    return facts_of_run(folder).window


def records_of(folder: Path, kind: Kind) -> Records:
    return open_run(folder).records(kind)


@pytest.mark.parametrize("cpus", [0.1, 0.3, 1.0])
def test_a_backward_pass_in_autograds_thread_is_no_wait_for_the_lock(tmp_path: Path, cpus: float) -> None:
    folder = tmp_path / "run"
    window = on_cuda(folder)
    threads(folder, cpus)
    events, pauses, host = (records_of(folder, kind) for kind in (EVENT, PAUSE, HOST))
    there = own_time(window, pauses, events, backward_elsewhere=True)
    assert there.running() == pytest.approx(1.0, abs=0.01)
    assert there.off_cpu.sum() < 0.01 * window.wall_ns
    seen = gil_of(window, there, events, host)
    assert seen is not None
    assert seen.waited.sum() < 0.01 * window.wall_ns
    # Elsewhere the thread that calls it runs it.
    here = own_time(window, pauses, events)
    assert here.running() == pytest.approx(0.6, abs=0.01)
    assert here.off_cpu.sum() == pytest.approx(0.4 * window.wall_ns, rel=0.05)


def test_a_backward_pass_that_the_optimizer_calls_lasts_until_that_ends(tmp_path: Path) -> None:
    window = on_cuda(tmp_path / "run")
    events, pauses = (records_of(tmp_path / "run", kind) for kind in (EVENT, PAUSE))
    begin = window.steps["fetch_begin_ns"]
    window = replace(window, steps=with_column(window.steps, "optimizer_begin_ns", begin + 1 * MS))
    assert own_time(window, pauses, events, True).span == pytest.approx(8 * MS, rel=0.02)


def test_steps_whose_backward_pass_has_no_end_say_nothing(tmp_path: Path) -> None:
    """Gradients are only accumulated."""
    window = on_cuda(tmp_path / "run")
    events, pauses = (records_of(tmp_path / "run", kind) for kind in (EVENT, PAUSE))
    for name in ("optimizer_begin_ns", "optimizer_end_ns"):
        missing = np.full(len(window.steps), NOT_MEASURED)
        window = replace(window, steps=with_column(window.steps, name, missing))
    own = own_time(window, pauses, events, True)
    assert own.running() is None
    assert own.off_cpu.sum() == 0
    # Steps without a backward pass are the thread's own.
    window = replace(window, steps=with_column(window.steps, "backward_begin_ns", missing))
    assert own_time(window, pauses, events, True).running() == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize("utilisation", [None, 50])
@pytest.mark.parametrize("handed", [0.0, 0.2])
def test_waits_for_the_lock_say_where_they_are(tmp_path: Path, handed: float, utilisation: int | None) -> None:
    folder = gapped(tmp_path / "run", COMPUTE // 2)
    threads(folder, 1.0)
    waiting(folder, COMPUTE // 2, COMPUTE // 2)
    if utilisation is not None:
        end = int(steps_of(folder)["step_end_ns"].max())
        rows = [
            {"t_ns": t, "device": 0, "window_ns": 50 * MS, "utilisation_pct": 30.0} for t in range(START, end, 50 * MS)
        ]
        add(folder, DEVICE, rows)
    facts = facts_of_run(folder)
    handed_ns = round(handed * facts.parts.wall_ns)
    finding = gil(Claim(facts, pieces_of(facts)[Piece.GIL] + handed_ns), handed_ns)
    assert finding is not None
    within = 0.0 if utilisation is None else 2 / 3 - 0.3
    assert finding.share == pytest.approx(1 / 3 + within + handed, abs=0.02)
    parts = {"behind the loop's own work": 1 / 3, "between launches within the steps": within}
    parts["for batches that were finished"] = handed
    known = {what: share for what, share in parts.items() if share}
    for what, share in known.items():
        assert (f"{100 * share:.0f} % {what}" in finding.title) == (len(known) > 1)
    told = [value for what, value in evidence(finding).items() if what.endswith(", of the wall time")]
    assert sum(told) == pytest.approx(100 * finding.share if len(known) > 1 else 0)


def test_waiting_for_a_cpu_is_not_waiting_for_the_lock(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", 3 * COMPUTE)
    threads(folder, 1.0)
    waiting(folder, 3 * COMPUTE, 2 * COMPUTE)
    queueing(folder, 0.25)
    facts = facts_of_run(folder)
    assert facts.gil is not None
    assert facts.gil.queue_known
    assert facts.gil.others_busy == pytest.approx(1.0, abs=0.02)
    # 20 of 40 ms not running, 10 of them queueing for a CPU.
    assert found(folder)["host.gil"].share == pytest.approx(0.25, abs=0.02)


def test_without_the_threads_own_clock_nothing_is_said_of_the_lock(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", COMPUTE)
    threads(folder, 1.0)
    waiting(folder, 0, 0)
    amend(folder, lambda steps: steps["cpu_ns"].fill(NOT_MEASURED))
    assert facts_of_run(folder).gil is None
    assert set(found(folder)) == {"host.step_gap"}


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


@pytest.mark.parametrize("share", SEVERITIES)
def test_synchronising_calls_have_their_share_and_tell_how_many_they_are(tmp_path: Path, share: float) -> None:
    step = Step(fetch_ns=0, compute_ns=COMPUTE, sync_within=True, within_ns=of_wall(share))
    train(tmp_path / "run", [[step] * 150])
    finding = found(tmp_path / "run")["host.sync"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "at every step" in finding.title
    assert evidence(finding)["synchronising calls in a step"] == pytest.approx(1)
    assert all("item()" in change.change or "cpu" in change.change for change in finding.next)


def test_rare_synchronising_calls_are_counted(tmp_path: Path) -> None:
    hit = {11, 12, 40, 77, 93, 101, 130, 149}
    plan = [Step(fetch_ns=0, sync_within=n in hit, within_ns=100 * MS) for n in range(160)]
    train(tmp_path / "run", [plan])
    finding = found(tmp_path / "run")["host.sync"]
    assert "at 8 of 155 steps, the longest 100 ms" in finding.title
    assert evidence(finding)["steps with any"] == "8 of 155"


def test_findings_of_the_host_never_add_up_to_more_than_its_part(tmp_path: Path) -> None:
    folder = gapped(tmp_path / "run", 2 * COMPUTE)
    collect(folder, COMPUTE)
    threads(folder, 1.0)
    waiting(folder, 2 * COMPUTE, 2 * COMPUTE)
    analysis = analyse(open_run(folder))
    assert analysis.facts is not None
    assert sum(finding.share for finding in analysis.findings) <= analysis.facts.parts.share("host") + 1e-9
