"""Batches that workers recorded, joined to the steps that consumed them, and what workers died of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import add, add_events, analysis_of_run, records_of
from support.rendered import rendered
from support.snapshots import running, text
from whyidle.analyse.recent import RecentReader
from whyidle.analyse.run.loader_stats import (
    WAITING,
    WAITING_FOR_CPU,
    HandedOver,
    LoaderStats,
    first_later_end,
    handed_over_of,
    joined,
    loader_of,
    of_training,
    places_of,
)
from whyidle.analyse.run.resource_usage import WorkerDeath, deaths_of, said_of
from whyidle.analyse.run.window import Window
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, CONTENT, EVENT, HOST, MEMORY, NOT_MEASURED, STEP, EventKind, MemoryLimitOf
from whyidle.report.contract.run import report
from whyidle.report.documents.run import run_document
from whyidle.report.page.run_page import page
from whyidle.scenarios.planted import START, Step, train

MS = 1_000_000
PASS = 1 << 32


def steps(*fetches: tuple[int, int, int, int]) -> Records:
    """(loader, batch, fetch begin, fetch end in ms)"""
    names = ("step", "loader", "batch", "fetch_begin_ns", "fetch_end_ns", "step_end_ns")
    told = ((n, of, batch, begin * MS, end * MS, (end + 1) * MS) for n, (of, batch, begin, end) in enumerate(fetches))
    return records_of(STEP, [{"skipped": 0} | dict(zip(names, row, strict=True)) for row in told])


def batch(loader: int, number: int, begin: float, end: float, worker: int = 0, **more: int) -> dict[str, Any]:
    times = {"begin_ns": int(begin * MS), "end_ns": int(end * MS)}
    return {"loader": loader, "batch": number, "worker": worker, "threads": 1, "samples": 4} | times | more


def loader(recorded: Records, end_ms: int, *batches: dict[str, Any]) -> LoaderStats:
    return loader_of(window(recorded, end_ms), of_training(rows(BATCH, *batches), recorded))


def rows(kind: Any, *told: dict[str, Any]) -> Records:
    return records_of(kind, told)


def window(recorded: Records, end_ms: int) -> Window:
    return Window(int(recorded["fetch_begin_ns"][0]), end_ms * MS, recorded, 0, recorded)


@pytest.mark.parametrize(
    ("fetched", "made", "loaders", "found"),
    [
        ([(1, 0), (1, 1), (1, PASS), (2, 0)], [(2, 0), (1, PASS), (1, 0), (1, 1)], [2, 1, 1, 1], [3, 2, 0, 1]),
        # Those of a validation's loader are left out, those for nobody kept without a step.
        ([(1, 0)], [(7, 0), (1, 0), (1, 5), None], [1, 1, NOT_MEASURED], [0, NOT_MEASURED, 0]),
        ([(NOT_MEASURED, NOT_MEASURED)], [(1, 0)], [], []),
    ],
)
def test_batches_find_their_step_by_loader_pass_and_number(
    fetched: list[tuple[int, int]], made: list[tuple[int, int] | None], loaders: list[int], found: list[int]
) -> None:
    recorded = steps(*((*of, 2 * n, 2 * n + 1) for n, of in enumerate(fetched)))
    told = of_training(rows(BATCH, *(batch(*of, 0, 1) if of else {"step": 0, "worker": 0} for of in made)), recorded)
    assert (told["loader"].tolist(), told["step"].tolist()) == (loaders, found)


def test_of_later_batches_of_a_pass_the_first_that_was_finished_counts() -> None:
    far = np.iinfo(np.int64).max
    made = rows(BATCH, batch(1, 0, 0, 10), batch(1, 2, 10, 12), batch(1, 1, 5, 30, 1), batch(1, 3, 12, 40))
    assert first_later_end(made).tolist() == [12 * MS, 40 * MS, 12 * MS, far]
    assert first_later_end(rows(BATCH, {"step": 0, "worker": 0, "end_ns": 5})).tolist() == [far]


def test_what_nobody_recorded_of_short_batches_counts_as_work() -> None:
    recorded = steps((1, 0, 0, 10), (1, 9, 90, 100))
    left_out = {"skipped": 8, "skipped_samples": 32, "skipped_ns": 72 * MS}
    found = loader(recorded, 100, batch(1, 0, 0, 10), batch(1, 9, 90, 100, **left_out))
    assert found.worker_busy_pct == pytest.approx(92)
    assert found.samples_per_s_limit == pytest.approx(40 / 0.092)
    assert found.make_ms_per_sample == pytest.approx(92 / 40)


def test_waiting_is_a_stage_of_its_own_and_the_stages_sum_to_all() -> None:
    recorded = steps((1, 0, 0, 10), (1, 1, 10, 20))
    told = {"read_ns": 0, "collate_ns": 1 * MS, "cpu_ns": 2 * MS, "run_queue_ns": 1 * MS}
    found = loader(recorded, 21, batch(1, 0, 0, 10, **told), batch(1, 1, 10, 20, **told))
    stages = {WAITING: 70, WAITING_FOR_CPU: 10, "preparing samples": 10}
    assert {name: found.stages[name] for name in stages} == pytest.approx(stages)
    # Nothing is made while waiting.
    assert found.costliest in ("preparing samples", "collating")
    # More waiting than the samples took: it happened in collating.
    slow = loader(recorded, 21, batch(1, 0, 0, 10, **told | {"collate_ns": 9 * MS}))
    assert slow.stages["collating"] == pytest.approx(20)
    for each in (found, slow):
        assert sum(share or 0 for share in each.stages.values()) == pytest.approx(100)


numbers = st.lists(st.integers(0, 12), max_size=12)


@given(numbers, numbers, st.booleans())
def test_places_are_the_first_of_each_number(wanted: list[int], among: list[int], in_order: bool) -> None:
    among = sorted(set(among)) if in_order else among
    asked = np.array([*wanted, NOT_MEASURED], dtype=np.int64)
    expected = [*(among.index(each) if each in among else -1 for each in wanted), -1]
    assert places_of(asked, np.array(among, dtype=np.int64)).tolist() == expected
    ours, theirs = (np.array(each, dtype=[("step", "i8")]) for each in (sorted(set(among)), wanted))
    _, place, batch = np.intersect1d(ours["step"], theirs["step"], return_indices=True)
    assert [each.tolist() for each in joined(ours, theirs)] == [place.tolist(), batch.tolist()]


def told_by_workers(field: str, *values: dict[str, int]) -> Any:
    batch = {"step": 0, "begin_ns": 0, "end_ns": MS, "samples": 8, "threads": 1, "skipped": 0, "skipped_ns": 0}
    made = rows(BATCH, *(batch | {"worker": number} | each for number, each in enumerate(values)))
    return getattr(loader_of(window(steps((1, PASS, 0, 1)), 1), made), field)


@pytest.mark.parametrize(
    ("sets", "cpus"),
    [
        ([(0, 2), (2, 2), (4, 2), (6, 2)], 8),
        ([(0, 32), (32, 32), (0, 32), (32, 32)], 64),
        ([(0, 1), (3, 1), (0, 1)], 2),
        ([(0, 4), (2, 4)], 6),
        ([(0, 8), (0, 2)], 8),
        ([(5, 1)] * 4, 1),
    ],
)
def test_the_cpus_of_the_workers_are_counted_once_however_they_are_divided(
    sets: list[tuple[int, int]], cpus: int
) -> None:
    assert told_by_workers("cpus", *({"first_cpu": first, "cpus": count} for first, count in sets)) == cpus


def test_batches_that_workers_did_not_record_count_for_how_evenly_they_are_divided() -> None:
    """One worker recorded each of its 20 batches, the others one of ten."""
    one = [{"worker": 0}] * 20
    others = [{"worker": worker, "skipped": 9} for worker in (1, 2, 3) for _ in range(2)]
    assert told_by_workers("even_workers", *one, *others) == pytest.approx(4)
    assert told_by_workers("even_workers", *one) == pytest.approx(1)
    assert told_by_workers("even_workers", *one, {"worker": 1, "skipped": NOT_MEASURED}) == pytest.approx(1.1, abs=0.01)


def test_what_batches_consist_of_is_the_mean_of_those_of_the_loaders_that_train() -> None:
    held = {"loader": 1, "tensors": 1200, "tensor_bytes": 57_600, "objects": 4, "object_bytes": 100}
    contents = rows(
        CONTENT,
        held,
        held | {"tensors": 1206},
        held | {"loader": 2, "tensors": 1},  # a validation's
        {"loader": 1},  # too large
    )
    told = handed_over_of(contents, steps((1, 0, 0, 1)))
    assert told == HandedOver(1203, 57_600, 4)
    assert told.bytes_of_tensor == pytest.approx(57_600 / 1203)
    assert handed_over_of(contents[2:], steps((1, 0, 0, 1))) is None
    assert HandedOver(0, 0, 3).bytes_of_tensor == 0


S = 10**9
GIB = 1 << 30
PID = 4711


def died(
    code: int | None, host: dict[str, int] | None = None, limits: list[dict[str, int]] | None = None
) -> WorkerDeath:
    """Worker 1 died 12 s after the training began; `host`: seen 2 s before."""
    rows = [
        {"t_ns": 100 * S, "what": EventKind.TRAINING_BEGIN},
        {"t_ns": 112 * S, "what": EventKind.WORKER_DIED, "value": NOT_MEASURED if code is None else code},
        {"t_ns": 112 * S, "what": EventKind.DIED_WORKER, "value": (2 << 32) + PID},
    ]
    looks = [] if host is None else [{"t_ns": 110 * S, **host}]
    (found,) = deaths_of(records_of(EVENT, rows), records_of(HOST, looks), records_of(MEMORY, limits or []))
    return found


def kills(*counts: int, **limit: int) -> list[dict[str, int]]:
    return [{"t_ns": (100 + n) * S, "oom_kills": count, **limit} for n, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("code", "seen", "likely", "way_out"),
    [
        (-9, {"limits": kills(7, 8)}, "the kernel killed it for lack of memory (1 process was", "fewer workers"),
        (
            -9,
            {"limits": kills(0, 2, whose=MemoryLimitOf.CONTAINER, limit_bytes=4 * GIB, used_bytes=GIB)},
            "lack of memory at the limit of the container, 4.0 GiB (2 processes were",
            "docker run --memory",
        ),
        (-9, {"limits": kills(7, 7)}, "not lack of memory", "ask who"),
        (-9, {"host": {"memory_available_bytes": 50 << 20}}, "lack of memory: 50 MiB were left", "fewer workers"),
        (-9, {}, "usually the kernel does this for lack of memory, which was not", "fewer workers"),
        (-7, {"host": {"shm_used_bytes": 63 << 20, "shm_total_bytes": 64 << 20}}, "/dev/shm was full", "--shm-size"),
        (-7, {"host": {"shm_used_bytes": 1 << 20, "shm_total_bytes": 64 << 20}}, "/dev/shm is small", "--shm-size"),
        (-7, {"host": {"shm_used_bytes": 1 << 20, "shm_total_bytes": 8 * GIB}}, "cut short", "num_workers=0"),
        (-7, {}, "usually a full /dev/shm", "--shm-size"),
        (-11, {}, "compiled code of a library", "faulthandler"),
        (-15, {}, "somebody, or a batch system", "who sends signals"),
        (3, {}, "ended the process (sys.exit, os._exit)", "num_workers=0"),
        (None, {}, "how it ended is not known", "num_workers=0"),
    ],
)
def test_the_reason_is_what_memory_and_limits_tell(
    code: int | None, seen: dict[str, Any], likely: str, way_out: str
) -> None:
    found = died(code, **seen)
    assert likely in found.likely
    assert way_out in found.way_out
    assert (found.pid, found.worker, found.exit_code, found.at_s) == (PID, 1, code, 12.0)


def test_looks_at_the_host_long_before_a_death_tell_nothing_of_it() -> None:
    full = {"shm_used_bytes": 63 << 20, "shm_total_bytes": 64 << 20}
    assert "usually a full /dev/shm" in died(-7, {"t_ns": 80 * S, **full}).likely
    assert "usually a full /dev/shm" in died(-7, {"t_ns": 113 * S, **full}).likely


def test_it_is_said_in_a_sentence_with_how_many_followed() -> None:
    one = died(-9, limits=kills(0, 1))
    assert said_of((one,)).startswith("Worker 1 (process 4711) was killed by SIGKILL 12 s after the training began: ")
    assert said_of((one, one, one)).endswith(" 2 more died with it or later.")
    assert died(3).said.startswith("worker 1 (process 4711) ended with exit code 3 12 s after")
    signals = {-9: "SIGKILL", 3: None, None: None, -99: "signal 99"}
    assert {code: died(code).signal for code in signals} == signals


def test_report_json_and_live_view_say_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, [[Step() for _ in range(60)]])
    for what, value in ((EventKind.WORKER_DIED, -9), (EventKind.DIED_WORKER, (1 << 32) + PID)):
        add_events(folder, [(START + S, what, value, NOT_MEASURED)])
    add(folder, MEMORY, kills(0, 1))
    analysis = analysis_of_run(folder)
    shown = rendered(run_document(analysis))
    said = "A WORKER DIED: Worker 0 (process 4711) was killed by SIGKILL"
    assert said in " ".join(shown.split())
    assert shown.index("A WORKER DIED") < shown.index("Verdict")
    assert "was killed by SIGKILL" in page(analysis, [open_run(folder)])
    assert "The kernel killed 1 process for lack of memory during the recording." in analysis.notes
    (death,) = report(analysis)["worker_deaths"]
    assert [death[name] for name in ("pid", "worker", "exit_code", "signal")] == [PID, 0, -9, "SIGKILL"]
    assert death["likely"] == "the kernel killed it for lack of memory (1 process was killed for that meanwhile)"
    view = RecentReader(folder, judge_s=0).snapshot()
    assert [(each.pid, each.signal) for each in view.deaths] == [(PID, "SIGKILL")]
    assert said in text(replace(running(), deaths=view.deaths), 100)
    assert "A WORKER DIED" not in text(running(), 100)
