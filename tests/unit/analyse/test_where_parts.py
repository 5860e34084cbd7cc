"""Which part of its step a training was in when it was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import ON_CPU, records_of, steps_of, train_on_cpu
from support.planted_stacks import FETCHING, FORWARD, look, looks_of
from whyidle.analyse.where.parts import StepPart, by_part, parts_at
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from whyidle.scenarios.planted import MS, START


def step(number: int, begin: int, **stamps: Any) -> dict[str, float]:
    """100 ms from `begin`: fetched at 10, called at 20, optimized until 90, unless said otherwise."""
    row = {"fetch_begin_ns": 0, "fetch_end_ns": 10, "forward_begin_ns": 20, "backward_begin_ns": 50}
    row |= {"optimizer_end_ns": 90, "step_end_ns": 100}
    told = {name: value if value == NOT_MEASURED else begin + value for name, value in (row | stamps).items()}
    plain = {"step": number, "flags": StepFlag.FORWARD_SEEN, "samples": 8, "skipped": 0, "skipped_samples": 0}
    return (
        plain
        | {name: value for name, value in told.items() if name not in plain}
        | {name: stamps[name] for name in plain if name in stamps}
    )


def part_at(at: int, *steps: dict[str, float], events: Any = (), pauses: Any = ()) -> StepPart:
    told = [dict(zip(("t_ns", "what", "value", "end_ns"), row, strict=True)) for row in events]
    calls = [{"what": what, "begin_ns": begin, "end_ns": end} for what, begin, end in pauses]
    (part,) = parts_at(np.array([at]), records_of(STEP, steps), records_of(EVENT, told), records_of(PAUSE, calls))
    return StepPart(part)


TWO = step(0, 1000), step(1, 1100)


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (999, StepPart.BEFORE_FIRST),
        (1000, StepPart.FETCH),
        (1009, StepPart.FETCH),
        (1010, StepPart.ARRIVAL),
        (1019, StepPart.ARRIVAL),
        (1020, StepPart.COMPUTE),
        (1089, StepPart.COMPUTE),
        (1090, StepPart.AFTER_OPTIMIZER),
        (1099, StepPart.AFTER_OPTIMIZER),
        (1100, StepPart.FETCH),
        (1200, StepPart.AFTER_LAST),
        (10**12, StepPart.AFTER_LAST),
    ],
)
def test_each_moment_of_a_step_is_in_the_part_that_its_stamps_tell(at: int, part: StepPart) -> None:
    assert part_at(at, *TWO) is part


def test_time_between_two_epochs_is_outside_the_steps() -> None:
    assert part_at(1150, step(0, 1000), step(1, 1200)) is StepPart.OUTSIDE


def test_a_validation_is_outside_the_steps_wherever_it_is() -> None:
    boundary = [(1030, EventKind.BOUNDARY, 0, 1040)]
    assert part_at(1035, *TWO, events=boundary) is StepPart.OUTSIDE
    assert part_at(1041, *TWO, events=boundary) is StepPart.COMPUTE
    assert part_at(1300, *TWO, events=[(1250, EventKind.BOUNDARY, 0, 1400)]) is StepPart.OUTSIDE


def test_a_validation_before_the_training_is_before_the_first_step() -> None:
    assert part_at(905, *TWO, events=[(900, EventKind.BOUNDARY, 0, 910)]) is StepPart.BEFORE_FIRST


def test_a_further_fetch_within_a_step_is_a_fetch() -> None:
    assert part_at(1055, *TWO, pauses=[(PauseKind.FETCH, 1050, 1060)]) is StepPart.FETCH
    assert part_at(1055, *TWO, pauses=[(PauseKind.SYNC, 1050, 1060)]) is StepPart.COMPUTE


def test_steps_that_were_let_pass_are_not_guessed() -> None:
    passed = step(5, 1400, skipped=4, skipped_end_ns=NOT_MEASURED)
    assert part_at(1250, step(0, 1000), passed) is StepPart.UNKNOWN
    ended = step(5, 1400, skipped=4, skipped_end_ns=-150)
    assert part_at(1249, step(0, 1000), ended) is StepPart.UNKNOWN
    assert part_at(1250, step(0, 1000), ended) is StepPart.OUTSIDE


def test_steps_that_are_missing_in_the_recording_are_not_guessed() -> None:
    assert part_at(1250, step(0, 1000), step(3, 1400)) is StepPart.UNKNOWN
    assert part_at(900, step(3, 1000)) is StepPart.UNKNOWN


def test_steps_that_were_let_pass_after_the_last_are_not_after_the_training() -> None:
    until = [(1500, EventKind.SKIPPED_STEPS, 7, NOT_MEASURED)]
    assert part_at(1400, *TWO, events=until) is StepPart.UNKNOWN
    assert part_at(1500, *TWO, events=until) is StepPart.AFTER_LAST


def test_without_a_single_call_of_the_model_seen_its_arrival_is_not_told_from_computing() -> None:
    unseen = [step(number, 1000 + 100 * number, flags=0, forward_begin_ns=10) for number in range(2)]
    assert part_at(1030, *unseen) is StepPart.ARRIVAL_OR_COMPUTE
    assert part_at(1030, unseen[0], TWO[1]) is StepPart.COMPUTE


def test_a_step_without_an_optimizer_computes_to_its_end() -> None:
    assert part_at(1099, step(0, 1000, optimizer_end_ns=NOT_MEASURED), TWO[1]) is StepPart.COMPUTE


def test_of_a_step_whose_fetch_was_not_seen_only_the_backward_pass_is_known() -> None:
    unfed = [step(number, 1000 + 100 * number, fetch_end_ns=NOT_MEASURED, flags=0) for number in range(2)]
    assert part_at(1030, *unfed) is StepPart.UNKNOWN
    assert part_at(1060, *unfed) is StepPart.COMPUTE
    assert part_at(1095, *unfed) is StepPart.UNKNOWN
    assert part_at(1195, *unfed) is StepPart.UNKNOWN


def test_without_steps_nothing_is_known() -> None:
    assert part_at(5) is StepPart.UNKNOWN


@st.composite
def trainings(draw: st.DrawFn) -> list[dict[str, float]]:
    """Steps one after another, with gaps, with steps let pass or lost, and with stamps missing or out of order."""
    rows, begin, number = [], 1000, 0
    for _ in range(draw(st.integers(1, 6))):
        skipped = draw(st.sampled_from([0, 0, 3]))
        number += skipped + draw(st.sampled_from([0, 0, 2]))
        begin += draw(st.integers(0, 50)) + 50 * skipped
        missing = st.one_of(st.just(NOT_MEASURED), st.integers(0, 100))
        stamps = {name: draw(missing) for name in ("fetch_end_ns", "backward_begin_ns", "optimizer_end_ns")}
        flags = draw(st.sampled_from([0, StepFlag.FORWARD_SEEN]))
        rows.append(
            step(number, begin, **stamps, flags=flags, forward_begin_ns=draw(st.integers(0, 100)), skipped=skipped)
        )
        begin, number = begin + 100, number + 1
    return rows


@given(trainings(), st.lists(st.integers(900, 2500), max_size=40))
def test_each_look_is_in_exactly_one_part(steps: list[dict[str, float]], at: list[int]) -> None:
    records, none = records_of(STEP, steps), (records_of(EVENT, []), records_of(PAUSE, []))
    parts = parts_at(np.array(at, dtype=np.int64), records, *none)
    assert len(parts) == len(at)
    first, last = steps[0]["fetch_begin_ns"], steps[-1]["step_end_ns"]
    for moment, part in zip(at, parts.tolist(), strict=True):
        assert part in list(StepPart)
        assert (part == StepPart.AFTER_LAST) == (moment >= last)
        if part == StepPart.BEFORE_FIRST:
            assert moment < first
        fetching = any(
            row["fetch_end_ns"] != NOT_MEASURED and row["fetch_begin_ns"] <= moment < row["fetch_end_ns"]
            for row in steps
        )
        assert (part == StepPart.FETCH) == fetching


def test_looks_are_sorted_into_the_parts_of_a_recording(tmp_path: Path) -> None:
    run = train_on_cpu(tmp_path, [{"fetch": 40, "end": 100, "gap": 5}] * 50)
    at = range(START - 100 * MS, START + 5100 * MS, 10 * MS)
    look(run, at, lambda _, moment: FETCHING if (moment - START) % (100 * MS) < 40 * MS else FORWARD)
    looks, recording = looks_of(run), open_run(run)
    found = by_part(looks, steps_of(run), recording.records(EVENT), recording.records(PAUSE))
    assert {part: len(mine) for part, mine in found.items()} == {
        StepPart.BEFORE_FIRST: 10,
        StepPart.FETCH: 50 * 4,
        StepPart.ARRIVAL_OR_COMPUTE: 50 * 6,
        StepPart.AFTER_LAST: 10,
    }
    assert list(found[StepPart.FETCH].stacks()) == [(FETCHING, 200)]


def test_of_a_recording_without_steps_no_look_is_left_out(tmp_path: Path) -> None:
    create_run(tmp_path, ON_CPU)
    look(tmp_path, range(START, START + 5 * MS, MS), lambda *_: FORWARD)
    none = records_of(STEP, []), records_of(EVENT, []), records_of(PAUSE, [])
    assert {part: len(mine) for part, mine in by_part(looks_of(tmp_path), *none).items()} == {StepPart.UNKNOWN: 5}
