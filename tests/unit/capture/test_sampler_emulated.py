"""Utilisation of an emulated device, from its span records."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.devices import MARGIN_NS, WINDOW_NS, Devices, EmulatedSource, RunDevice, busy_ns
from whyidle.devices.conditions import Conditions
from whyidle.record.run import create_run
from whyidle.record.schema import DEVICE, NOT_MEASURED, SPAN, STEP, Row, SpanKind
from whyidle.record.segment import RecordWriter

START = 50_000_000_000
SPANS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 60)), max_size=25)
EDGES = st.lists(st.integers(0, 200), min_size=2, max_size=12, unique=True).map(sorted)


@given(SPANS, EDGES)
def test_busy_time_is_the_covered_time(spans: list[tuple[int, int]], edges: list[int]) -> None:
    """Against counting every covered unit of time."""
    covered = {t for begin, length in spans for t in range(begin, begin + length)}
    expected = [len(covered & set(range(a, b))) for a, b in itertools.pairwise(edges)]
    begin = np.array([b for b, _ in spans], dtype=np.int64)
    end = np.array([b + length for b, length in spans], dtype=np.int64)
    assert busy_ns(begin, end, np.array(edges, dtype=np.int64)).tolist() == expected


class Emulation:
    """A run folder with one writer of spans and one of steps."""

    def __init__(self, folder: Path) -> None:
        self.spans = RecordWriter(folder, SPAN)
        self.steps = RecordWriter(folder, STEP)

    def span(self, begin: float, end: float, device: int = 0, stream: int = 0, what: int = SpanKind.COMPUTE) -> None:
        """Begin and end in windows after START."""
        self.spans.append(device, stream, what, START + round(begin * WINDOW_NS), START + round(end * WINDOW_NS), 0)
        self.spans.flush()

    def step(self, memory_bytes: int) -> None:
        body = STEP.missing()
        body[[f.name for f in STEP.fields].index("memory_bytes") - 1] = memory_bytes
        self.steps.append(*body)
        self.steps.flush()


def source_of(
    folder: Path, count: int, memory_bytes: int | None, conditions: Conditions | None = None
) -> EmulatedSource:
    return EmulatedSource(folder, RunDevice("emulated", (), count, memory_bytes, conditions), START)


def named(rows: list[Row]) -> list[dict[str, float]]:
    """Only what was measured."""
    return [DEVICE.measured(row) for row in rows]


def at(windows: float) -> int:
    return START + round(windows * WINDOW_NS) + MARGIN_NS


def utilisation(rows: list[Row], device: int = 0) -> list[float]:
    return [r["utilisation_pct"] for r in named(rows) if "utilisation_pct" in r and r["device"] == device]


COPY = SpanKind.COPY
OTHERS = Conditions(others=0.4, processes=2)


@pytest.mark.parametrize(
    ("devices", "spans", "conditions", "seen"),
    [
        (
            1,
            [(0.0, 0.504), (1.2, 1.4), (1.3, 1.5, 0, 1), (2.0, 2.9, 0, 0, COPY), (2.9, 4.0)],
            None,
            [[50, 30, 10, 100]],
        ),
        # Devices are kept apart, and idle ones read zero; one more than was said is noticed when it computes.
        (2, [(0, 1, 2)], None, [[0, 0, 0, 0], [0, 0, 0, 0], [100, 0, 0, 0]]),
        # Kernels of other processes count while the training's do not run.
        (1, [(0, 1), (1, 1.5)], OTHERS, [[100, 70, 40, 40]]),
    ],
)
def test_windows_as_a_driver_would_show_them(
    tmp_path: Path, devices: int, spans: list[tuple[Any, ...]], conditions: Conditions | None, seen: list[list[int]]
) -> None:
    emulation = Emulation(tmp_path)
    for span in spans:
        emulation.span(*span)
    rows = source_of(tmp_path, devices, 16_000, conditions).sample(at(4))
    assert [utilisation(rows, device) for device in range(len(seen))] == seen
    windows = [row for row in named(rows) if "utilisation_pct" in row]
    assert [row["t_ns"] for row in windows[:4]] == [START + (i + 1) * WINDOW_NS for i in range(4)]
    assert {row["window_ns"] for row in windows} == {WINDOW_NS}
    # Memory in use is not known before a step told.
    state = {"t_ns": at(4), "device": 0, "memory_total_bytes": 16_000}
    (first,) = [row for row in named(rows) if "utilisation_pct" not in row and row["device"] == 0]
    assert first == state if conditions is None else first.items() >= state.items()


def test_windows_wait_until_their_spans_are_recorded_and_for_a_second_unless_it_is_the_last_look(
    tmp_path: Path,
) -> None:
    emulation = Emulation(tmp_path)
    source = source_of(tmp_path, 1, None)
    assert utilisation(source.sample(at(1) - 1)) == []
    emulation.span(0.5, 1.0)
    assert source.sample(at(4)) == []
    assert utilisation(source.sample(at(5), last=True)) == [50, 0, 0, 0, 0]


def test_memory_is_that_of_the_newest_step(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    emulation.span(0, 1)
    for memory in (100, 300, NOT_MEASURED):
        emulation.step(memory)
    source = source_of(tmp_path, 1, 1000)
    assert named(source.sample(at(1)))[-1]["memory_used_bytes"] == 300
    emulation.step(200)
    state = {"t_ns": at(9), "device": 0, "memory_used_bytes": 200, "memory_total_bytes": 1000}
    assert named(source.sample(at(9)))[-1] == state


@pytest.mark.parametrize(
    ("reasons", "counting"),
    [(0, set()), (0x4, {"power_capped_ns"}), (0x40, {"thermal_ns"}), (0x64, {"power_capped_ns", "thermal_ns"})],
)
def test_conditions_are_said_as_nvml_would_say_them(tmp_path: Path, reasons: int, counting: set[str]) -> None:
    conditions = Conditions(sm_clock=0.7, throttle_reasons=reasons, pcie_generation=3, pcie_width=8, processes=2)
    source = source_of(tmp_path, 1, 1000, conditions)
    constant = {"device": 0, "memory_total_bytes": 1000, "sm_clock_mhz": 1050, "sm_clock_max_mhz": 1500}
    constant |= {"throttle_reasons": reasons, "pcie_generation": 3, "pcie_width": 8}
    constant |= {"pcie_max_generation": 4, "pcie_max_width": 16, "processes": 2}
    for t in (at(6), at(18)):
        held = {name: t - START if name in counting else 0 for name in ("power_capped_ns", "thermal_ns")}
        assert named(source.sample(t))[-1] == constant | held | {"t_ns": t}


def test_the_device_that_run_json_names_is_followed_and_that_is_said(tmp_path: Path) -> None:
    conditions = asdict(Conditions(sm_clock=0.5))
    device = {"kind": "emulated", "title": "a device", "memory_bytes": 1000, "conditions": conditions}
    folder, said = create_run(tmp_path / "run", {"device": device}), []
    Emulation(folder).span(0.5, 1.0)
    *windows, state = named(Devices(folder, said.append, START).sample(at(2)))
    assert [window["utilisation_pct"] for window in windows] == [50, 0]
    assert (state["memory_total_bytes"], state["sm_clock_mhz"]) == (1000, 750)
    assert said == ["Accelerator figures are those of an emulated device, computed from its records."]


def test_conditions_come_from_run_json_if_they_are_understood() -> None:
    conditions = Conditions(sm_clock=0.5, others=0.25)
    told = {"device": {"kind": "emulated", "conditions": asdict(conditions)}}
    assert RunDevice.of(told).conditions == conditions
    for device in (None, 7, {"kind": 3}, {"kind": "emulated", "conditions": {"sm_clock": 7}}):
        assert RunDevice.of({"device": device}) == RunDevice()
    assert RunDevice.of({"watching": True}) == RunDevice("cuda")
    assert RunDevice.of({"device": {"kind": "emulated"}}).conditions is None


def test_a_file_that_is_no_record_file_yet_is_read_later(tmp_path: Path) -> None:
    half = tmp_path / "span-0-1.rec"
    half.write_bytes(b"")
    source = source_of(tmp_path, 1, None)
    assert utilisation(source.sample(at(1))) == [0]
    half.unlink()
    Emulation(tmp_path).span(9, 10)
    assert utilisation(source.sample(at(10)))[-1] == 100


@pytest.mark.parametrize("polls", [[6, 12, 18, 24], [24], [3, 4.5, 20, 24]])
def test_the_rhythm_of_looking_does_not_change_what_is_seen(tmp_path: Path, polls: list[float]) -> None:
    rng = np.random.default_rng(7)
    spans = [(b, b + rng.uniform(0.01, 1.5)) for b in np.sort(rng.uniform(0, 24, 40))]
    emulation = Emulation(tmp_path)
    source = source_of(tmp_path, 1, None)
    seen: list[float] = []
    for poll in polls:
        # Recorded no earlier than it must be: when it begins.
        while spans and spans[0][0] <= poll:
            emulation.span(*spans.pop(0))
        seen += utilisation(source.sample(at(poll), last=True))
    records = emulation.spans.path
    spans_seen = np.fromfile(records, dtype=SPAN.dtype, offset=4096, count=emulation.spans.stored)
    edges = START + np.arange(25) * WINDOW_NS
    truth = np.rint(100 * busy_ns(spans_seen["begin_ns"], spans_seen["end_ns"], edges) / WINDOW_NS)
    assert seen == truth.tolist()
