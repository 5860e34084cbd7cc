"""The benchmark of tuning: its trainings train, its grid is written and read, and its figures are right."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.tuning import blocks, judge
from benchmarks.tuning import grid as tuning_grid
from benchmarks.tuning.blocks import Block, Grid, Point, Training, points, read, settings_of, shuffled
from benchmarks.tuning.judge import BEST, CORES, FOUR, RANDOM, Row, against, contestants, distinct, judged, regret
from benchmarks.tuning.programs.workloads import WORKLOADS, Throttled
from benchmarks.tuning.tools import LOADTUNE, WHYIDLE, Choice, recommended, tried


@pytest.fixture(autouse=True)
def _torch_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "constant")) for name in WORKLOADS]
)
def test_each_workload_trains_with_and_without_workers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SETTLE_S", 0.05)
    training = Training(name)
    for workers, prefetch in ((0, None), (2, 2)):
        block = training.block(3, settings_of((workers, prefetch)), 0.1)
        assert (block.workload, block.round, block.settings["num_workers"]) == (name, 3, workers)
        assert block.samples == block.batches * WORKLOADS[name].batch
        assert block.seconds >= block.batches * WORKLOADS[name].step_s
        assert 0 < block.wait_s < block.seconds


def test_workers_share_the_bandwidth_of_a_throttled_store() -> None:
    transfer_s, samples = 1e-3, 200
    store = Throttled(samples, 2e-4, transfer_s)
    begin = time.monotonic()
    assert sum(len(labels) for _, labels in DataLoader(store, batch_size=8, num_workers=2)) == samples
    # One transfer after another, whoever asked for it: so long the store is busy at least.
    assert store._free_at.value - begin >= samples * transfer_s


@pytest.mark.slow
def test_a_grid_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "grid.json"
    few: list[Point] = [(0, None), (1, 2), (4, 2)]
    monkeypatch.setattr(tuning_grid, "script_s", lambda _name: 2.5)
    monkeypatch.setattr(tuning_grid, "points", lambda small: few if small else [])
    options = ["--workloads", "constant", "--points", "small", "--rounds", "1", "--seconds", "0.2"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.tuning.grid", *options, "--json", str(path)])
    tuning_grid.main()
    told, grids = read(path)
    grid = grids["constant"]
    assert told["cpus"] == len(os.sched_getaffinity(0))
    assert told["workloads"]["constant"]["batch_size"] == 8
    assert set(grid.points) == set(few)
    # Eight samples that are waited for one after another, and the accelerator.
    assert 0 < grid.rate((0, None)) <= 8 / (8 * 4e-3 + 7e-3)
    assert 0 < grid.rate((4, 2)) <= 8 / 7e-3
    assert grid.best in few
    assert grid.as_reruns_s() == pytest.approx(sum(2.5 + block.settle_s + block.seconds for block in grid.blocks))
    path.write_text('{"format": "whyidle-tune"}')
    with pytest.raises(SystemExit, match="is no grid"):
        read(path)


def test_the_grid_has_each_setting_in_each_round_in_an_order_of_its_own() -> None:
    assert len(points(small=False)) == 33
    plan = shuffled([settings_of(point) for point in points(small=False)], 3)
    orders = [[str(point) for number, point in plan if number == each] for each in range(3)]
    assert {frozenset(order) for order in orders} == {frozenset(orders[0])}
    assert len(set(map(tuple, orders))) == 3


def _block(settings: Mapping[str, object], number: int, rate: float) -> Block:
    return Block("made", dict(settings), number, 100, 800, 800 / rate, 0.0, 0.1, 0.3, 0.1)


def _grid(rates: Mapping[Point, tuple[float, ...]]) -> Grid:
    blocks = [_block(settings_of(point), number, r) for point, each in rates.items() for number, r in enumerate(each)]
    return Grid("made", blocks, wall_s=200.0, script_s=[3.0, 9.0, 4.0])


def test_the_best_of_the_grid_owes_nothing_to_luck() -> None:
    grid = _grid({(0, None): (50, 50, 50), (1, 2): (80, 80, 80), (2, 2): (98, 98, 98), (4, 2): (100, 100, 100)})
    assert (grid.best, grid.best_rate(), grid.fewest_workers()) == ((4, 2), pytest.approx(100), 2)
    assert grid.regret((1, 2)) == pytest.approx(0.2)
    # The second setting was lucky once; by the two other rounds it is chosen never, or judged by its usual rate.
    grid = _grid({(1, 2): (100, 100, 100), (2, 2): (130, 90, 90)})
    assert grid.best == (2, 2)
    # Judged by round 0 the first is best (100), by the others the lucky one (90 each).
    assert grid.best_rate() == pytest.approx((100 + 90 + 90) / 3)


def test_a_duel_is_judged_by_ratios_within_its_rounds() -> None:
    best = {0: 100.0, 1: 50.0, 2: 200.0, 3: 80.0}
    # Always a tenth slower, whatever the machine does.
    told = regret({number: 0.9 * rate for number, rate in best.items()}, best)
    assert (told.value, told.low, told.high) == pytest.approx((0.1, 0.1, 0.1))
    told = regret({0: 90.0, 1: 50.0, 2: 180.0, 3: 80.0}, best)
    assert told.value == pytest.approx(1 - math.sqrt(0.9))
    assert told.low < 0 < told.value < told.high < 0.2


def _row(ours: Point, rates: Mapping[Point, float], seconds: float = 40.0) -> Row:
    grid = _grid({point: (rate,) * 3 for point, rate in rates.items()})
    choices = [
        Choice(WHYIDLE, settings_of(ours), seconds, {"because": "nothing else is faster"}),
        Choice(LOADTUNE, None, 30.0, {"exit_code": 1, "error": "gone"}),
    ]
    settings = contestants(grid, 2, choices)
    drift = (1.0, 1.2, 0.8, 1.1)
    duel = [
        _block(each, number, rates[each["num_workers"], each["prefetch_factor"]] * factor)
        for each in distinct(settings)
        for number, factor in enumerate(drift)
    ]
    return judged(grid, 2, choices, duel)


RATES = {(0, None): 40.0, (1, 2): 60.0, (2, 2): 80.0, (3, 4): 98.0, (4, 2): 99.0, (5, 2): 100.0, (6, 2): 100.0}


def test_a_choice_is_held_against_the_best_and_against_simpler_ways() -> None:
    row = _row((3, 4), RATES)
    assert row.regrets[WHYIDLE].value == pytest.approx(0.02)
    assert row.regrets[CORES].value == pytest.approx(0.2)
    assert row.over[CORES].value == pytest.approx(1 - 80 / 98)
    assert row.regrets[BEST].value == 0
    assert row.failed == {LOADTUNE: "gone"}
    assert (against(row, CORES), against(row, FOUR)) == ("better", "worse")
    assert row.excess_workers(WHYIDLE) == 0
    assert row.cost_process == pytest.approx(40 / 200)
    assert row.cost_reruns == pytest.approx(40 / (21 * (4 + 0.3) + 3 * sum(800 / rate for rate in RATES.values())))


def test_the_tables_say_which_targets_are_met() -> None:
    said = "\n".join(judge.tables([_row((3, 4), RATES), dataclasses.replace(_row((5, 2), RATES), workload="other")]))
    assert "Met: median regret 1.0%" in said
    assert "**Missed**: cost 20% of the grid's in one process" in said
    assert "**Missed**: 2 workers more than needed" in said
    assert "Met: nowhere clearly worse than workers = CPUs: better on 2" in said
    assert "**Missed**: nowhere clearly worse than 4 workers: better on 1, as good on 0, worse on 1 (made)" in said
    assert f"worse than {RANDOM}" in said
    assert "made: loadtune failed: gone" in said
    assert "- other: nothing else is faster." in said
    assert "| made | 5 × 2 | 3 × 4 |" in said


def test_tuners_settings_are_read_as_they_say_them() -> None:
    line = "[loadtune] best overall: workers=4, prefetch=4, persistent, threads=1 — 2.25x baseline\n"
    assert recommended("[loadtune] trial 1/2\n" + line) == {"num_workers": 4, "prefetch_factor": 4}
    assert recommended(line.replace("prefetch=4, ", "")) == {"num_workers": 4, "prefetch_factor": 2}
    assert recommended(line.replace("workers=4, prefetch=4", "workers=0")) == settings_of((0, None))
    assert recommended("[loadtune] brain proposed no trials") == settings_of((2, 2))
    told = {"num_workers": 3, "prefetch_factor": 4, "pin_memory": False, "batch_size": None, "pipeline": None}
    told |= {"in_order": False, "persistent_workers": True}
    assert tried(told) == {"num_workers": 3, "prefetch_factor": 4, "in_order": False}
    assert tried(told | {"in_order": True, "batch_size": 8}, batch=8) == settings_of((3, 4))
    assert tried(told | {"batch_size": 16}, batch=8)["batch_size"] == 16
