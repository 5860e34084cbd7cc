"""Whether workers are in each other's way: from the batches they make, and from looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from support.crafted import records_of
from whyidle.analyse.run.exclusion import Exclusion, exclusion_of
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
            ends = []
            for number in range(first, first + beside):
                ends.append(at + ALONE_MS * beside**shared * uneven[number % len(uneven)])
                rows.append(
                    {
                        "loader": 1,
                        "batch": (epoch << 32) + number,
                        "worker": number % WORKERS,
                        "threads": 1,
                        "samples": 8 if beside == WORKERS else last_samples,
                        "begin_ns": round(at * MS),
                        "end_ns": round(ends[-1] * MS),
                        "skipped_ns": 0,
                    }
                )
            at = max(ends)
    return exclusion_of(whole(), records_of(BATCH, rows))


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


def test_what_workers_share_serves_all_of_them_as_fast_as_one() -> None:
    found = told(made(1.0))
    assert found.growth is not None
    assert found.growth.exponent.value == pytest.approx(1.0, abs=0.01)
    assert found.grows
    assert (found.growth.fewer_ms, found.growth.usual_ms) == pytest.approx((2 * ALONE_MS, 4 * ALONE_MS))
    # Alone a batch would take a quarter of what it takes beside three others.
    assert found.alone.value == pytest.approx(1 / found.together, rel=0.02)


def test_workers_that_wait_by_themselves_take_as_long_however_many_there_are() -> None:
    found = told(made(0.0))
    assert found.growth is not None
    assert found.growth.exponent.value == pytest.approx(0.0, abs=0.01)
    assert not found.grows


def test_a_run_in_which_as_many_are_always_at_work_tells_nothing_of_fewer() -> None:
    assert told(made(1.0, batches=16)).growth is None
    assert told(made(1.0, epochs=2)).growth is None, "four batches beside fewer are few"


def test_small_batches_at_the_end_of_an_epoch_are_no_sign_of_anything() -> None:
    assert told(made(1.0, last_samples=3)).growth is None


def test_batches_that_differ_by_themselves_tell_nothing() -> None:
    assert told(made(0.0, uneven=(1.0, 0.1, 1.0, 0.1, 1.0))).growth is None


def test_workers_at_a_lock_of_a_file_are_seen_there(tmp_path: Path) -> None:
    looks = looked(tmp_path / "run", [ThreadState.SLEEP, *[ThreadState.FILE_LOCK] * 3] * 10)
    found = told(exclusion_of(whole(), four_at_work(), looks))
    assert found.waiting is not None
    assert (found.waiting.of_file, found.waiting.at, found.waiting.elsewhere) == (True, "data.py:27", ThreadState.SLEEP)
    assert found.waiting.lock.value == 0.75
    assert found.waits_for_lock
    assert found.alone.value == 0.25


def test_locks_that_libraries_try_again_and_again_are_seen_though_workers_sleep(tmp_path: Path) -> None:
    acquire = Call("BaseFileLock.acquire", "/venv/lib/python3.12/site-packages/filelock/_api.py", 333)
    looks = looked(tmp_path / "run", [ThreadState.RUNS, *[ThreadState.SLEEP] * 3] * 10, [acquire])
    found = told(exclusion_of(whole(), four_at_work(), looks))
    assert found.waiting is not None
    assert (found.waiting.of_file, found.waiting.at, found.waiting.elsewhere) == (True, "data.py:27", ThreadState.RUNS)
    assert found.waits_for_lock


@pytest.mark.parametrize("state", [ThreadState.SLEEP, ThreadState.SOCKET, ThreadState.LOCK])
def test_waits_that_no_other_worker_causes_are_no_exclusion(tmp_path: Path, state: int) -> None:
    looks = looked(tmp_path / "run", [ThreadState.RUNS, *[state] * 3] * 10)
    assert not told(exclusion_of(whole(), four_at_work(), looks)).waits_for_lock


def test_few_looks_tell_nothing(tmp_path: Path) -> None:
    looks = looked(tmp_path / "run", [ThreadState.SHARED_LOCK] * 8)
    assert told(exclusion_of(whole(), four_at_work(), looks)).waiting is None


def test_one_worker_is_in_nobodys_way() -> None:
    assert exclusion_of(whole(), four_at_work()[::WORKERS]) is None


def four_at_work() -> np.ndarray:
    rows = [
        {"loader": 1, "batch": n, "worker": n % 4, "threads": 1, "samples": 8, "begin_ns": n // 4 * 100 * MS}
        | {"end_ns": (n // 4 + 1) * 100 * MS, "skipped_ns": 0}
        for n in range(40)
    ]
    return records_of(BATCH, rows)
