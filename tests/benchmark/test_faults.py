"""Planted faults: what is planted is data, and the truth about it is arithmetic on stamps."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import psutil
import pytest

from support.fakes.driver import wait_for
from whyidle.analyse.causes.table import CODES
from whyidle.errors import WhyidleError
from whyidle_bench.cases import samples
from whyidle_bench.cases.case import (
    EVERY,
    FIRST,
    GROWN,
    PARTS,
    PLANTED,
    SEVERITIES,
    SLOW,
    Case,
    Data,
    Loader,
    Plan,
    PlannedSampler,
    PlannedStep,
    Start,
)
from whyidle_bench.cases.machine import foreign_load, unmet
from whyidle_bench.cases.registry import CASES, cases
from whyidle_bench.cases.samples import Samples, ServesOne, loader_of
from whyidle_bench.cases.sizes import fitted
from whyidle_bench.cases.truth import EngineSpan, Stamp, exposed_ns, true_share


def test_each_cause_is_planted_in_three_severities_of_which_the_worse_costs_more() -> None:
    faults = cases(kinds=("fault",))
    assert set(CODES) - {cause for case in faults for cause in case.causes} == {"rank.exchange"}
    for variant in {case.name.rpartition("-")[0] for case in faults}:
        of_variant = [case for case in faults if case.name.rpartition("-")[0] == variant]
        assert [case.severity for case in of_variant] == list(SEVERITIES)
        bands = [case.share or (0.0, 0.0) for case in of_variant]
        assert all(0 < low < high < 1 for low, high in bands), variant
        assert bands == sorted(bands), variant


def test_there_are_healthy_controls_on_both_devices() -> None:
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


def test_the_steps_that_a_fault_hits_are_known_beforehand() -> None:
    slow = Case("a", ("input.straggler",), "mild", Plan(Data(slow_every=20, slow_first=8), batches=50), hit=SLOW)
    assert slow.steps_hit() == {8, 28, 48}
    first = Case("b", ("input.worker_restart",), "mild", Plan(epochs=3, batches=10), hit=FIRST)
    assert first.steps_hit() == {0, 10, 20}
    gaps = Plan(step=PlannedStep(host_ms=1, host_every=10), batches=25)
    tenth = Case("c", ("host.step_gap",), "mild", gaps, hit=PLANTED)
    assert tenth.steps_hit() == {9, 19}
    assert len(Case("d", ("input.serial",), "mild", Plan(batches=7)).steps_hit()) == 7


def test_what_is_planted_to_grow_begins_to_after_a_while_and_is_all_there_at_the_end() -> None:
    plan = Plan(step=PlannedStep(grows_ms=10), batches=100)
    assert [plan.grown(step) for step in (0, 15)] == [0, 0]
    assert plan.grown(100) == 1
    assert 0 < plan.grown(16) < plan.grown(50) < plan.grown(99)
    grown = Case("grows", ("run.slowing",), "mild", plan, hit=GROWN)
    assert grown.steps_hit() == frozenset(range(16, 100))


def test_what_lies_before_the_first_step_is_a_share_of_the_whole_run() -> None:
    case = Case("start", ("run.startup",), "mild", Plan(start=Start(index_s=3)), part="start")
    stamps = [Stamp("start", 0, 30), Stamp("fetch", 30, 40)]
    assert true_share(stamps, [], (50, 100), case, (0, 100)) == {"run.startup": pytest.approx(0.3)}


def test_cases_are_chosen_by_name_by_cause_and_by_kind() -> None:
    assert [case.name for case in cases(["input.serial-mild"])] == ["input.serial-mild"]
    assert {case.causes[0] for case in cases(["input.storage"], ["fault"])} == {"input.storage"}
    assert {case.kind for case in cases(kinds=["control"])} == {"control"}
    assert len(cases()) == len(CASES)
    with pytest.raises(WhyidleError, match=r"unknown case 'input\.nothing'"):
        cases(["input.nothing"])


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


def test_the_shares_of_a_compound_do_not_overlap() -> None:
    causes = ("input.too_few_workers", "input.worker_restart")
    case = Case("both", causes, "both", Plan(), ("fetch", "fetch"), (lambda tag: tag != FIRST, FIRST))
    stamps = [Stamp("fetch", 0, 40, FIRST), Stamp("fetch", 50, 60)]
    assert true_share(stamps, [EngineSpan("compute", 40, 50)], (0, 100), case) == {
        "input.too_few_workers": pytest.approx(0.1),
        "input.worker_restart": pytest.approx(0.4),
    }


def test_uneven_samples_take_what_the_plan_says_on_average(tmp_path: Path) -> None:
    plan = Plan(Data(sleep_ms=1, sigma=1.0), Loader(batch=1), batches=200)
    drawn = Samples(plan, 1, tmp_path)._factors
    assert sum(drawn) / len(drawn) == pytest.approx(1)
    assert max(drawn) > 4
    assert drawn == Samples(plan, 1, tmp_path)._factors != Samples(plan, 2, tmp_path)._factors


@pytest.mark.slow
def test_a_plan_that_asks_for_a_handover_gets_a_batch_of_that_size(tmp_path: Path) -> None:
    def tensors(ms: float) -> int:
        plan = Plan(Data(floats=640, tensors=40, handover_ms=ms), Loader(workers=1, batch=2))
        data = fitted(plan, tmp_path).data
        assert data.floats == 16 * data.tensors
        return data.tensors

    assert tensors(12.0) > tensors(1.5)
    assert fitted(Plan(), tmp_path) == Plan()


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


def test_what_a_machine_lacks_is_said() -> None:
    assert unmet(()) is None
    if len(os.sched_getaffinity(0)) == 1:
        assert unmet(("cpus",)) == "needs at least two CPUs"
    else:
        assert unmet(("cpus",)) is None


@pytest.mark.parametrize("name", ["control.varied-lengths", "control.cpu-varied-lengths"])
def test_batches_of_many_lengths_have_known_ones_among_them(tmp_path: Path, name: str) -> None:
    plan = CASES[name].plan
    made = Samples(plan, 1, tmp_path)
    batch = plan.loader.batch
    widths = [len(made[number * batch]) for number in range(plan.batches)]
    assert widths == [len(made[number * batch + batch - 1]) for number in range(plan.batches)]
    assert min(widths) >= 16
    assert 0.2 < len(set(widths)) / len(widths) < 0.7
    assert max(widths) > 2.5 * sorted(widths)[len(widths) // 2]


def test_a_shared_lock_is_held_while_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    served, waited = ServesOne("lock"), []
    monkeypatch.setattr(samples, "sleep_ms", lambda ms: waited.append((ms, served.lock.acquire(block=False))))
    served.wait_ms(7.0)
    assert waited == [(7.0, False)]
    assert served.lock.acquire(block=False), "and let go of then"


def test_a_shared_rate_lets_each_wait_for_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    served, waited = ServesOne("rate"), []
    monkeypatch.setattr(samples.time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(samples.time, "sleep", waited.append)
    for _ in range(3):
        served.wait_ms(10.0)
    assert waited == pytest.approx([0.01, 0.02, 0.03])


def test_a_planned_sampler_gives_all_indices_and_stamps_what_it_does(tmp_path: Path) -> None:
    planned = PlannedSampler(epoch_ms=3.0, batch_ms=1.0, batch_burn_ms=1.0)
    plan = Plan(Data(), Loader(workers=0, batch=4, sampler=planned), batches=3)
    stamps: list[tuple[int, int]] = []
    loader = loader_of(plan, Samples(plan, 0, tmp_path), lambda begin, end: stamps.append((begin, end)))
    batches = list(loader)
    assert [len(batch[0]) for batch in batches] == [4, 4, 4]
    assert list(loader.batch_sampler or ()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    # Each pass: once for its begin, once for each batch.
    assert len(stamps) == 2 * (1 + 3)
    least_ms = [3.0, 2.0, 2.0, 2.0] * 2
    assert all((end - begin) / 1e6 >= ms for (begin, end), ms in zip(stamps, least_ms, strict=True))
