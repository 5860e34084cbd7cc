"""What two runs differ by anyway: the interval holds the truth, and what is no difference is seldom called one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.crafted import add, amend, facts_of_run
from support.pairs import SOME, ahead, compare, crowded, noisy
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import assumed_noise, scatter_of, side_of
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.statistics import RUN_NOISE
from whyidle.record.reader import Records
from whyidle.record.schema import BATCH, NOT_MEASURED, StepFlag
from whyidle.report.documents.diff import headline
from whyidle.scenarios.planted import MS, START


def test_two_runs_of_one_setting_are_rarely_called_different(tmp_path: Path) -> None:
    """40 pairs whose speeds differ by 2 % (standard deviation) for no reason, as on an ordinary machine."""
    rng = SOME(7)
    runs = [noisy(tmp_path / str(n), rng, steps=120, run_noise=0.02, step_noise=0.3) for n in range(80)]
    sides = [side_of("A", [run]) for run in runs]
    found = [Difference(a, b) for a, b in zip(sides[::2], sides[1::2], strict=True)]
    wrong = sum(each.times.significant for each in found)
    wrong_parts = sum(any(each.times.terms[part].significant for part in PARTS) for each in found)
    assert wrong <= 0.1 * len(found)
    assert wrong_parts <= 0.1 * len(found)


def test_steps_that_follow_each_other_widen_the_interval(tmp_path: Path) -> None:
    """What blocks say a run scatters by is what runs do scatter by; steps taken one by one would say a third."""
    rng = SOME(3)
    totals, told = [], []
    for number in range(40):
        folder = noisy(tmp_path / str(number), rng, steps=320, run_noise=0.0, step_noise=0.2, follow=0.9)
        facts = facts_of_run(folder)
        totals.append(facts.parts.wall_ns / facts.samples)
        told.append(scatter_of(facts)["sample"][TOTAL])
    true = float(np.std(totals, ddof=1) / np.mean(totals))
    said = float(np.sqrt(np.mean(told)))
    by_step = 0.2 / np.sqrt(320)
    assert by_step < 0.5 * true
    assert true / 1.6 < said < true * 1.6


def scatter(folder: Path) -> float:
    """What its own steps say a run's time may be off by, as a share; NaN where they say nothing."""
    (run,) = side_of("A", [folder]).runs
    return float(np.sqrt(run.scatter["sample"][TOTAL])) if run.scatter else float("nan")


@pytest.mark.parametrize(("read_every", "pause_ms"), [(1, 0), (10, 0), (1000, 0), (1000, 200)])
def test_a_host_that_runs_ahead_is_no_scatter(tmp_path: Path, read_every: int, pause_ms: float) -> None:
    """Every step takes as long; the host is up to ten, or sixty, of them ahead of the device."""
    for name, compute_ms in (("a", 10), ("b", 13)):
        how = {"compute_ms": compute_ms, "read_every": read_every, "pause_ms": pause_ms}
        ahead(tmp_path / name, SOME(1), run_noise=0, step_noise=0, **how)
        assert scatter(tmp_path / name) < 0.002
    assert compare(tmp_path / "a", tmp_path / "b").times.significant


def test_blocks_are_cut_where_the_device_told_when_it_was_done(tmp_path: Path) -> None:
    run = ahead(tmp_path / "a", SOME(1), run_noise=0, step_noise=0, read_every=1000)

    def forget(steps: Records) -> None:
        most = (steps["step"] % 20 > 4) & (steps["step"] % 60 < 59)
        for name in ("device_begin_ns", "device_end_ns"):
            steps[name][most] = NOT_MEASURED
        steps["flags"][most] |= StepFlag.MARKS_DROPPED

    amend(run, forget)
    assert scatter(run) < 0.01


def test_steps_that_were_let_pass_count_in_the_block_that_holds_their_time(tmp_path: Path) -> None:
    run = noisy(tmp_path / "a", SOME(1), run_noise=0, step_noise=0)

    def thin(steps: Records) -> None:
        """Three more before each, in the time of three."""
        lasted = int(steps["step_end_ns"][0] - steps["fetch_begin_ns"][0])
        for name in ("fetch_begin_ns", "fetch_end_ns", "forward_begin_ns", "optimizer_end_ns", "step_end_ns"):
            steps[name] += 3 * lasted * np.arange(len(steps))
        steps["skipped"][1:], steps["skipped_samples"][1:] = 3, 24

    amend(run, thin)
    assert scatter(run) < 1e-6


def test_of_runs_of_a_few_steps_nothing_is_claimed(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=60, steps=20)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2)
    found = compare(a, b)
    assert found.times.speedup.low > 1
    assert not found.times.significant
    assert not any(term.significant for term in found.times.terms.values())
    assert (found.because.kind, found.because.by) == ("none", ())
    assert headline(found).startswith("Too short to judge: B was 3")
    assert "but one has only 19 steps after the warm-up" in headline(found)


def test_runs_that_agree_narrow_the_interval_and_runs_that_do_not_widen_it(tmp_path: Path) -> None:
    quiet = [noisy(tmp_path / f"q{n}", SOME(n), run_noise=0.002, step_noise=0.02) for n in range(6)]
    loud = [noisy(tmp_path / f"l{n}", SOME(n), run_noise=0.15, step_noise=0.02) for n in range(6)]

    def reach(found: Difference) -> float:
        return found.times.speedup.high / found.times.speedup.low

    one = reach(compare(quiet[0], quiet[1]))
    assert reach(compare(quiet[:3], quiet[3:])) < 0.97 * one
    assert reach(compare(loud[:3], loud[3:])) > 1.1 * one
    assert reach(compare(quiet[0], quiet[1], noise=0.005)) < 0.97 * one
    assert not any("One run of each side" in note for note in compare(quiet[:3], quiet[3:]).notes)


@pytest.mark.parametrize(("busy_pct", "crowded_"), [(20.0, False), (100.0, True)])
def test_programs_that_filled_the_cpus_widen_the_interval(tmp_path: Path, busy_pct: float, crowded_: bool) -> None:
    """Others use 2 of 2 CPUs meanwhile: what two runs differ by then proves little."""
    a, b = (
        crowded(tmp_path / name, SOME(number), busy_pct=busy_pct, compute_ms=20 + 10 * number)
        for number, name in enumerate("ab")
    )
    found = compare(a, b)
    assert found.times.significant != crowded_
    assert bool(found.crowded) == crowded_
    assert any("CPUs were full" in note for note in found.notes) == crowded_


def test_programs_on_the_cpus_hold_up_only_what_needs_a_cpu(tmp_path: Path) -> None:
    """A training that sleeps is as fast beside them; makers that sleep are too, and makers that compute are not."""

    def noise(name: str, running: float | None, **makers: float) -> float:
        run = crowded(tmp_path / name, SOME(1), running=running, workers=1 if makers else 0, fetch_ms=25)
        if makers:
            cost = {what: round(share * 45 * MS) for what, share in makers.items()}
            begins = [START + number * 50 * MS for number in range(200)]
            rows = [{"step": n, "worker": 0, "samples": 8, "begin_ns": t} for n, t in enumerate(begins)]
            add(run, BATCH, [row | {"end_ns": row["begin_ns"] + 45 * MS} | cost for row in rows])
        (side,) = side_of("A", [run]).runs
        return assumed_noise(side)

    full = noise("unknown", None)
    assert full > 0.4
    assert noise("busy", 1.0) == pytest.approx(full)
    assert noise("half", 0.5) == pytest.approx(full / 2, rel=0.1)
    assert noise("asleep", 0.02) == RUN_NOISE
    asleep = noise("makers asleep", 0.02, cpu_ns=0.05, run_queue_ns=0.05)
    assert noise("makers computing", 0.02, cpu_ns=0.5, run_queue_ns=0.4) > 3 * asleep
    assert noise("makers queued, or not", 0.02, cpu_ns=0.05) > 3 * asleep
