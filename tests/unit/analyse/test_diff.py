"""Differences between runs whose true times are known."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.crafted import add, amend
from support.jobs import Rank, record
from support.pairs import SOME, ahead, compare, crowded, noisy, true_ms
from whyidle.analyse.diff import because
from whyidle.analyse.diff.blocks import TOTAL, spread_of
from whyidle.analyse.diff.difference import Difference, difference
from whyidle.analyse.diff.sides import side_of
from whyidle.analyse.diff.times import assumed_noise
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.analyse.statistics import RUN_NOISE
from whyidle.errors import WhyidleError
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.reader import Records
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import BATCH, NOT_MEASURED, LoaderFlag, StepFlag
from whyidle.report.documents import diff as diff_text
from whyidle.scenarios.planted import MS, START, Step, train


def setting(found: Difference, name: str) -> tuple[object, object]:
    return next((each.a, each.b) for each in found.settings if each.name == name)


def test_more_workers_are_named_where_the_wait_for_data_fell(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2)
    found = compare(a, b)
    true = true_ms(15) / true_ms(2)
    assert found.times.speedup.low <= true <= found.times.speedup.high
    assert found.times.significant
    assert found.because.kind == because.SETTING
    assert found.because.part == "input"
    assert [(each.name, each.a, each.b) for each in found.because.by] == [("num_workers", 1, 4)]
    saved = found.times.terms["input"].change
    assert saved.low <= 1e3 * (2 - 15) / 8 <= saved.high
    assert not found.times.terms["compute"].significant


def test_workers_are_not_named_where_computing_got_slower(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1)
    b = noisy(tmp_path / "b", SOME(2), workers=4, compute_ms=40)
    found = compare(a, b)
    assert found.times.significant
    assert found.because.part == "compute"
    assert found.because.kind == because.UNEXPLAINED
    assert found.because.by == ()
    assert any("code of the model" in look for look in found.because.look_at)


def test_words_of_the_command_are_possible_reasons_and_no_more(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), command=["python", "train.py", "--width", "8", "--fast"])
    b = noisy(tmp_path / "b", SOME(2), compute_ms=40, command=["python", "train.py", "--width=64", "--fast"])
    found = compare(a, b)
    assert found.because.kind == because.COMMAND
    assert [(each.name, each.a, each.b) for each in found.because.by] == [("word --width", "8", "64")]


def test_of_two_settings_that_can_explain_it_neither_is_claimed_alone(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, flags=0)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2, flags=LoaderFlag.PERSISTENT_WORKERS)
    found = compare(a, b)
    assert {each.name for each in found.because.by} == {"num_workers", "persistent_workers"}
    assert any("only one of them changed" in look for look in found.because.look_at)


def test_a_changed_machine_may_explain_it_where_no_setting_does(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), torch="2.6.0")
    b = noisy(tmp_path / "b", SOME(2), compute_ms=40, torch="2.7.0")
    found = compare(a, b)
    assert found.because.kind == because.ENVIRONMENT
    assert [each.name for each in found.because.by] == ["torch"]


def test_a_changed_setting_is_no_sole_reason_on_another_machine(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), fetch_ms=40, workers=1, host={"name": "one"})
    b = noisy(tmp_path / "b", SOME(2), fetch_ms=5, workers=4, host={"name": "other"})
    found = compare(a, b)
    assert [each.name for each in found.because.by] == ["num_workers", "host"]
    assert any("only one of them changed" in look for look in found.because.look_at)


def test_words_of_the_command_that_no_setting_tells_are_a_doubt(tmp_path: Path) -> None:
    def command(workers: int, size: int) -> list[str]:
        return ["python", "train.py", "--workers", str(workers), "--size", str(size)]

    a = noisy(tmp_path / "a", SOME(1), fetch_ms=40, workers=1, command=command(1, 512))
    same = noisy(tmp_path / "same", SOME(2), fetch_ms=5, workers=4, command=command(4, 512))
    less = noisy(tmp_path / "less", SOME(2), fetch_ms=5, workers=4, command=command(4, 64))
    doubts = [[note for note in compare(a, b).notes if "may be part of the reason" in note] for b in (same, less)]
    assert doubts[0] == []
    assert "--size 512 → 64" in doubts[1][0]


def test_page_locked_memory_is_named_where_copies_got_shorter(tmp_path: Path) -> None:
    for name, pinned in (("a", False), ("b", True)):
        step = Step(fetch_ns=MS // 2, compute_ns=5 * MS, copy_bytes=40_000_000, pinned=pinned)
        train(tmp_path / name, [[step] * 60])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.because.part == "copy"
    assert [each.name for each in found.because.by] == ["copies from"]
    assert found.emulated


def test_two_runs_of_one_setting_are_rarely_called_different(tmp_path: Path) -> None:
    """40 pairs whose speeds differ by 2 % (standard deviation) for no reason, as on an ordinary machine."""
    rng = SOME(7)
    runs = [noisy(tmp_path / str(n), rng, steps=120, run_noise=0.02, step_noise=0.3) for n in range(80)]
    sides = [side_of("A", [run]) for run in runs]
    found = [difference(a, b) for a, b in zip(sides[::2], sides[1::2], strict=True)]
    wrong = sum(each.times.significant for each in found)
    wrong_parts = sum(any(each.times.terms[part].significant for part in PARTS) for each in found)
    by_steps_alone = sum(not each.times.within.low <= 1 <= each.times.within.high for each in found)
    assert wrong <= 0.1 * len(found)
    assert wrong_parts <= 0.1 * len(found)
    assert by_steps_alone >= wrong


def test_the_interval_holds_the_true_speedup_nearly_always(tmp_path: Path) -> None:
    rng = SOME(11)
    true = true_ms(12) / true_ms(4)
    held = 0
    for number in range(20):
        a = noisy(tmp_path / f"a{number}", rng, steps=120, fetch_ms=12, run_noise=0.02)
        b = noisy(tmp_path / f"b{number}", rng, steps=120, fetch_ms=4, run_noise=0.02)
        speedup = compare(a, b).times.speedup
        held += speedup.low <= true <= speedup.high
    assert held >= 18


def test_steps_that_follow_each_other_widen_the_interval(tmp_path: Path) -> None:
    """What blocks say a run scatters by is what runs do scatter by; steps taken one by one would say a third."""
    rng = SOME(3)
    totals, told = [], []
    for number in range(40):
        folder = noisy(tmp_path / str(number), rng, steps=320, run_noise=0.0, step_noise=0.2, follow=0.9)
        facts = analyse(open_run(folder)).facts
        assert facts is not None
        spread = spread_of(facts, samples=True)
        assert spread is not None
        totals.append(facts.parts.wall_ns / facts.samples)
        told.append(spread.variance[TOTAL])
    true = float(np.std(totals, ddof=1) / np.mean(totals))
    said = float(np.sqrt(np.mean(told)))
    by_step = 0.2 / np.sqrt(320)
    assert by_step < 0.5 * true
    assert true / 1.6 < said < true * 1.6


def scatter(folder: Path) -> float:
    """What its own steps say a run's time may be off by, as a share; NaN where they say nothing."""
    (run,) = side_of("A", [folder]).runs
    spread = spread_of(run.facts, samples=True)
    return float("nan") if spread is None else float(np.sqrt(spread.variance[TOTAL]))


@pytest.mark.parametrize(("read_every", "pause_ms"), [(1, 0), (10, 0), (1000, 0), (1000, 200)])
def test_a_host_that_runs_ahead_is_no_scatter(tmp_path: Path, read_every: int, pause_ms: float) -> None:
    """Every step takes as long; the host is up to ten, or sixty, of them ahead of the device."""
    for name, compute_ms in (("a", 10), ("b", 13)):
        how = {"compute_ms": compute_ms, "read_every": read_every, "pause_ms": pause_ms}
        ahead(tmp_path / name, SOME(1), run_noise=0, step_noise=0, **how)
        assert scatter(tmp_path / name) < 0.002
    times = compare(tmp_path / "a", tmp_path / "b").times
    assert times.significant
    assert times.within.high / times.within.low < 1.01


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


@pytest.mark.slow
def test_runs_whose_host_runs_ahead_are_told_apart_where_they_differ_alone(tmp_path: Path) -> None:
    """Speeds differ by 3 % for no reason, or by 20 %."""
    rng = SOME(3)

    def significant(number: int, compute_ms: float) -> bool:
        runs = [ahead(tmp_path / f"{name}{number}", rng, compute_ms=ms) for name, ms in (("a", 10), ("b", compute_ms))]
        return compare(runs[0], runs[1]).times.significant

    assert sum(significant(number, 10.0) for number in range(10)) <= 1
    assert sum(significant(number, 12.5) for number in range(10, 20)) >= 8


def test_of_runs_of_a_few_steps_nothing_is_claimed(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=60, steps=20)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2)
    found = compare(a, b)
    assert found.times.speedup.low > 1
    assert not found.times.significant
    assert not any(term.significant for term in found.times.terms.values())
    assert (found.because.kind, found.because.by) == (because.NONE, ())
    assert diff_text.headline(found).startswith("Nothing can be told: B was 3")
    assert "of which one has 19 steps after the warm-up" in diff_text.headline(found)


def test_too_few_steps_have_no_blocks(tmp_path: Path) -> None:
    facts = analyse(open_run(noisy(tmp_path / "a", SOME(1), steps=15))).facts
    assert facts is not None
    assert spread_of(facts, samples=True) is None
    notes = compare(tmp_path / "a", noisy(tmp_path / "b", SOME(2))).notes
    assert any("15 steps" in note for note in notes)


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


def test_different_batch_sizes_are_compared_by_sample_and_that_is_said(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), samples=8)
    b = noisy(tmp_path / "b", SOME(2), samples=16)
    found = compare(a, b)
    assert found.times.unit == "sample"
    assert found.times.speedup.value == pytest.approx(2.0, rel=0.1)
    assert any("batch sizes differ (8, 16)" in note for note in found.notes)
    assert "batch_size" in {each.name for each in found.because.by}


def test_without_samples_steps_are_compared(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), samples=None), noisy(tmp_path / "b", SOME(2), fetch_ms=30))
    assert found.times.unit == "step"
    assert found.times.terms[TOTAL].a.value == pytest.approx(1e3 * true_ms(), rel=0.1)
    assert any("times are per step" in note for note in found.notes)


def test_emulated_and_real_devices_are_never_compared(tmp_path: Path) -> None:
    real = noisy(tmp_path / "a", SOME(1))
    train(tmp_path / "b", [[Step()] * 40])
    with pytest.raises(WhyidleError, match="emulated and measured times are not compared"):
        compare(real, tmp_path / "b")


def test_runs_of_different_scenarios_are_refused(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), trial={"scenario": "ssd"})
    b = noisy(tmp_path / "b", SOME(2), trial={"scenario": "cost"})
    with pytest.raises(WhyidleError, match="scenario ssd, B cost"):
        compare(a, b)


def test_another_program_is_another_training(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1))
    b = noisy(tmp_path / "b", SOME(2), command=["python", "other.py"])
    assert any("do not train the same thing" in note for note in compare(a, b).notes)


def test_runs_of_one_side_that_differ_are_said_and_explain_nothing(tmp_path: Path) -> None:
    a = [noisy(tmp_path / f"a{n}", SOME(n), workers=n, fetch_ms=15) for n in (1, 2)]
    b = noisy(tmp_path / "b", SOME(5), workers=4, fetch_ms=2)
    found = compare(a, b)
    assert setting(found, "num_workers") == ("varies", 4)
    assert any("differ in num_workers" in note for note in found.notes)
    assert found.because.kind == because.UNEXPLAINED


def test_a_setting_that_one_side_does_not_tell_is_no_change(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), fetch_ms=15), noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2))
    assert setting(found, "num_workers") == (None, 4)
    assert found.because.kind == because.UNEXPLAINED


def test_causes_that_went_and_came_are_told(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=0, fetch_ms=30)
    b = noisy(tmp_path / "b", SOME(2), workers=0, fetch_ms=0.1)
    assert "input.serial" in {f.cause for f in compare(a, b).findings.vanished}
    assert "input.serial" in {f.cause for f in compare(b, a).findings.appeared}


def test_a_cell_of_a_comparison_stands_for_its_rounds(tmp_path: Path) -> None:
    names = [f"workers-b8-r{n}" for n in range(3)]
    for n, name in enumerate(names):
        noisy(tmp_path / name, SOME(n))
    noisy(tmp_path / "workers-b80-r0", SOME(9))
    write_comparison(tmp_path, {}, [CellRecord("workers", 8, "ok", None, tuple(names))])
    assert [Path(folder).name for folder in side_of("A", [tmp_path / "workers-b8"]).folders] == names
    with pytest.raises(WhyidleError, match="comparison of 2 cells"):
        side_of("A", [tmp_path])


def test_a_run_named_twice_is_no_repeat(tmp_path: Path) -> None:
    run = noisy(tmp_path / "a", SOME(1))
    with pytest.raises(WhyidleError, match="named twice"):
        side_of("A", [run, run])


def test_a_rank_that_was_killed_and_one_that_is_missing_are_said(tmp_path: Path) -> None:
    record(tmp_path / "whole", [Rank(), Rank()], steps=60)
    record(tmp_path / "part", {0: Rank(), 1: Rank(steps=40)}, steps=60, world_size=3)
    (said,) = [note for note in compare(tmp_path / "whole", tmp_path / "part").notes if "/part: " in note]
    assert "rank 1 did not end the recording" in said
    assert "nothing of rank 2 was recorded" in said


def test_a_run_that_did_not_end_well_counts_and_is_said(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1))
    update_run(a, {"ended": {"status": "failed"}})
    assert any("did not end well" in note for note in compare(a, noisy(tmp_path / "b", SOME(2))).notes)


@settings(max_examples=10)
@given(fetches=st.tuples(st.floats(0.5, 40), st.floats(0.5, 40)), seed=st.integers(0, 1000))
def test_swapping_the_sides_turns_everything_round(fetches: tuple[float, float], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        a, b = (
            noisy(Path(folder) / name, SOME([seed, n]), fetch_ms=fetch, steps=60)
            for n, (name, fetch) in enumerate(zip("ab", fetches, strict=True))
        )
        one, other = compare(a, b).times, compare(b, a).times
    assert one.speedup.value * other.speedup.value == pytest.approx(1)
    assert one.speedup.low * other.speedup.high == pytest.approx(1)
    for term, times in one.terms.items():
        assert times.change.value == pytest.approx(-other.terms[term].change.value)
        assert times.significant == other.terms[term].significant
    for side in ("a", "b"):
        parts = sum(getattr(one.terms[part], side).value for part in PARTS)
        assert parts == pytest.approx(getattr(one.terms[TOTAL], side).value, rel=1e-6)


def test_a_job_counts_all_its_ranks_and_threads_of_torch_compute_on_the_processor_alone(tmp_path: Path) -> None:
    for name, ranks in (("a", 1), ("b", 2)):
        record(tmp_path / name, [Rank()] * ranks, steps=60)
        update_run(tmp_path / name, {"environment": {"threads": ranks}})
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.times.speedup.value == pytest.approx(2.0, rel=0.05)
    assert {each.name for each in found.because.by} == {"ranks", "threads of torch"}
    assert any("all ranks together" in note for note in found.notes)
    for name in "ab":
        train(tmp_path / f"emulated-{name}", [[Step(compute_ns=(10 if name == "a" else 30) * MS)] * 60])
        update_run(tmp_path / f"emulated-{name}", {"environment": {"threads": 1 if name == "a" else 2}})
    assert compare(tmp_path / "emulated-a", tmp_path / "emulated-b").because.by == ()


def test_programs_that_filled_the_cpus_widen_the_interval(tmp_path: Path) -> None:
    """Others use 2 of 2 CPUs meanwhile: what two runs differ by then proves little."""

    def of(busy_pct: float) -> Difference:
        runs = [
            crowded(tmp_path / f"{busy_pct}{name}", SOME(number), busy_pct=busy_pct, compute_ms=20 + 10 * number)
            for number, name in enumerate("ab")
        ]
        return compare(runs[0], runs[1])

    quiet, full = of(20.0), of(100.0)
    assert quiet.times.significant
    assert not quiet.crowded
    assert not full.times.significant
    assert full.crowded
    assert any("CPUs were full" in note for note in full.notes)


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
