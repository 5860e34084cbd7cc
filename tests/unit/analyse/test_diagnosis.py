"""Verdicts on planted causes, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stallscope.analyse.analysis import analyse
from stallscope.record.run import open_run
from stallscope.record.schema import HOST
from stallscope.record.segment import RecordWriter
from virtual import MS, START, Step, train


def made(worker: int, begin: int, end: int, read_share: float = 0.1) -> Any:
    wall = end - begin
    return SimpleNamespace(
        worker=worker,
        begin_ns=begin,
        end_ns=end,
        read_ns=int(wall * read_share),
        decode_ns=int(wall * (0.9 - read_share)),
        transform_ns=int(wall * 0.05),
        collate_ns=int(wall * 0.05),
        cpu_ns=int(wall * (1 - read_share)),
        minor_faults=None,
        read_bytes=1000,
    )


def hosts(folder: Path, used_cpus: float, budget: float, seconds: int = 30) -> None:
    """Samples of a job that keeps `used_cpus` busy."""
    writer = RecordWriter(folder, HOST)
    names = [f.name for f in HOST.fields[1:]]
    for number in range(seconds * 5):
        row = HOST.missing()
        now = START + number * 200 * MS
        row[names.index("t_ns")] = now
        row[names.index("cpus")] = int(budget * 1000)
        row[names.index("tree_cpu_ns")] = int(used_cpus * number * 200 * MS)
        writer.append(*row)
    writer.close()


def workers(count: int, batch_ns: int) -> Callable[[int, int, int], Any]:
    """Batches of `count` workers that are busy all the time, each `batch_ns` a batch."""

    def trace(step: int, _begin: int, end: int) -> Any:
        return made(step % count, end - batch_ns, end)

    return trace


QUEUE = SimpleNamespace(capacity=4, ready=lambda: 0)


def verdict(folder: Path) -> Any:
    return analyse(open_run(folder)).verdict


def test_a_healthy_run_stays_silent(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=2 * MS, compute_ns=10 * MS)] * 100])
    found = verdict(tmp_path / "run")
    assert (found.cause, found.severity) == ("none", "none")
    assert analyse(open_run(tmp_path / "run")).findings == ()


def test_too_few_steps_are_no_verdict_and_say_so(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=50 * MS)] * 20])
    found = verdict(tmp_path / "run")
    assert found.cause is None
    assert found.title.startswith("No verdict: 19 steps")


def test_no_step_at_all_is_no_verdict(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    assert verdict(tmp_path / "run").title == "No verdict: no training step was recorded."


def test_batches_made_in_the_training_process_are_serial(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=lambda _s, b, e: made(0, b, e))
    hosts(tmp_path / "run", used_cpus=1.0, budget=4)
    found = verdict(tmp_path / "run")
    assert (found.cause, found.severity) == ("input.serial", "critical")
    assert 100 * found.share == pytest.approx(50, abs=2)
    change = found.next[0]
    assert change.change.startswith("num_workers=4")
    # Eight samples in 20 ms and 90 % CPU: four CPUs could make 1777 a second, the device takes 800.
    assert change.predicted_samples_per_s == pytest.approx(800, rel=0.03)
    assert change.high is not None
    assert change.predicted_samples_per_s <= change.high


def test_busy_workers_with_cpu_left_are_too_few(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=2.0, budget=8)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.too_few_workers"
    assert "2 workers are busy" in found.title
    assert "more workers (4)" in found.next[0].change


def test_busy_workers_without_cpu_left_have_exhausted_it(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=1.9, budget=2)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.cpu_exhausted"
    assert "decoding" in found.title
    assert found.next[0].predicted_samples_per_s is None
    assert found.next[0].high == pytest.approx(800, rel=0.03)


def test_workers_that_wait_for_reads_point_at_storage(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        [[Step(fetch_ns=20 * MS)] * 100],
        trace=lambda step, _b, end: made(step % 2, end - 40 * MS, end, read_share=0.8),
        queue=QUEUE,
    )
    hosts(tmp_path / "run", used_cpus=0.3, budget=2)
    assert verdict(tmp_path / "run").cause == "input.storage"


def test_idle_workers_and_a_waiting_training_point_at_the_hand_off(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 10 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=0.6, budget=2)
    assert verdict(tmp_path / "run").cause == "input.handoff"


def test_slow_first_batches_of_epochs_are_pipeline_fill(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=900 * MS)] + [Step(fetch_ns=MS)] * 15
    train(tmp_path / "run", [epoch] * 6)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.pipeline_fill"


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (Step(copy_bytes=20_000_000, pinned=False), "copy.pageable"),
        (Step(copy_bytes=20_000_000, pinned=True), "copy.serial"),
        (Step(host_ns=20 * MS), "host.step_gap"),
    ],
)
def test_other_waits_have_their_own_causes(tmp_path: Path, step: Step, cause: str) -> None:
    train(tmp_path / "run", [[step] * 60])
    assert verdict(tmp_path / "run").cause == cause


def test_validation_that_takes_long_is_a_boundary(tmp_path: Path) -> None:
    plan = [Step()] * 39 + [Step(boundary_ns=400 * MS)]
    train(tmp_path / "run", [plan] * 2)
    assert verdict(tmp_path / "run").cause == "host.boundary"


def test_findings_are_ranked_by_gain_and_the_verdict_is_the_first(tmp_path: Path) -> None:
    plan = [Step(copy_bytes=40_000_000, pinned=False, host_ns=0)] * 39 + [Step(boundary_ns=100 * MS)]
    train(tmp_path / "run", [plan] * 2)
    analysis = analyse(open_run(tmp_path / "run"))
    assert [f.cause for f in analysis.findings] == ["copy.pageable", "host.boundary"]
    assert analysis.verdict is analysis.findings[0]
    gains = [f.gain for f in analysis.findings]
    assert gains == sorted(gains, reverse=True)
