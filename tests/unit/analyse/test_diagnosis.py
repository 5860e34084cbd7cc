"""Verdicts on planted causes, on the virtual clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.analysis import analyse
from whyidle.devices.emulated import EmulatedEvent
from whyidle.record.run import create_run, open_run, update_run
from whyidle.record.schema import EVENT, HOST, STEP, EventKind
from whyidle.record.segment import RecordWriter
from whyidle.report.contract import run as contract
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


def hosts(folder: Path, used_cpus: float, budget: float, machine_pct: float = 50.0) -> None:
    """Samples of a job that keeps `used_cpus` busy."""
    writer = RecordWriter(folder, HOST)
    names = [f.name for f in HOST.fields[1:]]
    for number in range(150):
        row = HOST.missing()
        now = START + number * 200 * MS
        row[names.index("t_ns")] = now
        row[names.index("machine_busy_pct")] = machine_pct
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
    # A batch takes 20 ms, a step without the wait 10: two workers at a time, and some spare time for these.
    assert change.change.startswith("num_workers=3")
    # Eight samples in 20 ms and 90 % CPU: three workers could make 1200 a second, the device takes 800.
    assert change.predicted_samples_per_s == pytest.approx(800, rel=0.03)
    assert change.high is not None
    assert change.predicted_samples_per_s <= change.high


def test_busy_workers_with_cpu_left_are_too_few(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=2.0, budget=8)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.too_few_workers"
    assert "2 workers are busy" in found.title
    # A batch takes 40 ms of a worker, the device wants one every 10.
    assert "more workers (5)" in found.next[0].change


def test_busy_workers_without_cpu_left_have_exhausted_it(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=1.9, budget=2)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.cpu_exhausted"
    assert "decoding" in found.title
    change = found.next[0]
    assert change.low == pytest.approx(400, rel=0.03)
    assert change.high == pytest.approx(800, rel=0.03)
    assert change.low < change.predicted_samples_per_s < change.high


def test_workers_that_wait_for_reads_point_at_storage(tmp_path: Path) -> None:
    train(
        tmp_path / "run",
        [[Step(fetch_ns=20 * MS)] * 100],
        trace=lambda step, _b, end: made(step % 2, end - 40 * MS, end, read_share=0.8),
        queue=QUEUE,
    )
    hosts(tmp_path / "run", used_cpus=0.3, budget=2)
    assert verdict(tmp_path / "run").cause == "input.storage"


def test_batches_that_were_finished_long_before_they_arrive_point_at_the_hand_off(tmp_path: Path) -> None:
    late = 15 * MS
    train(
        tmp_path / "run",
        [[Step(fetch_ns=20 * MS)] * 100],
        trace=lambda step, _b, end: made(step % 2, end - late - 10 * MS, end - late),
        queue=QUEUE,
    )
    hosts(tmp_path / "run", used_cpus=0.6, budget=2)
    assert verdict(tmp_path / "run").cause == "input.handoff"


def test_a_batch_that_is_finished_before_the_one_that_is_due_is_not_on_its_way(tmp_path: Path) -> None:
    """Every other batch is slow; the next one is finished long before it, and handed over at once."""

    def trace(step: int, begin: int, end: int) -> Any:
        return made(step % 2, end - 40 * MS, end if step % 2 else begin - 30 * MS)

    plan = [Step(fetch_ns=(30 if number % 2 else 1) * MS) for number in range(100)]
    train(tmp_path / "run", [plan], trace=trace, queue=QUEUE)
    facts = analyse(open_run(tmp_path / "run")).facts
    assert facts is not None
    assert facts.handoff_pct is not None
    assert facts.handoff_pct < 10


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


def test_a_busy_machine_on_which_the_loader_gets_its_cpu_is_no_foreign_load(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(1, 20 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosts(tmp_path / "run", used_cpus=0.95, budget=2, machine_pct=99.0)
    assert verdict(tmp_path / "run").cause == "input.too_few_workers"


def test_a_machine_that_others_use_up_is_foreign_load(tmp_path: Path) -> None:
    def trace(step: int, _begin: int, end: int) -> Any:
        return SimpleNamespace(**{**vars(made(step % 2, end - 40 * MS, end)), "cpu_ns": 20 * MS})

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=trace, queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 8}})
    hosts(tmp_path / "run", used_cpus=1.0, budget=8, machine_pct=98.0)
    found = verdict(tmp_path / "run")
    assert found.cause == "input.foreign_load"
    assert found.evidence[0].value == pytest.approx(6.84, abs=0.05)


def known(folder: Path, **loader: Any) -> Any:
    """Facts of a recorded run, with figures of its loader that its trace lacks."""
    facts = analyse(open_run(folder)).facts
    assert facts is not None
    return dataclasses.replace(facts, loader=dataclasses.replace(facts.loader, **loader))


def first(facts: Any) -> Any:
    return findings_of(facts)[0]


SLEEPING = {"cpu_pct": 2.0, "run_queue_pct": 3.0, "read_pct": 0.0, "unsplit_pct": 99.0}


def test_workers_that_wait_for_the_network_need_more_of_them_whoever_uses_the_cpus(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 40 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosts(tmp_path / "run", used_cpus=0.5, budget=2, machine_pct=98.0)
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
    hosts(tmp_path / "run", used_cpus=0.3, budget=2)
    assert first(known(tmp_path / "run", **SLEEPING)).next[0].change.startswith("num_workers=8 (more than CPUs")
    computing = {**SLEEPING, "cpu_pct": 96.0}
    assert first(known(tmp_path / "run", **computing)).next[0].change.startswith("num_workers=2:")


def test_workers_with_batches_ready_have_not_exhausted_the_cpu(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=workers(2, 10 * MS), queue=QUEUE)
    update_run(tmp_path / "run", {"host": {"cpus": 2}})
    hosts(tmp_path / "run", used_cpus=1.0, budget=2, machine_pct=100.0)
    ready = {"queue_ready_mean": 3.4, "worker_busy_pct": 33.0, "cpu_pct": 60.0, "run_queue_pct": 30.0}
    facts = known(tmp_path / "run", **ready)
    found = first(dataclasses.replace(facts, set_workers=2, set_prefetch=2))
    assert found.cause == "input.prefetch_depth"
    assert "prefetch_factor=4 instead of 2" in found.next[0].change


def test_what_first_batches_cost_is_no_matter_of_other_causes(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=300 * MS)] + [Step(fetch_ns=20 * MS)] * 29
    train(tmp_path / "run", [epoch] * 5, trace=workers(2, 40 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=2.0, budget=8)
    facts = analyse(open_run(tmp_path / "run")).facts
    assert facts is not None
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
    hosts(tmp_path / "run", used_cpus=1.0, budget=2)
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
    hosts(tmp_path / "run", used_cpus=0.4, budget=2)
    facts = analyse(open_run(tmp_path / "run")).facts
    assert facts is not None
    sure = {}
    for cpu_ms in (1, 19):
        steps = facts.window.steps.copy()
        steps["cpu_ns"] = cpu_ms * MS
        found = first(dataclasses.replace(facts, window=dataclasses.replace(facts.window, steps=steps)))
        assert found.cause == "input.serial"
        assert "background thread" in found.next[0].change
        sure[cpu_ms] = found.confidence
    assert sure[19] > sure[1]


def test_slow_first_batches_of_a_serial_loader_are_still_serial(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=400 * MS)]] * 40, trace=lambda _s, b, e: made(0, b, e))
    assert verdict(tmp_path / "run").cause == "input.serial"


def test_epochs_of_equally_slow_batches_are_no_pipeline_fill(tmp_path: Path) -> None:
    """Half of all fetches are first ones here, and no slower than the others."""
    train(tmp_path / "run", [[Step(fetch_ns=50 * MS)] * 2] * 30, trace=workers(2, 95 * MS), queue=QUEUE)
    hosts(tmp_path / "run", used_cpus=2.0, budget=8)
    assert verdict(tmp_path / "run").cause == "input.too_few_workers"


def test_a_pool_of_threads_counts_its_threads(tmp_path: Path) -> None:
    def trace(_step: int, _begin: int, end: int) -> Any:
        # Four threads: the batch is under way for 60 ms, in which its samples take 76 ms of work in all.
        return SimpleNamespace(**{**vars(made(0, end - 60 * MS, end)), "decode_ns": 76 * MS, "threads": 4})

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=trace, queue=QUEUE)
    facts = analyse(open_run(tmp_path / "run")).facts
    assert facts is not None
    assert facts.loader.workers == 4
    assert facts.loader.samples_per_s_limit == pytest.approx(4 * 8 / 0.088, rel=0.01)


def test_without_the_devices_stamps_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The device answers about the first ten steps, then nothing comes back any more.
    answers = EmulatedEvent.done
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: e.at_ns < START + 100 * MS and answers(e))
    train(tmp_path / "run", [[Step(fetch_ns=MS, compute_ns=10 * MS)] * 60])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.verdict.cause is None
    assert analysis.findings == ()
    assert any("had not finished the last 5" in note for note in analysis.notes)
    # Not one stamp: nothing is known, and nothing is claimed.
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: False)
    train(tmp_path / "silent", [[Step(fetch_ns=MS, compute_ns=10 * MS)] * 60])
    silent = analyse(open_run(tmp_path / "silent"))
    assert silent.facts is None
    assert "60 steps were recorded" in silent.verdict.title
    assert contract.report(silent).breakdown.compute_pct is None


def test_exposed_garbage_collection_is_named(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(host_ns=20 * MS)] * 60])
    (path,) = (tmp_path / "run").glob("event-*.rec")
    steps = open_run(tmp_path / "run").records(STEP)
    collections = np.zeros(len(steps), dtype=EVENT.dtype)
    collections["seq"] = np.arange(len(steps)) + 1 + len(open_run(tmp_path / "run").records(EVENT))
    collections["what"] = EventKind.GARBAGE
    collections["t_ns"], collections["end_ns"] = steps["step_end_ns"] - 18 * MS, steps["step_end_ns"]
    with path.open("ab") as file:
        file.write(collections.tobytes())
    assert verdict(tmp_path / "run").cause == "host.gc"


def test_on_the_processor_no_gain_of_a_faster_loader_is_promised_and_garbage_counts_once(tmp_path: Path) -> None:
    """Loader and training share the CPU: what one gives up the other gets."""
    info = {"device": {"kind": "cpu", "title": "a processor"}, "ended": {"status": "ok"}}
    folder = create_run(tmp_path / "run", info)
    writer, events = RecordWriter(folder, STEP), RecordWriter(folder, EVENT)
    names = [f.name for f in STEP.fields[1:]]
    for number in range(60):
        row = STEP.missing()
        begin = START + number * 100 * MS
        stamps = {"fetch_begin_ns": 0, "fetch_end_ns": 60, "forward_begin_ns": 61, "optimizer_end_ns": 96}
        for name, ms in {**stamps, "step_end_ns": 100}.items():
            row[names.index(name)] = begin + ms * MS
        for name, value in {"step": number, "epoch": 0, "flags": 0, "samples": 8, "overhead_ns": 0}.items():
            row[names.index(name)] = value
        writer.append(*row)
        # 10 ms within the fetch, 6 ms within the computation.
        for low, high in ((10, 20), (70, 76)):
            events.append(begin + low * MS, EventKind.GARBAGE, 0, begin + high * MS)
    writer.close()
    events.close()
    analysis = analyse(open_run(folder))
    facts = analysis.facts
    assert facts is not None
    shares = {part: round(100 * facts.parts.share(part)) for part in ("compute", "input", "copy", "sync", "host")}
    assert shares == {"compute": 30, "input": 60, "copy": 0, "sync": 0, "host": 10}
    promised = {f.cause: [n.high for n in f.next] for f in analysis.findings}
    assert promised == {"input.serial": [None], "host.gc": [pytest.approx(80 / 0.94)] * 3}
    assert contract.report(analysis).headroom.samples_per_s is None


def test_records_that_were_overwritten_are_left_out_and_said(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100])
    (path,) = (tmp_path / "run").glob("step-*.rec")
    whole = path.read_bytes()
    at = 4096 + 50 * STEP.record_bytes + 16
    path.write_bytes(whole[:at] + b"\x5a" * 200 + whole[at + 200 :])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    assert analysis.facts.samples_per_s == pytest.approx(400, rel=0.05)
    assert any("1 records of steps are damaged" in note for note in analysis.notes)
    path.write_bytes(whole[: 4096 + 60 * STEP.record_bytes + 100])
    assert any("is cut short" in note for note in analyse(open_run(tmp_path / "run")).notes)


def test_a_training_that_did_not_end_well_is_said_first(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 50])
    update_run(tmp_path / "run", {"ended": {"status": "failed", "error": "ValueError: a broken image"}})
    assert "failed: ValueError: a broken image" in analyse(open_run(tmp_path / "run")).notes[0]


@pytest.mark.parametrize(
    ("share", "gain", "severity"),
    [(0.04, 1 / 24, "none"), (1 / 21, 0.05, "minor"), (1 / 11, 0.1, "major"), (0.23, 23 / 77, "major")]
    + [(0.3, 3 / 7, "critical"), (0.5, 1.0, "critical")],
)
def test_what_vanishes_leaves_the_rest_of_the_time_for_all_the_samples(
    share: float, gain: float, severity: str
) -> None:
    # Beside the boundary, which floats do not meet.
    finding = Finding("input.serial", "", share + 1e-12, 1.0)
    assert finding.gain == pytest.approx(gain)
    assert finding.severity == severity
