"""Which part of its step a training was in when it was looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    plain = {"step": number, "flags": StepFlag.FORWARD_SEEN, "samples": 8, "skipped": 0, "skipped_samples": 0}
    told = row | plain | stamps
    return {name: value if name in plain or value == NOT_MEASURED else begin + value for name, value in told.items()}


def part_at(at: int, *steps: dict[str, float], events: Any = (), pauses: Any = ()) -> StepPart:
    told = [dict(zip(("t_ns", "what", "value", "end_ns"), row, strict=True)) for row in events]
    calls = [{"what": what, "begin_ns": begin, "end_ns": end} for what, begin, end in pauses]
    (part,) = parts_at(np.array([at]), records_of(STEP, steps), records_of(EVENT, told), records_of(PAUSE, calls))
    return StepPart(part)


UNKNOWN, COMPUTE, OUTSIDE = StepPart.UNKNOWN, StepPart.COMPUTE, StepPart.OUTSIDE
TWO = step(0, 1000), step(1, 1100)
PASSED = step(0, 1000), step(5, 1400, skipped=4, skipped_end_ns=NOT_MEASURED)
ENDED = step(0, 1000), step(5, 1400, skipped=4, skipped_end_ns=-150)
LOST = step(0, 1000), step(3, 1400)
UNSEEN = [step(number, 1000 + 100 * number, flags=0, forward_begin_ns=10) for number in range(2)]
UNFED = [step(number, 1000 + 100 * number, fetch_end_ns=NOT_MEASURED, flags=0) for number in range(2)]
VALIDATION = [(1030, EventKind.BOUNDARY, 0, 1040)]
SKIPPED = [(1500, EventKind.SKIPPED_STEPS, 7, NOT_MEASURED)]


@pytest.mark.parametrize(
    ("at", "steps", "events", "part"),
    [
        (1150, (step(0, 1000), step(1, 1200)), [], OUTSIDE),  # between two epochs
        # A validation is outside the steps wherever it is, and before the training before the first.
        (1035, TWO, VALIDATION, OUTSIDE),
        (1041, TWO, VALIDATION, COMPUTE),
        (1300, TWO, [(1250, EventKind.BOUNDARY, 0, 1400)], OUTSIDE),
        (905, TWO, [(900, EventKind.BOUNDARY, 0, 910)], StepPart.BEFORE_FIRST),
        # Steps that were let pass or are missing in the recording are not guessed.
        (1250, PASSED, [], UNKNOWN),
        (1249, ENDED, [], UNKNOWN),
        (1250, ENDED, [], OUTSIDE),
        (1250, LOST, [], UNKNOWN),
        (900, [step(3, 1000)], [], UNKNOWN),
        # Let pass after the last, they are not after the training.
        (1400, TWO, SKIPPED, UNKNOWN),
        (1500, TWO, SKIPPED, StepPart.AFTER_LAST),
        # Without a single call of the model seen its arrival is not told from computing.
        (1030, UNSEEN, [], StepPart.ARRIVAL_OR_COMPUTE),
        (1030, (UNSEEN[0], TWO[1]), [], COMPUTE),
        # A step without an optimizer computes to its end.
        (1099, (step(0, 1000, optimizer_end_ns=NOT_MEASURED), TWO[1]), [], COMPUTE),
        # Where the fetch was not seen only the backward pass is known.
        (1030, UNFED, [], UNKNOWN),
        (1060, UNFED, [], COMPUTE),
        (1095, UNFED, [], UNKNOWN),
        (1195, UNFED, [], UNKNOWN),
        (5, [], [], UNKNOWN),
    ],
)
def test_what_is_known_of_a_moment_is_told_and_the_rest_not_guessed(
    at: int, steps: Any, events: Any, part: StepPart
) -> None:
    assert part_at(at, *steps, events=events) is part


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


def test_a_further_fetch_within_a_step_is_a_fetch() -> None:
    assert part_at(1055, *TWO, pauses=[(PauseKind.FETCH, 1050, 1060)]) is StepPart.FETCH
    assert part_at(1055, *TWO, pauses=[(PauseKind.SYNC, 1050, 1060)]) is StepPart.COMPUTE


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
