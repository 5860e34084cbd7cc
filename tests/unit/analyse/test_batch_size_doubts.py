"""What a larger batch did, where little is known or runs differ anyway: nothing is named that is not proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.batch_sweeps import REPEATS, Run, always, cells_of, judged, steady, verdict_of
from support.crafted import add, amend, facts_of_run, steps_of
from whyidle.analyse.cells.batch_size.verdict import batch_verdict
from whyidle.analyse.run.stall_breakdown import TOTAL
from whyidle.record.reader import Records
from whyidle.record.run import update_run
from whyidle.record.schema import DEVICE, HOST, NOT_MEASURED
from whyidle.scenarios.planted import MS, START


def test_one_size_is_no_sweep(tmp_path: Path) -> None:
    steady()(tmp_path / "run", 8)
    facts = facts_of_run(tmp_path / "run")
    assert batch_verdict({8: [facts], 16: []}) is None
    assert batch_verdict({}) is None


def test_a_growth_that_runs_differ_by_anyway_is_none(tmp_path: Path) -> None:
    """A sample takes 10 % longer at batch 16 on average, in runs that differ by as much."""
    small, large = ([steady(compute_ms=ms) for ms in of] for of in ((1.0, 0.9, 1.0), (0.9, 1.2, 1.1)))
    verdict = verdict_of(cells_of(tmp_path, {8: small, 16: large}))
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert verdict.changes[TOTAL].value > 0.05 * verdict.terms[8][TOTAL].value
    assert verdict.changes[TOTAL].low < 0


def test_sizes_with_few_steps_are_left_out_and_said(tmp_path: Path) -> None:
    per_sample = {8: 1.0, 16: 1.0, 64: 3.0, 128: 9.0}
    run = steady(compute_ns=lambda batch: round(per_sample[batch] * batch * MS))
    verdict = judged(tmp_path, run, 8, 16, 64, 128)
    assert (verdict.smaller, verdict.larger, verdict.cause) == (8, 16, "saturated")
    assert "19 at batch 64, 8 at batch 128) are left out" in verdict.text
    assert set(verdict.terms) == set(per_sample)
    # Where all are short, they are all there is.
    short = judged(tmp_path / "short", run, 64, 128)
    assert (short.smaller, short.larger, short.cause) == (64, 128, "compute_growth")
    assert "prove little" in short.text


def test_runs_that_differ_too_much_to_tell_anything_say_how_many_would(tmp_path: Path) -> None:
    small, large = ([steady(load_ms=1.2 * ms, compute_ms=0.6 * ms) for ms in of] for of in ((1.0, 1.15), (1.15, 1.0)))
    verdict = verdict_of(cells_of(tmp_path, {8: small, 16: large}))
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "proves nothing" in verdict.text
    runs = int(verdict.text.split("About ")[1].split()[0])
    assert 10 < runs < 50


@pytest.mark.parametrize(
    ("run", "cause"), [(steady(compute_ms=2), "none"), (steady(load_ms=3, samples=lambda b: 160 * b), "accounting")]
)
def test_one_run_of_each_size_tells_what_needs_no_repeats(tmp_path: Path, run: Run, cause: str) -> None:
    verdict = judged(tmp_path, run, 8, 16, repeats=1)
    assert verdict.cause == cause
    assert ("one run of each size cannot tell" in verdict.text) == (cause == "none")


def test_clocks_of_an_idle_device_say_nothing(tmp_path: Path) -> None:
    """It computes at full clock, longer for another reason; in between it rests."""

    def run(folder: Path, batch: int) -> None:
        large = batch > 8
        steady(load_ms=2, compute_ms=1.5 if large else 1)(folder, batch)
        steps = steps_of(folder)
        rows = [{"t_ns": int(t), "device": 0, "sm_clock_mhz": 1500} for t in steps["device_begin_ns"] + MS]
        rows += [
            {"t_ns": int(t), "device": 0, "sm_clock_mhz": 345 if large else 1500} for t in steps["device_end_ns"] + MS
        ]
        add(folder, DEVICE, sorted(rows, key=lambda row: row["t_ns"]))

    for facts in cells_of(tmp_path, {8: [run], 16: [run]}).values():
        state = facts[0].device_state
        assert state is not None
        assert state.clock_mhz == 1500


CROWDED, NOT_FULL, ALONE = 1.4, 1.25, 0.1
"""CPUs that others use, of two, of which the training itself uses half of one."""
TAKEN = "other programs used 1.4 CPUs while batch {} ran, and 0.1 while"
ONE_RUN = "one run of a size"


@pytest.mark.parametrize(
    ("load_ms", "others", "repeats", "said"),
    [
        pytest.param((1.5, 3.0), (ALONE, ALONE), REPEATS, "input grew from", id="slower, alone"),
        pytest.param((1.5, 3.0), (ALONE, CROWDED), REPEATS, TAKEN.format(16), id="slower, others at the larger"),
        pytest.param((1.5, 3.0), (ALONE, NOT_FULL), REPEATS, "input grew from", id="slower, others, and CPU left over"),
        pytest.param((1.5, 3.0), (CROWDED, ALONE), REPEATS, "input grew from", id="slower, others at the smaller"),
        pytest.param((1.5, 3.0), (CROWDED, CROWDED), REPEATS, "input grew from", id="slower, others at both"),
        pytest.param((1.5, 3.0), (CROWDED, CROWDED), 1, ONE_RUN, id="slower, others at both, once"),
        pytest.param((3.0, 1.5), (CROWDED, ALONE), REPEATS, TAKEN.format(8), id="faster, others at the smaller"),
        pytest.param((3.0, 1.5), (CROWDED, CROWDED), 1, ONE_RUN, id="faster, others at both, once"),
        pytest.param((3.0, 1.5), (ALONE, ALONE), 1, "a larger batch is faster", id="faster, alone, once"),
    ],
)
def test_where_others_may_be_why_no_mechanism_is_named(
    tmp_path: Path, load_ms: tuple[float, float], others: tuple[float, float], repeats: int, said: str
) -> None:
    def run(folder: Path, batch: int) -> None:
        place = int(batch > 8)
        steady(load_ms=load_ms[place], sync=always)(folder, batch)
        busy = others[place]
        end = int(steps_of(folder)["step_end_ns"].max())
        rows = [
            {"t_ns": t, "cpus": 2000, "tree_cpu_ns": (t - START) // 2, "machine_busy_pct": 100 * (0.5 + busy) / 2}
            for t in range(START, end, 100 * MS)
        ]
        add(folder, HOST, rows)
        update_run(folder, {"host": {"cpus": 2}})

    verdict = judged(tmp_path, run, 8, 16, repeats=repeats)
    assert said in verdict.text
    assert (verdict.cause == "none") == (said != "input grew from")
    assert verdict.grew == ("input" if load_ms[1] > load_ms[0] else None)


@pytest.mark.parametrize("told", [0, NOT_MEASURED])
def test_runs_without_samples_are_left_out(tmp_path: Path, told: int) -> None:
    def without(folder: Path, batch: int) -> None:
        def change(steps: Records) -> None:
            steps["samples"] = told

        steady()(folder, batch)
        amend(folder, change)

    cells = cells_of(tmp_path, {8: [steady()], 16: [without, steady()]})
    assert batch_verdict({8: cells[8], 16: cells[16][:1]}) is None
    verdict = batch_verdict(cells, {8: [0], 16: [0, 1]})
    assert verdict is not None
    assert verdict.runs == {8: 1, 16: 1}
