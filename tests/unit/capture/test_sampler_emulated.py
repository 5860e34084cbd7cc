"""Utilisation of an emulated device, from its span records."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.sampler.devices import MARGIN_NS, WINDOW_NS, EmulatedSource, RunDevice, busy_ns
from whyidle.capture.sampler.row import Row
from whyidle.devices.conditions import Conditions
from whyidle.record.schema import DEVICE, NOT_MEASURED, SPAN, STEP, SpanKind
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
    names = [f.name for f in DEVICE.fields[1:]]
    return [{n: v for n, v in zip(names, row, strict=True) if v != NOT_MEASURED and v == v} for row in rows]


def at(windows: float) -> int:
    return START + round(windows * WINDOW_NS) + MARGIN_NS


def utilisation(rows: list[Row], device: int = 0) -> list[float]:
    return [r["utilisation_pct"] for r in named(rows) if "utilisation_pct" in r and r["device"] == device]


def test_windows_as_a_driver_would_show_them(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    emulation.span(0.0, 0.504)
    emulation.span(1.2, 1.4)
    emulation.span(1.3, 1.5, stream=1)
    emulation.span(2.0, 2.9, what=SpanKind.COPY)
    emulation.span(2.9, 4.0)
    source = source_of(tmp_path, 1, 16_000)
    rows = named(source.sample(at(4)))
    assert [r["utilisation_pct"] for r in rows[:4]] == [50, 30, 10, 100]
    assert [r["t_ns"] for r in rows[:4]] == [START + (i + 1) * WINDOW_NS for i in range(4)]
    assert {r["window_ns"] for r in rows[:4]} == {WINDOW_NS}
    # Memory in use is not known before a step told.
    assert rows[4:] == [{"t_ns": at(4), "device": 0, "memory_total_bytes": 16_000}]


def test_a_window_waits_until_its_spans_are_surely_recorded(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    source = source_of(tmp_path, 1, None)
    assert utilisation(source.sample(at(1) - 1)) == []
    emulation.span(0.5, 1.0)
    assert utilisation(source.sample(at(1), last=True)) == [50]


def test_looks_at_most_once_a_second_unless_it_is_the_last(tmp_path: Path) -> None:
    source = source_of(tmp_path, 1, None)
    assert len(utilisation(source.sample(at(2)))) == 2
    assert source.sample(at(4)) == []
    assert len(utilisation(source.sample(at(5), last=True))) == 3


def test_devices_are_kept_apart_and_idle_ones_read_zero(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    emulation.span(0, 1, device=2)
    source = source_of(tmp_path, 2, None)
    rows = source.sample(at(2))
    assert [utilisation(rows, d) for d in range(3)] == [[0, 0], [0, 0], [100, 0]]


def test_memory_is_that_of_the_newest_step(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    emulation.span(0, 1)
    for memory in (100, 300, NOT_MEASURED):
        emulation.step(memory)
    source = source_of(tmp_path, 1, 1000)
    assert named(source.sample(at(1)))[-1]["memory_used_bytes"] == 300
    emulation.step(200)
    assert named(source.sample(at(9)))[-1] == {
        "t_ns": at(9),
        "device": 0,
        "memory_used_bytes": 200,
        "memory_total_bytes": 1000,
    }


def test_conditions_are_said_as_nvml_would_say_them(tmp_path: Path) -> None:
    conditions = Conditions(sm_clock=0.7, throttle_reasons=0x40, pcie_generation=3, pcie_width=8, processes=2)
    source = source_of(tmp_path, 1, 1000, conditions)
    states = [named(source.sample(at(windows)))[-1] for windows in (6, 18)]
    constant = {
        "device": 0,
        "memory_total_bytes": 1000,
        "sm_clock_mhz": 1050,
        "sm_clock_max_mhz": 1500,
        "throttle_reasons": 0x40,
        "power_capped_ns": 0,
        "pcie_generation": 3,
        "pcie_width": 8,
        "pcie_max_generation": 4,
        "pcie_max_width": 16,
        "processes": 2,
    }
    moments = [at(6), at(18)]
    assert states == [constant | {"t_ns": t, "thermal_ns": t - START} for t in moments]


@pytest.mark.parametrize(
    ("reasons", "counting"),
    [(0, set()), (0x4, {"power_capped_ns"}), (0x20, {"thermal_ns"}), (0x64, {"power_capped_ns", "thermal_ns"})],
)
def test_time_held_down_is_counted_of_what_holds_it_down(tmp_path: Path, reasons: int, counting: set[str]) -> None:
    source = source_of(tmp_path, 1, None, Conditions(throttle_reasons=reasons))
    state = named(source.sample(at(6)))[-1]
    assert {name for name in ("power_capped_ns", "thermal_ns") if state[name] > 0} == counting


def test_kernels_of_others_count_in_the_utilisation_while_the_trainings_do_not_run(tmp_path: Path) -> None:
    emulation = Emulation(tmp_path)
    emulation.span(0, 1)
    emulation.span(1, 1.5)
    source = source_of(tmp_path, 1, None, Conditions(others=0.4, processes=2))
    assert utilisation(source.sample(at(3))) == [100, 70, 40]


def test_conditions_come_from_run_json_if_they_are_understood() -> None:
    conditions = Conditions(sm_clock=0.5, others=0.25)
    told = {"device": {"kind": "emulated", "conditions": conditions.describe()}}
    assert RunDevice.of(told).conditions == conditions
    assert RunDevice.of({"device": {"kind": "emulated", "conditions": {"sm_clock": None}}}).conditions is None
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
