"""Terms at several batch sizes, from runs in rounds: exact without noise, and honest about it where there is some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.analyse.cells.batch_size.compared import Compared, RunTerms, SweepFit
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.statistics import RUN_NOISE

POSITIVE = st.floats(0.0, 1e5, allow_subnormal=False)


def measured(size: int, number: int | None, compute: float, input_: float) -> RunTerms:
    return RunTerms(size, number, {"compute": compute, "input": input_, TOTAL: compute + input_})


def test_equal_runs_give_their_figures_and_the_noise_that_is_assumed() -> None:
    fit = SweepFit([measured(size, number, 100.0, size) for number in range(3) for size in (8, 16)])
    assert fit.at(16, "input").value == pytest.approx(16)
    assert fit.change(8, 16, "input").value == pytest.approx(8)
    assert fit.change(8, 16, "compute").value == pytest.approx(0)
    # Two degrees of freedom say there is none, two assumed ones say it is 3 %.
    assert fit.noise == pytest.approx(RUN_NOISE * np.sqrt(2 / 4))
    assert fit.change(8, 16, TOTAL).low > 0


def test_one_run_of_each_size_has_an_interval_too() -> None:
    fit = SweepFit([measured(8, 0, 100.0, 0.0), measured(16, 0, 112.0, 0.0)])
    change = fit.change(8, 16, TOTAL)
    # 4.3 times 3 % of each of the two, which is more than the 12 % they differ by.
    assert change.high - change.value == pytest.approx(4.303 * 0.03 * np.hypot(100, 112), rel=0.04)
    assert change.low < 0 < change.value


def test_what_a_round_does_to_all_runs_is_not_taken_for_noise() -> None:
    """The machine gets slower from round to round, for all sizes alike."""
    slower = (1.0, 1.1, 1.25)
    runs = [
        measured(size, number, 100.0 * size**0.1 * slower[number], 50.0 * slower[number])
        for number in range(3)
        for size in (8, 16, 32)
    ]
    apart = SweepFit([RunTerms(run.size, None, run.terms) for run in runs])
    fit = SweepFit(runs)
    assert fit.noise < 0.03 < 0.08 < apart.noise
    assert fit.change(8, 32, TOTAL).value == pytest.approx(apart.change(8, 32, TOTAL).value)
    assert fit.change(8, 32, TOTAL).low > 0 > apart.change(8, 32, TOTAL).low


def test_a_run_that_is_missing_from_a_round_does_no_harm() -> None:
    """The slow third round has no run of batch 8, which must not make batch 16 look slow."""
    slower = (1.0, 1.0, 1.5)
    runs = [measured(size, n, 100.0 * slower[n], 0.0) for n in range(3) for size in (8, 16) if (size, n) != (8, 2)]
    change = SweepFit(runs).change(8, 16, TOTAL)
    assert change.low < 0 < change.high
    assert abs(change.value) < 5


def test_times_are_not_below_zero_and_what_no_run_has_has_no_interval() -> None:
    runs = [
        RunTerms(size, n, {"copy": 0.0, "sync": 0.01 * n, "compute": 100.0, TOTAL: 100.0 + 0.01 * n})
        for n in range(2)
        for size in (8, 16)
    ]
    fit = SweepFit(runs)
    assert (fit.at(8, "copy").low, fit.at(8, "copy").high) == (0.0, 0.0)
    assert fit.at(8, "sync").low == 0.0 < fit.at(8, "sync").high
    assert fit.change(8, 16, "sync").low < 0


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


def test_what_is_not_known_of_a_run_is_known_of_no_size_and_spoils_nothing_else() -> None:
    runs = [measured(size, n, 100.0, float(size)) for n in range(2) for size in (8, 16)]
    runs = [RunTerms(r.size, r.round, {**r.terms, "odd": np.nan if r.size == 8 else 1.0}) for r in runs]
    fit = SweepFit(runs)
    assert np.isnan(fit.change(8, 16, "odd").value)
    assert fit.change(8, 16, "input").value == pytest.approx(8)


def test_the_pair_that_is_picked_out_of_many_needs_more_than_one_that_is_given() -> None:
    def wider(sizes: tuple[int, ...]) -> float:
        """A change's interval over that of a size."""
        fit = SweepFit([measured(size, n, 100.0, 0.0) for n in range(3) for size in sizes])
        change, size = fit.change(8, 16, TOTAL), fit.at(8, TOTAL)
        return (change.high - change.value) / (size.high - size.value)

    assert wider((8, 16)) == pytest.approx(np.sqrt(2))
    assert wider((8, 16, 32, 64, 128)) > 1.2 * np.sqrt(2)


def test_the_runs_that_would_tell_are_those_whose_interval_does() -> None:
    fit = SweepFit([measured(size, n, 100.0, 0.0) for n in range(3) for size in (8, 16)])
    enough = fit.runs_for(0.05)
    assert enough is not None
    assert fit.runs_for(0.10) is not None
    assert (fit.runs_for(0.10) or 0) < enough < 10
    noisy = SweepFit([measured(size, n, 100.0 + 60 * (n - size / 8), 0.0) for n in range(2) for size in (8, 16)])
    assert noisy.runs_for(0.01) is None


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
                runs.append(RunTerms(size, n, terms))
        fit = SweepFit(runs)
        fastest = min(sizes[:-1], key=lambda size: fit.at(size, TOTAL).value)
        alarms += Compared(fit, fastest, sizes[-1], [], []).slower
    assert alarms / 300 <= 0.08


@given(
    rows=st.lists(st.tuples(*[POSITIVE] * len(PARTS)), min_size=6, max_size=6),
    rounds=st.booleans(),
)
def test_the_parts_sum_to_the_total_at_every_size(rows: list[tuple[float, ...]], rounds: bool) -> None:
    runs = []
    for place, row in enumerate(rows):
        terms = dict(zip(PARTS, row, strict=True))
        number = place // 3 if rounds else None
        runs.append(RunTerms((8, 16, 64)[place % 3], number, terms | {TOTAL: sum(row) + 1.0, "rest": 1.0}))
    fit = SweepFit(runs)
    for size in (8, 16, 64):
        parts = sum(fit.at(size, part).value for part in (*PARTS, "rest"))
        total = fit.at(size, TOTAL)
        assert parts == pytest.approx(total.value, rel=1e-6, abs=1e-6)
        assert total.low <= total.value <= total.high


@pytest.mark.parametrize(("noise", "repeats"), [(0.01, 2), (0.03, 2), (0.03, 3), (0.08, 2), (0.08, 5)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(noise: float, repeats: int) -> None:
    """Of 400 sweeps over sizes that are alike, on a machine that drifts; 95 % are asked for."""
    source = np.random.default_rng(1)
    alarms = 0
    for _ in range(400):
        drift = source.normal(1.0, 0.05, repeats)
        runs = [
            measured(size, n, 100 * (drift[n] + source.normal(0, noise)), 0.0)
            for n in range(repeats)
            for size in (8, 16, 64)
        ]
        change = SweepFit(runs).change(8, 64, TOTAL)
        alarms += not change.low <= 0 <= change.high
    # With few runs of a noisy machine what is assumed makes it narrower than it should be; never by more than double.
    assert alarms / 400 <= 0.10
