"""What plants faults of host and device, on a virtual clock; and the truth of what would not have been needed."""

from __future__ import annotations

import gc
import itertools
import time

import pytest

from whyidle.devices.clock import VirtualClock
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle_bench.cases.accelerator import MEMORY, Computing
from whyidle_bench.cases.case import COLD, GARBAGE, LAUNCH, RETRY, Case, Plan, PlannedDevice, PlannedHost
from whyidle_bench.cases.host import HostWork, SlowFile
from whyidle_bench.cases.registry import CASES
from whyidle_bench.cases.truth import EngineSpan, Stamp, lost, true_share

MS = 1_000_000
Told = list[tuple[str, int, int, str]]


def device(told: list[tuple[int, int]], retry_ms: int = 5) -> EmulatedDevice:
    spec = EmulatedSpec("test", "Test", 16 * 10**9, 10e9, 5e9, launch_latency_ns=0, retry_ns=retry_ms * MS)
    return EmulatedDevice(
        spec, VirtualClock(1000 * MS), sink=lambda _d, _s, _what, begin, end, _amount: told.append((begin, end))
    )


def share(plan: Plan, cause: str, part: str, stamps: list[Stamp], spans: list[EngineSpan], tag: str = "every") -> float:
    case = Case("made", (cause,), "mild", plan, part, tag)
    return true_share(stamps, spans, (0, 100), case)[cause]


def test_what_a_slow_clock_takes_longer_is_lost_and_nothing_else() -> None:
    spans = [EngineSpan("compute", 0, 40), EngineSpan("copying", 40, 60)]
    assert lost(spans, Conditions(sm_clock=0.5)) == [EngineSpan("lost", 20, 40)]
    assert lost(spans, Conditions(others=0.75)) == [EngineSpan("lost", 10, 40)]
    assert lost(spans, Conditions(pcie_generation=3)) == [EngineSpan("lost copying", 50, 60)]
    assert lost(spans, Conditions(throttle_reasons=4)) == []


def test_the_truth_of_a_fault_of_the_device_is_what_it_lost() -> None:
    spans = [EngineSpan("compute", 0, 40), EngineSpan("copying", 40, 60), EngineSpan("compute", 60, 100)]
    hot = Plan(accelerator=PlannedDevice(Conditions(sm_clock=0.75)))
    assert share(hot, "device.throttled", "lost", [], spans) == pytest.approx(0.2)
    # Half of the copy is the link's; what of that lies behind computing costs nothing.
    slow = Plan(accelerator=PlannedDevice(Conditions(pcie_generation=3)))
    assert share(slow, "copy.link", "lost copying", [], spans) == pytest.approx(0.1)
    beside = [*spans, EngineSpan("compute", 50, 55)]
    assert share(slow, "copy.link", "lost copying", [], beside) == pytest.approx(0.05)
    # A span that the training itself stamps as not needed counts before the device's own.
    first = [Stamp("lost", 60, 80)]
    assert share(Plan(), "device.shape_churn", "lost", first, spans) == pytest.approx(0.2)


def test_launches_one_by_one_leave_gaps_and_say_how_long_they_took(monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[int, int]] = []
    told: Told = []
    emulated = device(spans)
    monkeypatch.setattr(
        "whyidle_bench.cases.accelerator.burn_ms",
        lambda ms: emulated.clock.wait_until(emulated.clock.now() + round(ms * MS)),
    )
    computing = Computing(emulated, PlannedDevice(launch_us=300.0), lambda *each: told.append(each))
    computing.part(2.0, 10)
    assert [end - begin for begin, end in spans] == [MS // 5] * 10
    assert all(later - end == MS // 10 for (_, end), (later, _) in itertools.pairwise(spans))
    assert [(what, end - begin, tag) for what, begin, end, tag in told] == [("host", 3 * MS, LAUNCH)]


def test_only_the_first_step_of_a_shape_takes_longer() -> None:
    spans: list[tuple[int, int]] = []
    told: Told = []
    computing = Computing(device(spans), PlannedDevice(first_ms=30.0), lambda *each: told.append(each))
    for shape in ((4, 16), (4, 17), (4, 16), (4, 17)):
        computing.begin(shape)
        computing.part(20.0, 1)
    assert [end - begin for begin, end in spans] == [ms * MS for ms in (30, 20, 30, 20, 20, 20)]
    assert [(what, begin, end) for what, begin, end, _ in told] == [("lost", *spans[0]), ("lost", *spans[2])]


def test_each_planned_step_finds_no_memory_and_waits_for_the_allocator() -> None:
    told: Told = []
    emulated = device([], retry_ms=7)
    plan = PlannedDevice(retry_ms=7.0, retry_every=2, retry_from=3)
    computing = Computing(emulated, plan, lambda *each: told.append(each))
    for _ in range(8):
        computing.begin((4, 16))
    assert emulated.allocation_retries() == 3
    assert [end - begin for _, begin, end, _ in told] == [ms * MS for ms in (0, 0, 0, 7, 0, 7, 0, 7)]
    assert {(what, tag) for what, _, _, tag in told} == {("host", RETRY)}
    assert MEMORY < emulated.spec.memory_bytes < 2 * MEMORY


@pytest.mark.parametrize(("planned", "collection_ms"), [(0.13, 40), (0.3, 3), (0.6, 90)])
def test_collections_take_the_share_that_is_planned(
    planned: float, collection_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock(1000 * MS)
    monkeypatch.setattr(time, "monotonic_ns", clock.now)
    monkeypatch.setattr(gc, "collect", lambda: clock.wait_until(clock.now() + collection_ms * MS))
    told: Told = []
    work = HostWork(PlannedHost(collecting=planned, objects=10), lambda *each: told.append(each))
    begin = clock.now()
    for _ in range(100):
        clock.wait_until(clock.now() + 20 * MS)
        work.step()
    took = sum(end - begin for _, begin, end, _ in told)
    assert {(what, tag) for what, _, _, tag in told} == {("host", GARBAGE)}
    assert took / (clock.now() - begin) == pytest.approx(planned, abs=0.02)


def test_a_slow_file_waits_once_and_keeps_what_is_written() -> None:
    file = SlowFile(30.0)
    begin = time.monotonic()
    file.write(b"a")
    first = time.monotonic() - begin
    file.write(b"b")
    assert first >= 0.03
    assert file.getvalue() == b"ab"


def test_compounds_have_two_causes_each_with_its_part_and_tags_that_differ() -> None:
    compounds = [case for case in CASES.values() if case.kind == "compound"]
    assert len(compounds) >= 8
    for case in compounds:
        first, second = case.planted
        assert first.cause != second.cause
        assert (first.part, first.hit) != (second.part, second.hit)
        assert first.share is not None
        assert second.share is not None
        if first.part == second.part == "fetch":
            # No fetch counts for both.
            tags = ("", "first", "slow", COLD)
            for tag in tags:
                hits = [hit(tag) if callable(hit) else hit in ("every", tag) for hit in (first.hit, second.hit)]
                assert sum(hits) < 2, (case.name, tag)
