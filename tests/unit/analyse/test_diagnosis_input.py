"""Verdicts on planted waits for data, on the virtual clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.crafted import add_events, facts_of_run, verdict_of_run
from support.planted_runs import Making, hosted, serial
from support.rendered import rendered
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.run.analysis import analyse
from whyidle.record.columns import copied
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import NOT_MEASURED, EventKind, LoaderFlag
from whyidle.report.documents.run import run_document
from whyidle.scenarios.planted import MS, START, Step, train


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
        threads=1,
    )


def workers(count: int, batch_ns: int) -> Callable[[int, int, int], Any]:
    """Batches of `count` workers that are busy all the time, each `batch_ns` a batch."""

    def trace(step: int, _begin: int, end: int) -> Any:
        return made(step % count, end - batch_ns, end)

    return trace


QUEUE = SimpleNamespace(capacity=4, ready=lambda: 0)


def test_batches_made_in_the_training_process_are_serial(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=lambda _s, b, e: made(0, b, e))
    hosted(tmp_path / "run", 1.0, 4)
    found = verdict_of_run(tmp_path / "run")
    assert (found.cause, found.severity) == ("input.serial", "critical")
    assert 100 * found.share == pytest.approx(50, abs=2)
    change = found.next[0]
    # A batch takes 20 ms, a step without the wait 10: two workers at a time, and some spare time for these.
    assert change.change.startswith("num_workers=3")
    # Eight samples in 20 ms and 90 % CPU: three workers could make 1200 a second, the device takes 800.
    assert change.predicted_samples_per_s == pytest.approx(800, rel=0.03)
    assert change.high is not None
    assert change.predicted_samples_per_s <= change.high


@pytest.mark.parametrize("inner", [0, 2])
def test_no_workers_are_advised_around_a_data_set_with_workers_of_its_own(tmp_path: Path, inner: int) -> None:
    folder = serial(tmp_path / "run", 100, 20, Making(read=0.8, cpu=0.1))
    add_events(folder, [(START, EventKind.LOADER_FLAGS, own_workers(inner), NOT_MEASURED)])
    hosted(folder, 1.0, 4)
    run = analyse(open_run(folder))
    found = run.verdict
    assert (found.cause, found.severity) == ("input.serial", "critical")
    assert "from workers of the data set's own" in found.title
    assert "one after the other" not in found.title
    shown = {each.what: each for each in found.evidence}
    assert (shown["num_workers"].value, shown["num_workers"].expected) == (0, "")
    assert shown["workers of the data set's own"].value == (inner or None)
    (change,) = found.next
    assert ("num_workers above 2" in change.change) == bool(inner)
    assert "keeps num_workers=0" in change.change
    assert change.settings == {}
    assert change.speedup is not None
    assert change.speedup.to_try
    text = rendered(run_document(run), 120)
    assert "waiting for reads of files" not in text
    assert "waiting for its own workers" in text


def own_workers(inner: int) -> int:
    return LoaderFlag.OWN_WORKERS + inner * LoaderFlag.INNER_WORKER


def test_busy_workers_with_cpu_left_are_too_few(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosted(tmp_path / "run", 2.0, 8)
    found = verdict_of_run(tmp_path / "run")
    assert found.cause == "input.too_few_workers"
    assert "2 workers are busy" in found.title
    # A batch takes 40 ms of a worker, the device wants one every 10.
    assert "more workers (5)" in found.next[0].change


def test_busy_workers_without_cpu_left_have_exhausted_it(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosted(tmp_path / "run", 1.9, 2)
    found = verdict_of_run(tmp_path / "run")
    assert found.cause == "input.cpu_exhausted"
    assert "decoding" in found.title
    change = found.next[0]
    # Of decoding, which is most of what is waited for, 30 to 100 % may go.
    assert 400 < change.low < change.predicted_samples_per_s < 800
    assert change.high == pytest.approx(800, rel=0.1)


def test_workers_that_wait_for_reads_point_at_storage(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        [[Step(fetch_ns=20 * MS)] * 100],
        trace=lambda step, _b, end: made(step % 2, end - 40 * MS, end, read_share=0.8),
        queue=QUEUE,
    )
    hosted(tmp_path / "run", 0.3, 2)
    assert verdict_of_run(tmp_path / "run").cause == "input.storage"


def test_batches_that_were_finished_long_before_they_arrive_point_at_the_hand_off(tmp_path: Path) -> None:
    late = 15 * MS
    train(
        tmp_path / "run",
        [[Step(fetch_ns=20 * MS)] * 100],
        trace=lambda step, _b, end: made(step % 2, end - late - 10 * MS, end - late),
        queue=QUEUE,
    )
    hosted(tmp_path / "run", 0.6, 2)
    assert verdict_of_run(tmp_path / "run").cause == "input.handoff"


def test_a_batch_that_is_finished_before_the_one_that_is_due_is_not_on_its_way(tmp_path: Path) -> None:
    """Every other batch is slow; the next one is finished long before it, and handed over at once."""

    def trace(step: int, begin: int, end: int) -> Any:
        return made(step % 2, end - 40 * MS, end if step % 2 else begin - 30 * MS)

    plan = [Step(fetch_ns=(30 if number % 2 else 1) * MS) for number in range(100)]
    train(tmp_path / "run", [plan], trace=trace, queue=QUEUE)
    facts = facts_of_run(tmp_path / "run")
    assert facts.handoff_pct is not None
    assert facts.handoff_pct < 10


def test_slow_first_batches_of_epochs_are_pipeline_fill(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=900 * MS)] + [Step(fetch_ns=MS)] * 15
    train(tmp_path / "run", [epoch] * 6)
    found = verdict_of_run(tmp_path / "run")
    assert found.cause == "input.pipeline_fill"


def test_a_busy_machine_on_which_the_loader_gets_its_cpu_is_no_foreign_load(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(1, 20 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosted(tmp_path / "run", 0.95, 2, machine_pct=99.0)
    assert verdict_of_run(tmp_path / "run").cause == "input.too_few_workers"


def test_a_machine_that_others_use_up_is_foreign_load(tmp_path: Path) -> None:
    def trace(step: int, _begin: int, end: int) -> Any:
        return SimpleNamespace(**{**vars(made(step % 2, end - 40 * MS, end)), "cpu_ns": 20 * MS})

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=trace, queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 8}})
    hosted(tmp_path / "run", 1.0, 8, machine_pct=98.0)
    found = verdict_of_run(tmp_path / "run")
    assert found.cause == "input.foreign_load"
    assert found.evidence[0].value == pytest.approx(6.84, abs=0.05)


def known(folder: Path, **loader: Any) -> Any:
    """Facts of a recorded run, with figures of its loader that its trace lacks."""
    facts = facts_of_run(folder)
    return dataclasses.replace(facts, loader=dataclasses.replace(facts.loader, **loader))


def first(facts: Any) -> Any:
    return findings_of(facts)[0]


SLEEPING = {"cpu_pct": 2.0, "run_queue_pct": 3.0, "read_pct": 0.0, "unsplit_pct": 99.0}


def test_workers_that_wait_for_the_network_need_more_of_them_whoever_uses_the_cpus(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosted(tmp_path / "run", 0.5, 2, machine_pct=98.0)
    found = first(known(tmp_path / "run", **SLEEPING))
    assert found.cause == "input.too_few_workers"
    assert "95 % waiting" in found.title
    # More than the two CPUs: a batch takes 40 ms, the device wants one every 10.
    assert found.next[0].change.startswith("num_workers=5 (more than CPUs")
    assert found.evidence[0].value == pytest.approx(95)
    # Waiting for a CPU instead: others have it.
    queueing = {**SLEEPING, "run_queue_pct": 90.0}
    assert first(known(tmp_path / "run", **queueing)).cause == "input.foreign_load"


def test_a_serial_loader_that_waits_wants_more_workers_than_cpus(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=60 * MS)] * 100], trace=lambda _s, b, e: made(0, b, e, 0.0))
    hosted(tmp_path / "run", 0.3, 2)
    assert first(known(tmp_path / "run", **SLEEPING)).next[0].change.startswith("num_workers=8 (more than CPUs")
    computing = {**SLEEPING, "cpu_pct": 96.0}
    assert first(known(tmp_path / "run", **computing)).next[0].change.startswith("num_workers=2:")


def test_workers_with_batches_ready_have_not_exhausted_the_cpu(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 10 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosted(tmp_path / "run", 1.0, 2, machine_pct=100.0)
    ready = {"queue_ready_mean": 3.4, "worker_busy_pct": 33.0, "cpu_pct": 60.0, "run_queue_pct": 30.0}
    facts = known(tmp_path / "run", **ready)
    found = first(dataclasses.replace(facts, set_workers=2, set_prefetch=2))
    assert found.cause == "input.prefetch_depth"
    assert "prefetch_factor=4 instead of 2" in found.next[0].change


def test_what_first_batches_cost_is_no_matter_of_other_causes(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=300 * MS)] + [Step(fetch_ns=20 * MS)] * 29
    train(tmp_path / "run", [epoch] * 5, trace=workers(2, 40 * MS), queue=QUEUE)
    hosted(tmp_path / "run", 2.0, 8)
    facts = facts_of_run(tmp_path / "run")
    found = first(facts)
    assert found.cause == "input.too_few_workers"
    assert found.share == pytest.approx((facts.parts.input_ns - facts.parts.fill_ns) / facts.parts.wall_ns)
    assert found.share < facts.parts.share("input") - 0.1


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"set_workers": 2, "persistent_workers": True}, "smaller batches"),
        ({"set_workers": 4, "persistent_workers": True, "run_queue_pct": 50.0}, "fewer than 4 workers"),
        ({"set_workers": 2, "persistent_workers": True, "run_queue_pct": 50.0, "busy": 95.0}, "smaller batches"),
        ({"set_workers": None, "persistent_workers": None}, "longer epochs"),
    ],
)
def test_advice_on_first_batches_follows_from_the_settings(
    tmp_path: Path, settings: dict[str, Any], advice: str
) -> None:
    epoch = [Step(fetch_ns=900 * MS)] + [Step(fetch_ns=MS)] * 15
    train(tmp_path / "run", [epoch] * 6)
    hosted(tmp_path / "run", 1.0, 2)
    settings = dict(settings)
    queued, busy = settings.pop("run_queue_pct", 0.0), settings.pop("busy", None)
    facts = known(tmp_path / "run", run_queue_pct=queued, worker_busy_pct=busy)
    found = first(dataclasses.replace(facts, **settings))
    assert found.cause == "input.pipeline_fill"
    assert advice in found.next[0].change
    assert "persistent_workers" not in found.next[0].change


def test_first_batches_of_workers_that_do_not_persist_are_their_start(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=900 * MS)] + [Step(fetch_ns=MS)] * 15
    train(tmp_path / "run", [epoch] * 6)
    found = first(dataclasses.replace(known(tmp_path / "run"), set_workers=2, persistent_workers=False))
    assert found.cause == "input.worker_restart"
    assert "persistent_workers=True" in found.next[0].change


def test_an_iterable_of_which_nothing_is_known_is_made_in_the_training(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100])
    hosted(tmp_path / "run", 0.4, 2)
    facts = facts_of_run(tmp_path / "run")
    sure = {}
    for cpu_ms in (1, 19):
        steps = copied(facts.window.steps)
        steps["cpu_ns"] = cpu_ms * MS
        found = first(dataclasses.replace(facts, window=dataclasses.replace(facts.window, steps=steps)))
        assert found.cause == "input.serial"
        assert "background thread" in found.next[0].change
        sure[cpu_ms] = found.confidence
    assert sure[19] > sure[1]


def test_slow_first_batches_of_a_serial_loader_are_still_serial(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=400 * MS)]] * 40, trace=lambda _s, b, e: made(0, b, e))
    assert verdict_of_run(tmp_path / "run").cause == "input.serial"


def test_epochs_of_equally_slow_batches_are_no_pipeline_fill(tmp_path: Path) -> None:
    """Half of all fetches are first ones here, and no slower than the others."""
    train(tmp_path / "run", [[Step(fetch_ns=50 * MS)] * 2] * 30, trace=workers(2, 95 * MS), queue=QUEUE)
    hosted(tmp_path / "run", 2.0, 8)
    assert verdict_of_run(tmp_path / "run").cause == "input.too_few_workers"


def test_a_pool_of_threads_counts_its_threads(tmp_path: Path) -> None:
    def trace(_step: int, _begin: int, end: int) -> Any:
        # Four threads: the batch is under way for 60 ms, in which its samples take 76 ms of work in all.
        return SimpleNamespace(**{**vars(made(0, end - 60 * MS, end)), "decode_ns": 76 * MS, "threads": 4})

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=trace, queue=QUEUE)
    facts = facts_of_run(tmp_path / "run")
    assert facts.loader.workers == 4
    assert facts.loader.samples_per_s_limit == pytest.approx(4 * 8 / 0.088, rel=0.01)
