"""What a worker died of, by its signal and what was seen of memory: said in text, page, JSON and live view."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.crafted import add, add_events, analysis_of_run, records_of
from support.rendered import rendered
from support.snapshots import running, text
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.worker_deaths import WorkerDeath, deaths_of, said_of
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, HOST, MEMORY, NOT_MEASURED, EventKind, MemoryLimitOf
from whyidle.report.contract.run import report
from whyidle.report.documents.run import run_document
from whyidle.report.page.run_page import page
from whyidle.scenarios.planted import START, Step, train

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
        (-9, {"limits": kills(7, 8)}, "the kernel's doing for want of memory (1 process was", "fewer workers"),
        (
            -9,
            {"limits": kills(0, 2, whose=MemoryLimitOf.CONTAINER, limit_bytes=4 * GIB, used_bytes=GIB)},
            "want of memory at the limit of the container, 4.0 GiB (2 processes were",
            "docker run --memory",
        ),
        (-9, {"limits": kills(7, 7)}, "not for want of memory", "ask who"),
        (-9, {"host": {"memory_available_bytes": 50 << 20}}, "want of memory: 50 MiB were left", "fewer workers"),
        (-9, {}, "mostly the kernel does so for want of memory, of which nothing is told", "fewer workers"),
        (-7, {"host": {"shm_used_bytes": 63 << 20, "shm_total_bytes": 64 << 20}}, "/dev/shm was full", "--shm-size"),
        (-7, {"host": {"shm_used_bytes": 1 << 20, "shm_total_bytes": 64 << 20}}, "/dev/shm is small", "--shm-size"),
        (-7, {"host": {"shm_used_bytes": 1 << 20, "shm_total_bytes": 8 * GIB}}, "cut short", "num_workers=0"),
        (-7, {}, "mostly /dev/shm is full", "--shm-size"),
        (-11, {}, "compiled code of a library", "faulthandler"),
        (-15, {}, "somebody ended it", "who sends signals"),
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
    assert "mostly /dev/shm is full" in died(-7, {"t_ns": 80 * S, **full}).likely
    assert "mostly /dev/shm is full" in died(-7, {"t_ns": 113 * S, **full}).likely


def test_it_is_said_in_a_sentence_with_how_many_followed() -> None:
    one = died(-9, limits=kills(0, 1))
    assert said_of((one,)).startswith("Worker 1 (process 4711) was killed by SIGKILL 12 s after the training began: ")
    assert said_of((one, one, one)).endswith(" 2 more died with it or later.")
    assert died(3).said.startswith("worker 1 (process 4711) ended with exit code 3 12 s after")
    assert (died(-9).signal, died(3).signal, died(None).signal, died(-99).signal) == (
        "SIGKILL",
        None,
        None,
        "signal 99",
    )


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
    assert "The kernel killed 1 process for want of memory while this was recorded." in analysis.notes
    (death,) = report(analysis).worker_deaths
    assert (death.pid, death.worker, death.exit_code, death.signal) == (PID, 0, -9, "SIGKILL")
    assert death.likely == "the kernel's doing for want of memory (1 process was killed so meanwhile)"
    view = RecentReader(folder, judge_s=0).snapshot()
    assert [(each.pid, each.signal) for each in view.deaths] == [(PID, "SIGKILL")]
    shown = text(replace(running(), deaths=view.deaths), 100, 30)
    assert said in " ".join(shown.split())
    assert "A WORKER DIED" not in text(running(), 100, 30)
