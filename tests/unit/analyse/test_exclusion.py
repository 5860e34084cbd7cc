"""Whether workers are in each other's way: from the batches they make, and from looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import records_of
from whyidle.analyse.run.loader_stats import Exclusion, exclusion_of
from whyidle.analyse.run.window import Window
from whyidle.analyse.where.looks import Looks, ProcessLooks
from whyidle.record.schema import BATCH, STACK, STEP, ThreadState
from whyidle.record.stacks import Call, StackNames, read_stacks
from whyidle.scenarios.planted import MS

WORKERS = 4
ALONE_MS = 25.0
TORCH = "/lib/python3/site-packages/torch/utils/data/_utils"
MAKING = (Call("_worker_loop", f"{TORCH}/worker.py", 9), Call("fetch", f"{TORCH}/fetch.py", 8))


def made(
    shared: float, batches: int = 14, epochs: int = 6, uneven: Sequence[float] = (1.0,), last_samples: int = 8
) -> Exclusion | None:
    """What is told of workers that begin a batch together, round by round. `shared`: exponent of a batch's time over
    those at work; `uneven`: factors on it, in turn; `last_samples`: of the batches of an epoch's last round."""
    rows, at = [], 0.0
    for epoch in range(epochs):
        for first in range(0, batches, WORKERS):
            beside = min(WORKERS, batches - first)
            samples = 8 if beside == WORKERS else last_samples
            for number in range(first, first + beside):
                lasts = ALONE_MS * beside**shared * uneven[number % len(uneven)]
                rows.append(batch((epoch << 32) + number, number % WORKERS, at, at + lasts, samples))
            at = max(row["end_ns"] for row in rows) / MS
    return exclusion_of(whole(), records_of(BATCH, rows))


def batch(number: int, worker: int, begin: float, end: float, samples: int = 8) -> dict[str, int]:
    times = {"begin_ns": round(begin * MS), "end_ns": round(end * MS), "skipped_ns": 0}
    return {"loader": 1, "batch": number, "worker": worker, "threads": 1, "samples": samples} | times


def four_at_work() -> np.ndarray:
    return records_of(BATCH, [batch(n, n % 4, n // 4 * 100, (n // 4 + 1) * 100) for n in range(40)])


def whole() -> Window:
    steps = records_of(STEP, [{"step": 0}])
    return Window(0, 10**12, steps, 0, steps)


def told(found: Exclusion | None) -> Exclusion:
    assert found is not None
    return found


def looked(folder: Path, states: Sequence[int], within: Sequence[Call] = ()) -> ProcessLooks:
    """Looks at workers that make batches, in turn, one a ms; where they sleep they stand `within` these calls."""
    folder.mkdir()
    numbers = StackNames(folder, lambda _file, _line: "with self.lock:")
    stack = [*MAKING, Call("Shards.__getitem__", "/home/me/data.py", 27)]
    works, sleeps = numbers.number(stack), numbers.number([*stack, *within])
    rows = [
        {"t_ns": at * MS, "process": 50 + at % WORKERS, "thread": 50 + at % WORKERS, "state": state}
        | {"stack": sleeps if state == ThreadState.SLEEP else works}
        for at, state in enumerate(states)
    ]
    table = read_stacks(folder)
    none = Looks(np.empty(0, STACK.dtype), table)
    return ProcessLooks(none, none, Looks(records_of(STACK, rows), table), none, none)


@pytest.mark.parametrize("shared", [1.0, 0.0])
def test_what_workers_share_serves_all_of_them_as_fast_as_one(shared: float) -> None:
    """Those that wait by themselves take as long however many there are."""
    found = told(made(shared))
    assert found.growth is not None
    assert found.growth.exponent.value == pytest.approx(shared, abs=0.01)
    assert found.grows == (shared == 1)
    if shared:
        assert (found.growth.fewer_ms, found.growth.usual_ms) == pytest.approx((2 * ALONE_MS, 4 * ALONE_MS))
        # Alone a batch would take a quarter of what it takes beside three others.
        assert found.alone.value == pytest.approx(1 / found.together, rel=0.02)


@pytest.mark.parametrize(
    "how",
    [
        {"shared": 1.0, "batches": 16},  # as many are always at work
        {"shared": 1.0, "epochs": 2},  # four batches beside fewer are few
        {"shared": 1.0, "last_samples": 3},  # small batches at the end of an epoch
        {"shared": 0.0, "uneven": (1.0, 0.1, 1.0, 0.1, 1.0)},  # they differ by themselves
    ],
)
def test_where_fewer_at_work_are_not_to_be_compared_nothing_is_told(how: dict[str, Any]) -> None:
    assert told(made(**how)).growth is None


ACQUIRE = Call("BaseFileLock.acquire", "/venv/lib/python3.12/site-packages/filelock/_api.py", 333)


@pytest.mark.parametrize(
    ("one", "others", "within"),
    [
        (ThreadState.SLEEP, ThreadState.FILE_LOCK, []),
        # Locks that libraries try again and again are seen though workers sleep.
        (ThreadState.RUNS, ThreadState.SLEEP, [ACQUIRE]),
    ],
)
def test_workers_at_a_lock_of_a_file_are_seen_there(
    tmp_path: Path, one: ThreadState, others: ThreadState, within: list[Call]
) -> None:
    found = told(exclusion_of(whole(), four_at_work(), looked(tmp_path / "run", [one, *[others] * 3] * 10, within)))
    assert found.waiting is not None
    assert (found.waiting.of_file, found.waiting.at, found.waiting.elsewhere) == (True, "data.py:27", one)
    assert found.waiting.lock.value == 0.75
    assert found.waits_for_lock
    assert found.alone.value == 0.25


@pytest.mark.parametrize("state", [ThreadState.SLEEP, ThreadState.SOCKET, ThreadState.LOCK])
def test_waits_that_no_other_worker_causes_are_no_exclusion_few_looks_tell_nothing_and_one_worker_is_in_nobodys_way(
    tmp_path: Path, state: int
) -> None:
    looks = looked(tmp_path / "run", [ThreadState.RUNS, *[state] * 3] * 10)
    assert not told(exclusion_of(whole(), four_at_work(), looks)).waits_for_lock
    few = looked(tmp_path / "few", [ThreadState.SHARED_LOCK] * 8)
    assert told(exclusion_of(whole(), four_at_work(), few)).waiting is None
    assert exclusion_of(whole(), four_at_work()[::WORKERS]) is None
