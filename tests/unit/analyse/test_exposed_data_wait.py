"""What waits for data waited for, and how they are spread over the steps."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import facts_of_run
from support.planted_runs import batch_trace
from whyidle.analyse.run.exposed_data_wait import Shape, Spread, Waits, shape_of, waits_of
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, NOT_MEASURED
from whyidle.scenarios.planted import MS, Step, train

PACE = 10 * MS
NO_EPOCHS = np.zeros(200, dtype=bool)


FIRST = np.arange(200) % 20 == 0


def shape(waits: Any, first: Any = NO_EPOCHS) -> Shape:
    return shape_of(np.asarray(waits, dtype=float) * MS, first, PACE)


def at(*steps: int, wait: float = 50.0, count: int = 200) -> Any:
    lengths = np.zeros(count)
    lengths[list(steps)] = wait
    return lengths


RANDOM = np.random.default_rng(1)
LITTLE = np.where(np.arange(200) == 50, 5.0, 0.8)


@pytest.mark.parametrize(
    ("waits", "spread", "words"),
    [
        # First steps of epochs, unless the others wait too.
        (np.where(FIRST, 80.0, 0.1), Spread.FIRST_OF_EPOCH, "at the first step of an epoch"),
        (np.where(FIRST, 80.0, 8.0), Spread.EVERY_STEP, "at every step"),
        (np.zeros(200), Spread.NOWHERE, "at no step"),
        (np.full(200, 0.2), Spread.NOWHERE, "at no step"),
        (np.full(200, 5.0), Spread.EVERY_STEP, "at every step"),
        (np.where(np.arange(200) % 50 == 0, 0.0, 5.0), Spread.EVERY_STEP, "at almost every step"),
        (at(*range(3, 200, 4)), Spread.PERIODIC, "at every 4th step"),
        (at(*range(15, 200, 16)), Spread.PERIODIC, "at every 16th step"),
        # Several workers finish together: of four steps one waits long, and the next one a little.
        (np.tile([30.0, 3.0, 0.0, 0.0], 50), Spread.PERIODIC, "at every 4th step"),
        # What returned for a part of the run only is no pattern of it.
        (at(*range(0, 60, 5)), Spread.SINGLE, "at 12 of 200 steps, the longest 50 ms"),
        (at(7, 31, 90, 111, 186), Spread.SINGLE, "at 5 of 200 steps, the longest 50 ms"),
        (np.where(RANDOM.random(200) < 0.4, RANDOM.lognormal(2, 1, 200) + 1, 0.0), Spread.IRREGULAR, "of 200 steps"),
        (LITTLE, Spread.A_LITTLE, "a little at a time"),
    ],
)
def test_waits_of_a_shape_are_told_by_it(waits: Any, spread: Spread, words: str) -> None:
    found = shape(waits, FIRST if waits[0] == 80.0 else NO_EPOCHS)
    assert found.spread is spread
    assert words in found.words
    assert found.hit == 10 or spread is not Spread.FIRST_OF_EPOCH


@given(
    period=st.integers(3, 12),
    offset=st.integers(0, 11),
    noise=st.lists(st.floats(0, 0.9), min_size=100, max_size=100),
    long=st.floats(60, 500),
)
def test_what_returns_at_a_distance_is_told_however_the_rest_varies(
    period: int, offset: int, noise: list[float], long: float
) -> None:
    waits = [long if number % period == offset % period else wait for number, wait in enumerate(noise)]
    found = shape(waits, np.zeros(100, dtype=bool))
    assert (found.spread, found.period) == (Spread.PERIODIC, period)


def waits(folder: Path) -> Waits:
    facts = facts_of_run(folder)
    assert facts.waits.total_ns == facts.parts.input_ns
    return facts.waits


def test_the_pieces_of_a_wait_are_told_by_when_the_batch_was_made(tmp_path: Path) -> None:
    """Of 20 ms a worker is at the batch for 8, reads it in every other step, and hands it over for 4."""

    def made(step: int, begin: int, end: int) -> Any:
        return batch_trace(0, end - 12 * MS, end - 4 * MS, read_ns=6 * MS * (step % 2))

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=made)
    found = waits(tmp_path / "run")
    # Since the end of the computation 10 of the 20 ms are hidden: of each 10 exposed ones 4 are the hand-over.
    shares = {name: getattr(found, f"{name}_ns") / found.total_ns for name in ("handed", "reading", "making", "slow")}
    assert shares == pytest.approx({"handed": 0.4, "reading": 0.3, "making": 0.3, "slow": 0.0}, abs=0.02)
    assert found.shape.spread is Spread.EVERY_STEP
    assert found.told == 1


def test_starting_workers_is_told_from_filling_the_pipeline(tmp_path: Path) -> None:
    """Each epoch begins with 100 ms until a worker is there, and 50 ms in which it makes the first batch."""

    def made(step: int, begin: int, end: int) -> Any:
        return batch_trace(0, begin + 100 * MS if step % 20 == 0 else begin - MS, end)

    # The last step of each waits for the device, so that nothing hides the next epoch's beginning.
    epoch = [Step(fetch_ns=150 * MS), *[Step(fetch_ns=MS)] * 18, Step(fetch_ns=MS, sync=True)]
    train(tmp_path / "run", [epoch] * 6, trace=made)
    found = waits(tmp_path / "run")
    # The first epoch began in the warm-up.
    assert found.epochs == 5
    assert found.batches_per_epoch == 20
    starting, filling = found.starting_ns / 5 / MS, found.filling_ns / 5 / MS
    assert starting == pytest.approx(100, abs=1)
    assert filling == pytest.approx(50, abs=1)


def test_a_wait_of_which_no_batch_is_known_is_all_making(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100])
    found = waits(tmp_path / "run")
    assert (found.told, found.handed_ns, found.reading_ns, found.slow_ns) == (0, 0, 0, 0)
    assert math.isnan(found.pct(found.making_ns))
    assert dataclasses.replace(found, told=1.0).pct(found.making_ns) == pytest.approx(100, abs=1)


@given(
    plan=st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 20), st.booleans()), min_size=30, max_size=60
    ),
    epoch=st.integers(3, 60),
)
def test_the_pieces_sum_to_the_whole_whatever_the_loader_did(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, int, int, bool]], epoch: int
) -> None:
    def made(step: int, begin: int, end: int) -> Any:
        _, making, late, reads = plan[step]
        return batch_trace(step % 2, end - (making + late) * MS, end - late * MS, read_ns=making * MS if reads else 0)

    steps = [Step(fetch_ns=fetch * MS) for fetch, _, _, _ in plan]
    epochs = [steps[at : at + epoch] for at in range(0, len(steps), epoch)]
    folder = tmp_path_factory.mktemp("plan") / "run"
    train(folder, epochs, trace=made)
    found = waits(folder)
    pieces = (found.starting_ns, found.filling_ns, found.handed_ns, found.slow_ns, found.reading_ns, found.making_ns)
    assert min(pieces) >= -len(pieces)


def test_slow_samples_in_a_sixth_of_the_batches_and_in_each_first_one_are_told_as_such(tmp_path: Path) -> None:
    """Two workers; of each six batches one holds a sample of 300 ms, which the others wait for in their order."""

    def made(step: int, begin: int, end: int) -> Any:
        slow = step % 6 == 0
        return batch_trace(step % 2, end - (300 if slow else 10) * MS, end)

    plan = [Step(fetch_ns=(300 if number % 6 == 0 else 1) * MS) for number in range(24)]
    train(tmp_path / "run", [plan] * 4, trace=made)
    facts = facts_of_run(tmp_path / "run")
    # The trace of these trainings knows no single samples; workers' records do.
    batches = np.array(open_run(tmp_path / "run").records(BATCH))
    slow = batches["step"] % 6 == 0
    batches["slowest_ns"] = np.where(slow, 290 * MS, 3 * MS)
    batches["loader"], batches["batch"] = 1, batches["step"]
    batches["end_ns"][~slow] -= 200 * MS
    batches["begin_ns"][~slow] -= 200 * MS
    found = waits_of(facts.window, batches, facts.parts)
    assert found.filling_ns == 0
    assert found.slow_ns > 0.8 * found.total_ns
    assert found.slow_times > 2.5

    # On a busy machine each batch waits for a CPU, for a time of its own: no reason to take the slow one for usual.
    busy = batches.copy()
    busy["run_queue_ns"] = np.where(slow, 0, np.arange(len(busy)) % 5 * 40 * MS)
    busy["begin_ns"] -= busy["run_queue_ns"]
    assert waits_of(facts.window, busy, facts.parts).slow_ns == found.slow_ns
    busy["run_queue_ns"] = 0
    assert waits_of(facts.window, busy, facts.parts).slow_ns < found.slow_ns


def test_an_iterator_is_left_early_if_more_of_its_batches_were_made_than_taken(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 2] * 40, trace=lambda _step, begin, end: batch_trace(0, begin, end))
    facts = facts_of_run(tmp_path / "run")
    window = dataclasses.replace(facts.window, steps=np.array(facts.window.steps))
    steps = window.steps
    steps["loader"], steps["batch"] = steps["step"] // 2, steps["step"] % 2
    made = np.repeat(open_run(tmp_path / "run").records(BATCH)[:1], len(steps))
    made["loader"], made["batch"], made["step"] = steps["loader"], steps["batch"], steps["step"]
    further = made[::8].copy()  # of every fourth pass
    further["batch"], further["step"] = 2, NOT_MEASURED
    assert waits_of(window, made, facts.parts).left_early == 0
    left = waits_of(window, np.concatenate((made, further)), facts.parts).left_early
    passes = np.unique(steps["loader"])[:-1]
    assert left == pytest.approx(np.isin(passes, further["loader"]).mean())
    assert 0.2 < left < 0.3
    steps["loader"] = 1
    assert math.isnan(waits_of(window, made, facts.parts).left_early)
