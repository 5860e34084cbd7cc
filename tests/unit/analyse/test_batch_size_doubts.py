"""What a larger batch did, where little is known or runs differ anyway: nothing is named that is not proven."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.batch_sweeps import REPEATS, Run, always, cells_of, judged, steady, verdict_of
from support.crafted import add, amend, facts_of_run, steps_of
from whyidle.analyse.cells.batch_size import Compared, RunTerms, SweepFit, batch_verdict
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.statistics import RUN_NOISE
from whyidle.record.reader import Records
from whyidle.record.run import update_run
from whyidle.record.schema import DEVICE, HOST, NOT_MEASURED
from whyidle.scenarios.planted import MS, START, Step, train


def test_one_size_is_no_sweep(tmp_path: Path) -> None:
    steady()(tmp_path / "run", 8)
    facts = facts_of_run(tmp_path / "run")
    assert batch_verdict([(8, 0, facts), (8, 1, facts)]) is None
    assert batch_verdict([]) is None


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
    runs = int(verdict.text.split("about ")[1].split()[0])
    assert 10 < runs < 50


@pytest.mark.parametrize(
    ("run", "cause"), [(steady(compute_ms=2), "none"), (steady(load_ms=3, samples=lambda b: 160 * b), "accounting")]
)
def test_one_run_of_each_size_tells_what_needs_no_repeats(tmp_path: Path, run: Run, cause: str) -> None:
    verdict = judged(tmp_path, run, 8, 16, repeats=1)
    assert verdict.cause == cause
    assert ("one run of each size cannot tell" in verdict.text) == (cause == "none")


def test_clocks_of_an_idle_device_say_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(16 * MS, 12 * MS)] * 40])
    steps = steps_of(tmp_path / "run")
    looks = [(t, 1500) for t in steps["device_begin_ns"] + MS] + [(t, 345) for t in steps["device_end_ns"] + MS]
    add(tmp_path / "run", DEVICE, [{"t_ns": int(t), "device": 0, "sm_clock_mhz": mhz} for t, mhz in sorted(looks)])
    state = facts_of_run(tmp_path / "run").device_state
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
    assert batch_verdict([(8, None, cells[8][0]), (16, None, cells[16][0])]) is None
    verdict = batch_verdict([(8, 0, cells[8][0]), *((16, number, run) for number, run in enumerate(cells[16]))])
    assert verdict.runs == {8: 1, 16: 1}


def measured(size: int, number: int | None, compute: float, input_: float) -> RunTerms:
    return size, number, {"compute": compute, "input": input_, TOTAL: compute + input_}


def rounds(*sizes: int, of: int = 3) -> list[RunTerms]:
    """Equal runs, of which the input grows with the size."""
    return [measured(size, number, 100.0, size) for number in range(of) for size in sizes]


def test_equal_runs_give_their_figures_and_the_noise_that_is_assumed() -> None:
    fit = SweepFit(rounds(8, 16))
    assert fit.at(16, "input").value == pytest.approx(16)
    assert fit.change(8, 16, "input").value == pytest.approx(8)
    assert fit.change(8, 16, "compute").value == pytest.approx(0)
    # Two degrees of freedom say there is none, two assumed ones say it is 3 %.
    assert fit.noise == pytest.approx(RUN_NOISE * np.sqrt(2 / 4))
    assert fit.change(8, 16, TOTAL).low > 0
    one = SweepFit([measured(8, 0, 100.0, 0.0), measured(16, 0, 112.0, 0.0)]).change(8, 16, TOTAL)
    # 4.3 times 3 % of each of the two, which is more than the 12 % they differ by.
    assert one.high - one.value == pytest.approx(4.303 * 0.03 * np.hypot(100, 112), rel=0.04)
    assert one.low < 0 < one.value


def test_what_a_round_does_to_all_runs_is_not_taken_for_noise() -> None:
    """The machine gets slower from round to round, for all sizes alike."""
    slower = (1.0, 1.1, 1.25)
    runs = [
        measured(size, number, 100.0 * size**0.1 * slower[number], 50.0 * slower[number])
        for number in range(3)
        for size in (8, 16, 32)
    ]
    apart = SweepFit([(size, None, terms) for size, _, terms in runs])
    fit = SweepFit(runs)
    assert fit.noise < 0.03 < 0.08 < apart.noise
    assert fit.change(8, 32, TOTAL).value == pytest.approx(apart.change(8, 32, TOTAL).value)
    assert fit.change(8, 32, TOTAL).low > 0 > apart.change(8, 32, TOTAL).low


def test_rounds_that_hold_no_size_twice_tell_nothing_of_drift() -> None:
    """Sizes in rounds of their own: what the rounds did is not told from what the sizes did, and nothing is made up."""
    apart = [measured(8, n, 20.0, 80.0) for n in (0, 1)] + [measured(16, n, 80.0, 20.0) for n in (2, 3)]
    assert SweepFit(apart).change(8, 16, "compute").value == pytest.approx(60)
    # One whole round is not enough to take what the runs of batch 8 differ by for drift.
    lonely = [measured(8, n, each, 0.0) for n, each in enumerate((1000.0, 1500.0, 700.0))] + [
        measured(16, 0, 1250.0, 0.0)
    ]
    assert SweepFit(lonely).noise > 0.15
    assert SweepFit(lonely).change(8, 16, TOTAL).low < 0


@pytest.mark.parametrize(("sizes", "least", "most"), [((8, 16), 1, 1), ((8, 16, 32, 64, 128), 1.2, 2)])
def test_the_pair_that_is_picked_out_of_many_needs_more_than_one_that_is_given(
    sizes: tuple[int, ...], least: float, most: float
) -> None:
    fit = SweepFit([measured(size, n, 100.0, 0.0) for n in range(3) for size in sizes])
    change, size = fit.change(8, 16, TOTAL), fit.at(8, TOTAL)
    wider = (change.high - change.value) / (size.high - size.value) / np.sqrt(2)
    assert least * (1 - 1e-6) <= wider <= most * (1 + 1e-6)


@pytest.mark.parametrize("sizes", [(8, 16), (8, 16, 32, 64, 128)])
@pytest.mark.parametrize("repeats", [2, 3])
def test_sweeps_in_which_nothing_changed_are_seldom_called_slower(sizes: tuple[int, ...], repeats: int) -> None:
    """On a machine whose runs differ by 8 %, though the fastest of the sizes is what the largest is compared with."""
    source = np.random.default_rng(0)
    alarms = 0
    for _ in range(300):
        drift = source.normal(1.0, 0.05, repeats)
        runs = []
        for n in range(repeats):
            for size in sizes:
                pace = drift[n] + source.normal(0, 0.08)
                terms = dict.fromkeys(PARTS, 0.0) | {"compute": 60 * pace, "input": 40 * pace, TOTAL: 100 * pace}
                runs.append((size, n, terms))
        fit = SweepFit(runs)
        fastest = min(sizes[:-1], key=lambda size: fit.at(size, TOTAL).value)
        alarms += Compared(fit, fastest, sizes[-1], [], []).slower
    assert alarms / 300 <= 0.08
