"""Planted faults and sweeps: what is planted is data, and the truth about it is arithmetic on stamps."""

from __future__ import annotations

import os
from collections import Counter

import psutil
import pytest

from support.fakes.driver import wait_for
from whyidle.analyse.causes.diagnosis import CODES
from whyidle.analyse.run.stall_breakdown import TERMS
from whyidle.devices.conditions import Conditions
from whyidle.errors import WhyidleError
from whyidle_bench.batch_sizes import DEVICE
from whyidle_bench.cases.case import (
    COLD,
    EVERY,
    FIRST,
    GROWN,
    PARTS,
    PLANTED,
    RETRY,
    SEVERITIES,
    SLOW,
    Case,
    Data,
    Plan,
    PlannedDevice,
    PlannedStep,
    Start,
)
from whyidle_bench.cases.loop import device_of
from whyidle_bench.cases.machine import foreign_load, unmet
from whyidle_bench.cases.registry import CASES, cases
from whyidle_bench.cases.truth import EngineSpan, Stamp, exposed_ns, lost, true_share
from whyidle_bench.sweeps import khosravi
from whyidle_bench.sweeps.registry import SWEEPS, sweeps
from whyidle_bench.sweeps.sweep import Sweep, steps_of
from whyidle_bench.sweeps.truth import true_terms


def test_each_cause_is_planted_in_three_severities_of_which_the_worse_costs_more_beside_controls() -> None:
    faults = cases(kinds=("fault",))
    assert set(CODES) - {cause for case in faults for cause in case.causes} == {"rank.exchange"}
    for variant in {case.name.rpartition("-")[0] for case in faults}:
        of_variant = [case for case in faults if case.name.rpartition("-")[0] == variant]
        assert [case.severity for case in of_variant] == list(SEVERITIES)
        bands = [case.share or (0.0, 0.0) for case in of_variant]
        assert all(0 < low < high < 1 for low, high in bands), variant
        assert bands == sorted(bands), variant
    controls = cases(kinds=("control",))
    assert len(controls) >= 12
    assert Counter(case.plan.device for case in controls)["cpu"] >= 3
    assert not any(case.planted for case in controls)


def test_every_plan_can_be_run_and_judged() -> None:
    for case in CASES.values():
        plan = case.plan
        assert plan.steps > 35, f"{case.name}: a verdict needs 30 steps after the warm-up"
        assert plan.device in ("emulated", "cpu")
        assert plan.loader.workers or not (plan.loader.threads or plan.loader.start_ms or plan.loader.cpus)
        for number, planted in enumerate(case.planted):
            assert planted.part in PARTS, case.name
            assert case.steps_hit(number), f"{case.name}: {planted.cause} hits no step"
            assert max(case.steps_hit(number)) < plan.steps
    assert len({sweep.cause for sweep in SWEEPS.values()}) == 11


def test_the_steps_that_a_fault_hits_are_known_beforehand() -> None:
    slow = Case("a", ("input.straggler",), "mild", Plan(Data(slow_every=20, slow_first=8), batches=50), hit=SLOW)
    assert slow.steps_hit() == {8, 28, 48}
    first = Case("b", ("input.worker_restart",), "mild", Plan(epochs=3, batches=10), hit=FIRST)
    assert first.steps_hit() == {0, 10, 20}
    gaps = Plan(step=PlannedStep(host_ms=1, host_every=10), batches=25)
    tenth = Case("c", ("host.step_gap",), "mild", gaps, hit=PLANTED)
    assert tenth.steps_hit() == {9, 19}
    assert len(Case("d", ("input.serial",), "mild", Plan(batches=7)).steps_hit()) == 7
    # What is planted to grow begins to after a while and is all there at the end.
    plan = Plan(step=PlannedStep(grows_ms=10), batches=100)
    assert [plan.grown(step) for step in (0, 15, 100)] == [0, 0, 1]
    assert 0 < plan.grown(16) < plan.grown(50) < plan.grown(99)
    assert Case("e", ("run.slowing",), "mild", plan, hit=GROWN).steps_hit() == frozenset(range(16, 100))


def test_cases_and_sweeps_are_chosen_by_name_by_cause_and_by_kind() -> None:
    assert {case.causes[0] for case in cases(["input.storage"], ["fault"])} == {"input.storage"}
    assert (len(cases()), sweeps()) == (len(CASES), list(SWEEPS.values()))
    assert [sweep.name for sweep in sweeps(["padding", "accounting"])] == ["accounting", "padding"]
    with pytest.raises(WhyidleError, match=r"unknown case 'pading'\. Did you mean padding"):
        sweeps(["padding", "pading"])
    with pytest.raises(ValueError, match="no whole number of batches of 7"):
        steps_of(768, 7)
    assert unmet(()) is None
    assert unmet(("cpus",)) == ("needs at least two CPUs" if len(os.sched_getaffinity(0)) == 1 else None)


def test_what_a_fault_costs_is_its_time_with_the_device_idle() -> None:
    stamps = [Stamp("fetch", 0, 30, FIRST), Stamp("fetch", 40, 60), Stamp("host", 60, 90)]
    spans = [EngineSpan("compute", 20, 50), EngineSpan("compute", 70, 80)]
    # The device computes from 20 to 50 and from 70 to 80: of the fetches 0-20 and 50-60 are left.
    assert exposed_ns(stamps, spans, 0, 100, "fetch", EVERY) == 30
    assert exposed_ns(stamps, spans, 0, 100, "fetch", FIRST) == 20
    assert exposed_ns(stamps, spans, 0, 100, "fetch", lambda tag: tag != FIRST) == 10
    assert exposed_ns(stamps, spans, 0, 100, "host", EVERY) == 20
    assert exposed_ns(stamps, spans, 10, 55, "fetch", EVERY) == 15
    # A copy and a boundary count more than a fetch that lasts meanwhile.
    stamps, spans = [Stamp("fetch", 0, 100), Stamp("boundary", 50, 70)], [EngineSpan("copying", 10, 30)]
    assert [exposed_ns(stamps, spans, 0, 100, part, EVERY) for part in ("fetch", "copying", "boundary")] == [60, 20, 20]
    # The shares of a compound do not overlap; what lies before the first step is a share of the whole run.
    causes = ("input.too_few_workers", "input.worker_restart")
    case = Case("both", causes, "both", Plan(), ("fetch", "fetch"), (lambda tag: tag != FIRST, FIRST))
    stamps = [Stamp("fetch", 0, 40, FIRST), Stamp("fetch", 50, 60)]
    shares = true_share(stamps, [EngineSpan("compute", 40, 50)], (0, 100), case)
    assert shares == {causes[0]: pytest.approx(0.1), causes[1]: pytest.approx(0.4)}
    case = Case("start", ("run.startup",), "mild", Plan(start=Start(index_s=3)), part="start")
    stamps = [Stamp("start", 0, 30), Stamp("fetch", 30, 40)]
    assert true_share(stamps, [], (50, 100), case, (0, 100)) == {"run.startup": pytest.approx(0.3)}


def test_busy_processes_of_others_are_no_children_and_end_with_the_training() -> None:
    def busy() -> set[int]:
        found = [
            process
            for process in psutil.process_iter(["cmdline", "ppid"])
            if any(part.endswith("cases/busy.py") for part in process.info["cmdline"] or ())
            and process.info["cmdline"][0] != "/bin/sh"
        ]
        return {process.pid for process in found if process.info["ppid"] != os.getpid()}

    before = busy()
    with foreign_load(2):
        wait_for(lambda: len(busy() - before) == 2)
        mine = {child.pid for child in psutil.Process().children(recursive=True)}
        assert not mine & busy()
    wait_for(lambda: not busy() - before)


def share(plan: Plan, cause: str, part: str, stamps: list[Stamp], spans: list[EngineSpan], tag: str = "every") -> float:
    case = Case("made", (cause,), "mild", plan, part, tag)
    return true_share(stamps, spans, (0, 100), case)[cause]


def test_the_truth_of_a_fault_of_the_device_is_what_it_lost() -> None:
    spans = [EngineSpan("compute", 0, 40), EngineSpan("copying", 40, 60)]
    assert lost(spans, Conditions(sm_clock=0.5)) == [EngineSpan("lost", 20, 40)]
    assert lost(spans, Conditions(others=0.75)) == [EngineSpan("lost", 10, 40)]
    assert lost(spans, Conditions(pcie_generation=3)) == [EngineSpan("lost copying", 50, 60)]
    assert lost(spans, Conditions(throttle_reasons=4)) == []
    spans.append(EngineSpan("compute", 60, 100))
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


def test_compounds_have_two_causes_each_with_its_part_and_tags_that_differ() -> None:
    compounds = [case for case in CASES.values() if case.kind == "compound"]
    assert len(compounds) >= 8
    for case in compounds:
        first, second = case.planted
        assert first.cause != second.cause
        assert (first.part, first.hit) != (second.part, second.hit)
        if first.part == second.part == "fetch":
            # No fetch counts for both.
            tags = ("", "first", "slow", COLD)
            for tag in tags:
                hits = [hit(tag) if callable(hit) else hit in ("every", tag) for hit in (first.hit, second.hit)]
                assert sum(hits) < 2, (case.name, tag)


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=lambda sweep: sweep.name)
def test_each_size_is_a_training_that_can_be_judged(sweep: Sweep) -> None:
    plans = [sweep.plan(size) for size in sweep.sizes]
    assert len(plans) >= 2
    assert [plan.loader.batch for plan in plans] == list(sweep.sizes) == sorted(sweep.sizes)
    assert all(plan.steps >= 40 for plan in plans), "a verdict takes 30 steps after the warm-up"
    assert {plan.device for plan in plans} == {"emulated"}
    described = device_of(plans[0]).describe()
    assert {name: described[name] for name in DEVICE} == DEVICE
    assert (sweep.name.split(".")[0], sweep.grew in {*TERMS, None}) == (sweep.cause, True)
    counts, steps = [plan.steps * plan.loader.batch for plan in plans], [plan.steps for plan in plans]
    accounting = sweep.cause == "accounting"  # which alone processes more samples at a larger size
    assert (len(set(counts)), counts) == (len(plans) if accounting else 1, sorted(counts))
    assert not accounting or len(set(steps)) == 1
    few = [plan.batches < plan.loader.workers for plan in plans]
    assert few == ([False, True] if sweep.cause == "fewer_batches_than_workers" else [False] * len(few))


def test_khosravis_nets_are_below_the_loaders_floor_but_for_the_fifth() -> None:
    # The published table: seconds of an epoch with augmentation are the larger of computing and augmenting.
    with_augmentation = {"cnn1": 6, "cnn2": 6, "cnn3": 6, "cnn4": 6, "cnn5": 16}
    for net, seconds in with_augmentation.items():
        assert max(khosravi.DEVICE_S[net], khosravi.LOADER_S) == seconds
        sweep = next(s for s in SWEEPS.values() if s.name.endswith(net))
        assert sweep.cause == ("saturated" if net == "cnn5" else "loader_floor")
        for size in sweep.sizes:
            plan = sweep.plan(size)
            slower = max(plan.data.sleep_ms, plan.step.compute_ms / size)
            assert slower == pytest.approx(khosravi.sample_ms(seconds))


def test_true_terms_are_exposed_time_over_the_samples_that_were_computed() -> None:
    stamps = [
        Stamp("fetch", -40_000, -30_000),
        Stamp("fetch", 0, 10_000),
        Stamp("host", 30_000, 36_000),
        Stamp("fetch", 36_000, 50_000),
        Stamp("sync", 60_000, 75_000),
    ]
    # Batches of 4: one is computed before the window, two within it.
    spans = [
        EngineSpan("compute", -20_000, 0),
        EngineSpan("compute", 10_000, 32_000),
        EngineSpan("copying", 48_000, 52_000),
    ]
    spans += [EngineSpan("compute", 52_000, 70_000)]
    found = true_terms(stamps, spans, (0, 80_000), 4)
    # Of 80 µs the device computes 22 + 18, copies 4, waits for data 10 + 12, the loop works 4, waits 5 after computing,
    # and does in the last 5 what nothing tells.
    expected = {"compute": 40, "input": 22, "copy": 4, "sync": 5, "host": 9, "boundary": 0, "total": 80}
    assert found == {term: pytest.approx(us / 8) for term, us in expected.items()}


def test_a_retry_of_the_allocator_is_within_the_steps_computation() -> None:
    stamps = [Stamp("fetch", 0, 10_000), Stamp("host", 10_000, 30_000, RETRY), Stamp("host", 90_000, 95_000)]
    found = true_terms(stamps, [EngineSpan("compute", 30_000, 90_000)], (0, 100_000), 2)
    assert (found["compute"], found["host"], found["total"]) == (40.0, 5.0, 50.0)
    assert true_terms([Stamp("fetch", 0, 10)], [EngineSpan("copying", 0, 10)], (0, 10), 4) is None
    # Steps that are computed in several pieces are as many samples.
    stamps = [Stamp("fetch", 0, 10_000), Stamp("fetch", 10_000, 20_000)]
    pieces = [EngineSpan("compute", at, at + 10_000) for at in range(20_000, 60_000, 10_000)]
    found = true_terms(stamps, pieces, (0, 60_000), 4)
    assert (found["compute"], found["input"], found["total"]) == (40 / 8, 20 / 8, 60 / 8)
