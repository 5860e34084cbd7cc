"""What a look shows of devices, workers, the host, ranks and epochs: on records whose figures are known."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from support.recent_runs import (
    BATCH,
    MS,
    ON_GPUS,
    START,
    STEP,
    S,
    at,
    batches,
    looks,
    recorded,
    ring,
    states,
    steps,
    store,
)
from whyidle.analyse.recent.snapshot import Series
from whyidle.record.processes import describe_process
from whyidle.record.sampled_devices import DEVICES, SampledDevice, note_devices
from whyidle.record.schema import EventKind


def named(kind: str) -> dict[str, Any]:
    return {"device": {"kind": kind, "title": "a device", "count": 1, "uuids": []}}


def last(series: Series, count: int) -> list[float]:
    return [round(value, 6) for value in series[-count:]]


def test_every_device_is_shown_on_one_grid(tmp_path: Path) -> None:
    gpm = [{"t_ns": START + n * S // 5, "device": 1, "window_ns": S // 5, "sm_active_pct": 30.0} for n in range(1, 51)]
    state = {
        "memory_used_bytes": 2 * 10**9,
        "memory_total_bytes": 8 * 10**9,
        "power_mw": (100_000, 1000),
        "sm_clock_mhz": 1200,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 2600,
        "temperature_c": 61,
        "pcie_rx_bytes": (0, 10**9),
        "pcie_tx_bytes": (10**12, 10**6),
        "pcie_generation": 4,
        "pcie_width": 8,
        "pcie_max_generation": 5,
        "pcie_max_width": 16,
    }
    rows = [*ring(0, 10, 25.0), *ring(1, 10, 75.0), *gpm, *states(1, 10, **state, throttle_reasons=0x4)]
    view = at(recorded(tmp_path / "run", device=rows), 10.5)
    one, other = view.devices
    assert (one.name, one.number, one.emulated, other.number) == ("GPU 0", 0, False, 1)
    assert len(one.busy_pct) == len(other.busy_pct) == len(other.power_w) == 240
    assert last(one.busy_pct, 3) == [25, 25, 25]
    assert math.isnan(one.busy_pct[0])
    assert one.sm_active_pct == one.memory_pct == one.power_w == one.pcie_rx_bytes_s == ()
    assert (one.memory_used_bytes, one.temperature_c, one.held_down) == (None, None, None)
    assert last(other.busy_pct, 2) == [75, 75]
    assert last(other.sm_active_pct, 2) == [30, 30]
    assert last(other.memory_pct, 2) == [25, 25]
    assert last(other.power_w, 2) == [108, 109]  # each reading stands for the second before it
    assert last(other.pcie_rx_bytes_s, 2) == [1e9, 1e9]
    assert last(other.pcie_tx_bytes_s, 2) == [1e6, 1e6]
    assert (other.sm_clock_mhz, other.sm_clock_max_mhz, other.memory_clock_mhz) == (1200, 1980, 2600)
    assert (other.temperature_c, other.held_down) == (61, "power cap")
    assert (other.pcie_generation, other.pcie_width, other.pcie_max_generation, other.pcie_max_width) == (4, 8, 5, 16)


@pytest.mark.parametrize(
    ("reasons", "said"),
    [(0, None), (0x1, None), (0x1 | 0x4, None), (0x20, "heat"), (0x4 | 0x40, "heat"), (0x8, "hardware slowdown")],
)
def test_why_clocks_are_held_down_is_said_unless_the_device_idles(
    tmp_path: Path, reasons: int, said: str | None
) -> None:
    rows = states(0, 3, throttle_reasons=0x4) + states(0, 1, START + 3 * S, throttle_reasons=reasons)
    assert at(recorded(tmp_path / "run", device=rows), 5).devices[0].held_down == said


def test_figures_that_are_no_longer_read_are_not_shown_as_those_of_now(tmp_path: Path) -> None:
    rows = states(0, 3, temperature_c=70, memory_total_bytes=10**9) + ring(0, 60, 10.0)
    view = at(recorded(tmp_path / "run", device=rows), 60)
    assert (view.devices[0].temperature_c, view.devices[0].memory_total_bytes) == (None, 10**9)


@pytest.mark.parametrize(
    ("info", "rings", "noted", "told"),
    [
        (named("emulated"), 1, [("NVIDIA Other", 1000)], [("a device", None)]),
        (named("cuda"), 1, [], [("a device", None)]),
        (named("cuda"), 1, [("NVIDIA Other", 1000)], [("NVIDIA Other", 1.0)]),
        ({}, 2, [], [("GPU 0", None), ("GPU 1", None)]),
        ({}, 2, [("NVIDIA H200\x1b", 700_000), (None, None)], [("NVIDIA H200?", 700.0), ("GPU 1", None)]),
    ],
)
def test_devices_are_called_what_the_run_or_the_driver_calls_them(
    tmp_path: Path,
    info: Any,
    rings: int,
    noted: list[tuple[str | None, int | None]],
    told: list[tuple[str, float | None]],
) -> None:
    rows = (row for device in range(rings) for row in ring(device, 3, 10.0))
    folder = recorded(tmp_path / "run", info, device=sorted(rows, key=lambda row: row["t_ns"]))
    if noted:
        note_devices(folder, [SampledDevice(number, *each) for number, each in enumerate(noted)])
    view = at(folder, 3)
    assert [(device.name, device.power_limit_w) for device in view.devices] == told
    assert {device.emulated for device in view.devices} == {info.get("device", {}).get("kind") == "emulated"}


@pytest.mark.parametrize("content", ["", "[]", '{"devices": 1}', '{"devices": [{"number": "0"}, 7]}'])
def test_damaged_names_of_devices_are_none(tmp_path: Path, content: str) -> None:
    folder = recorded(tmp_path / "run", {}, device=ring(0, 3, 10.0))
    (folder / DEVICES).write_text(content)
    assert [device.name for device in at(folder, 3).devices] == ["GPU 0"]


def test_workers_show_what_they_did_lately(tmp_path: Path) -> None:
    of = steps(800, 5)  # 25 ms each: 20 s
    made = batches(of, workers=2, making_ms=30)
    for row in made[::2]:
        row |= {"skipped": 1, "skipped_samples": 32, "skipped_ns": 10 * MS}
    made = [row for row in made if not (row["worker"] == 1 and row["end_ns"] > START + 17 * S)]
    view = at(recorded(tmp_path / "run", step=of, batch=made), 20)
    one, other = view.makers
    assert view.made_in_training is False
    # A batch each 50 ms: 30 ms for it, and 10 ms for one that was let pass.
    assert one.busy_pct == pytest.approx(80, abs=0.5)
    assert other.busy_pct == pytest.approx(60, abs=0.5)
    assert (one.batch_ms, other.batch_ms) == (30, 30)
    assert one.reading_pct == pytest.approx(25)
    assert one.queued_pct == pytest.approx(10)
    assert one.quiet_s == pytest.approx(0.115, abs=0.03)
    assert other.quiet_s == pytest.approx(3, abs=0.1)
    assert len(one.history) == 60
    assert last(one.history, 1)[0] == pytest.approx(80, abs=1)
    assert math.isnan(other.history[-1])


def test_workers_of_a_new_epoch_go_on_under_their_numbers_and_a_validations_are_left_out(tmp_path: Path) -> None:
    of = steps(800, 5, per_epoch=400)
    made = batches(of, workers=2, making_ms=30)
    validation = [row | {"loader": 99, "worker": 5} for row in made[500:510]]
    folder = recorded(tmp_path / "run", step=of)
    for slot, epoch in enumerate((1, 2)):
        path = store(folder, BATCH, [row for row in made + validation if row["loader"] in (epoch, 99)])
        path.rename(path.with_name(f"{path.stem}.w{slot}.rec"))
    view = at(folder, 20)
    assert [maker.number for maker in view.makers] == [0, 1]
    assert view.epoch == 1
    assert last(view.makers[0].history[:-1], 15) == pytest.approx([60] * 15, abs=5)


def test_batches_made_in_the_training_are_no_workers(tmp_path: Path) -> None:
    of = steps(400, 30, begin=START)
    made = batches(of, workers=1, making_ms=29, ahead_ms=0)
    told = [{"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": 0}]
    view = at(recorded(tmp_path / "run", step=of, batch=made, event=told), 20)
    assert (view.made_in_training, view.makers) == (True, ())
    assert (view.workers, view.worker_busy_pct) == (0, None)


def test_the_host_shows_rates_of_the_last_seconds(tmp_path: Path) -> None:
    rows = looks(
        20,
        tree_cpu_ns=(10**15, 500 * MS),
        steal_pct=2.0,
        machine_busy_pct=60.0,
        machine_iowait_pct=5.0,
        read_chars_bytes=(0, 10**8),
        read_storage_bytes=(0, 10**7),
        throttled_us=(10**9, 20_000),
        tree_pss_bytes=3 * 10**9,
        tree_rss_bytes=9 * 10**9,
        memory_available_bytes=10**11,
        shm_used_bytes=10**8,
        shm_total_bytes=10**9,
    )
    host = at(recorded(tmp_path / "run", host=rows), 20).host
    assert host.tree_cpus == pytest.approx(2.5)
    assert last(host.cpus, 2) == [2.5, 2.5]
    assert (host.cpu_budget, host.steal_pct, host.iowait_pct, host.machine_busy_pct) == (4.0, 2.0, 5.0, 60.0)
    assert (host.read_bytes_s, host.storage_bytes_s) == (pytest.approx(5e8), pytest.approx(5e7))
    assert host.throttled_pct == pytest.approx(10)
    assert (host.memory_used_bytes, host.memory_available_bytes) == (3 * 10**9, 10**11)
    assert (host.shm_used_bytes, host.shm_total_bytes, host.machine_cpus) == (10**8, 10**9, os.cpu_count())
    assert last(host.machine_busy, 2) == [60.0, 60.0]


def test_a_sampler_that_was_given_no_job_tells_of_the_machine_alone_and_what_was_not_measured_is_nothing(
    tmp_path: Path,
) -> None:
    rows = looks(20, tree_cpu_ns=(0, 2 * MS), machine_busy_pct=60.0, tree_pss_bytes=10**7, read_chars_bytes=(0, 10))
    host = at(recorded(tmp_path / "run", {"watching": True}, host=rows), 20).host
    assert (host.machine_busy_pct, last(host.machine_busy, 1)) == (60.0, [60.0])
    assert (host.tree_cpus, host.cpus, host.memory_used_bytes, host.read_bytes_s) == (None, (), None, None)
    nothing = at(recorded(tmp_path / "nothing", host=[{"t_ns": START + S}, {"t_ns": START + 2 * S}]), 2).host
    assert {value for name, value in vars(nothing).items() if name != "machine_cpus"} == {None, ()}


def test_throughput_of_each_second_and_its_trend(tmp_path: Path) -> None:
    of = steps(1600, [5.0] * 1200 + [30.0] * 400)  # 40 steps of 32 samples a second, then 20
    view = at(recorded(tmp_path / "run", step=of), 50)
    assert last(view.rates, 4) == pytest.approx([640] * 4)
    assert view.rates[0] == pytest.approx(1280)
    assert len(view.rates) == 50
    assert view.samples_per_s == pytest.approx(640)
    assert view.trend_pct == pytest.approx(-40, abs=1)  # 10 s at 640; before, 20 s at 1280 and 10 s at 640
    assert view.steps_per_s == pytest.approx(20)
    assert view.recent_s == pytest.approx(10, abs=0.1)
    early = at(recorded(tmp_path / "early", step=steps(400, 5)), 10)
    assert early.trend_pct is None


def test_an_epochs_progress_is_told_from_the_epoch_before(tmp_path: Path) -> None:
    first = at(recorded(tmp_path / "first", step=steps(90, 5, per_epoch=200)), 2.25)
    assert (first.epoch, first.epoch_done, first.epoch_steps, first.epoch_left_s) == (0, 90, None, None)
    view = at(recorded(tmp_path / "run", step=steps(450, 5, per_epoch=200)), 11.25)
    assert (view.epoch, view.epoch_done, view.epoch_steps, view.epoch_estimated) == (2, 50, 200, True)
    assert view.epoch_left_s == pytest.approx(150 * 0.025, rel=0.02)
    assert view.left_s is None
    longer = [row | {"epoch": min(row["epoch"], 1)} for row in steps(450, 5, per_epoch=200)]
    beyond = at(recorded(tmp_path / "longer", step=longer), 11.25)
    assert (beyond.epoch_done, beyond.epoch_steps, beyond.epoch_estimated) == (250, None, False)


def test_a_plan_is_known_from_the_first_step(tmp_path: Path) -> None:
    info = ON_GPUS | {"plan": {"steps": 400, "steps_per_epoch": 200}}
    view = at(recorded(tmp_path / "run", info, step=steps(100, 5, per_epoch=200)), 2.5)
    assert (view.planned_steps, view.epoch_steps, view.epoch_estimated) == (400, 200, False)
    assert view.left_s == pytest.approx(7.5, rel=0.02)
    assert view.epoch_left_s == pytest.approx(2.5, rel=0.02)


def test_every_rank_that_was_recorded_here_is_shown(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", step=steps(400, 5))
    store(folder, STEP, steps(390, 15), 1, os.getpid())
    store(folder, STEP, steps(3, 15), 1, os.getpid() + 10_000_000)  # a process of the same rank that gave up
    describe_process(folder, 1, os.getpid(), {"device": ON_GPUS["device"]})
    view = at(folder, 14)
    assert (view.rank, view.ranks) == (0, 2)
    one, other = view.rank_views
    assert (one.rank, one.steps, other.rank, other.steps) == (0, 400, 1, 390)
    assert one.samples_per_s == pytest.approx(1280)
    assert other.samples_per_s == pytest.approx(32 / 0.035)
    assert one.shares == view.shares
    assert other.shares["input"] > one.shares["input"]


def test_before_the_first_step_devices_and_host_are_shown(tmp_path: Path) -> None:
    rows = {"device": ring(0, 5, 50.0), "host": looks(5, tree_cpu_ns=(0, 200 * MS))}
    view = at(recorded(tmp_path / "run", **rows), 5)
    assert (view.state, view.steps, view.verdict, view.quiet_s) == ("starting", 0, None, None)
    assert last(view.devices[0].busy_pct, 1) == [50]
    assert view.host.tree_cpus == pytest.approx(1)
    attached = {"attach": {"pid": 1}, "device": {"kind": "cuda", "title": "GPU", "count": 1}}
    for number, info in enumerate(({"watching": True}, attached)):
        watched = at(recorded(tmp_path / f"watched-{number}", info, **rows), 5)
        assert watched.state == "watching"
        assert [device.name for device in watched.devices] == ["GPU 0"]


def test_a_pool_of_threads_works_as_long_as_its_stages_say(tmp_path: Path) -> None:
    of = steps(800, 5)
    stages = {"read_ns": 5 * MS, "decode_ns": 10 * MS, "transform_ns": 4 * MS, "collate_ns": MS}
    pool = {"threads": 2, "worker": 0} | stages
    made = [row | pool for row in batches(of, workers=1, making_ms=25)]
    view = at(recorded(tmp_path / "run", step=of, batch=made), 20)
    assert view.makers[0].busy_pct == pytest.approx(40)  # 20 ms of work in 25 ms of two threads
    assert view.makers[0].reading_pct == pytest.approx(10)
