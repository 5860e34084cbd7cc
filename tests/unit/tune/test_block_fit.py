from __future__ import annotations

from math import inf, isnan

import numpy as np
import pytest

from whyidle.tune.search.block_fit import BlockFit, BlockRate


def rounds_of(rates: dict[str, float], rounds: int, noise: float, drift: float, seed: int) -> list[BlockRate]:
    rng = np.random.default_rng(seed)
    blocks, speed = [], 0.0
    for number in range(rounds):
        speed += drift * rng.normal()
        blocks += [BlockRate(arm, number, rate + speed + noise * rng.normal()) for arm, rate in rates.items()]
    return blocks


def test_a_machine_that_becomes_slower_leaves_the_ratio_alone() -> None:
    fit = BlockFit([BlockRate(arm, k, rate - 0.3 * k) for k in range(4) for arm, rate in (("a", 5.0), ("b", 5.1))])
    assert fit.ratio("b", "a").value == pytest.approx(0.1)
    assert fit.seen_noise == pytest.approx(0.0, abs=1e-9)


def test_a_setting_that_missed_rounds_is_compared_within_those_it_was_in() -> None:
    blocks = [BlockRate("a", 0, 5.0), BlockRate("b", 0, 5.2), BlockRate("a", 1, 4.0), BlockRate("c", 1, 4.3)]
    assert BlockFit(blocks).ratio("c", "b").value == pytest.approx(0.1)
    between = BlockFit([BlockRate("a", 0, 5.0), BlockRate("b", 1, 5.2)]).ratio("a", "b")
    assert isnan(between.value)
    assert (between.low, between.high) == (-inf, inf)


def test_two_blocks_that_agree_by_luck_have_an_interval() -> None:
    between = BlockFit([BlockRate("a", 0, 5.0), BlockRate("b", 0, 5.0)]).ratio("b", "a")
    assert between.low < -0.05
    assert between.high > 0.05


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("noise", [0.01, 0.03, 0.06])
def test_intervals_hold_the_truth_in_about_as_many_cases_as_they_say(noise: float, rounds: int) -> None:
    held = []
    for seed in range(200):
        fit = BlockFit(rounds_of({"a": 5.0, "b": 5.1, "c": 4.9}, rounds, noise, 0.05, seed))
        between = fit.ratio("b", "a")
        held.append(between.low <= 0.1 <= between.high)
    assert np.mean(held) >= 0.9


def test_the_noise_is_found() -> None:
    fit = BlockFit(rounds_of({"a": 5.0, "b": 5.1, "c": 4.9}, 40, 0.06, 0.1, 1))
    assert fit.noise == pytest.approx(0.06, rel=0.2)


def test_a_model_that_fits_narrows_what_blocks_leave_open() -> None:
    blocks = rounds_of({"a": 5.0, "b": 5.1, "c": 5.2}, 1, 0.0, 0.0, 0)
    alone, weighed = BlockFit(blocks), BlockFit(blocks, {"a": 2.0, "b": 2.1, "c": 2.2})
    assert weighed.ratio("c", "a").value == pytest.approx(0.2)
    assert weighed.ratio("c", "a").error < alone.ratio("c", "a").error


def test_a_model_that_contradicts_many_blocks_counts_for_little() -> None:
    blocks = rounds_of({"a": 5.0, "b": 5.5, "c": 5.2}, 8, 0.01, 0.0, 0)
    weighed = BlockFit(blocks, {"a": 2.0, "b": 1.5, "c": 2.4})
    assert weighed.model_error > 0.2
    assert weighed.ratio("b", "a").value == pytest.approx(0.5, abs=0.03)
