"""What a larger batch did: each mechanism on the virtual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.batch_sweeps import SAMPLES, always, batch_trace, judged, steady
from support.crafted import add, add_events, amend, steps_of
from support.planted_runs import looked
from whyidle.analyse.run.stall_breakdown import TOTAL
from whyidle.record.reader import Records
from whyidle.record.schema import BATCH, NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

KHOSRAVI = {"cnn1": (0.3, 6), "cnn2": (1, 6), "cnn3": (5, 6), "cnn4": (3, 6), "cnn5": (16, 16)}
"""Seconds an epoch of 59,392 images, plain and augmented, as Danial Khosravi's notebook of 2017 prints them in whole
seconds (0 is taken for 0.3): five nets, one loader that makes an epoch in 6 s."""
EPOCH_IMAGES, LOADER_S = 59_392, 6


@pytest.mark.parametrize("net", KHOSRAVI)
def test_nets_below_the_loaders_floor_land_on_it_and_the_one_above_does_not_move(tmp_path: Path, net: str) -> None:
    plain_s, augmented_s = KHOSRAVI[net]

    def run(folder: Path, batch: int) -> None:
        load, compute = (round(s / EPOCH_IMAGES * 1e9 * batch) for s in (LOADER_S, plain_s))
        plan = [Step(load, compute)] * (16 * 512 // batch)
        train(folder, [plan] * 3, samples=batch, workers=PlantedWorkers(1, 10))

    verdict = judged(tmp_path, run, 128, 256, 512)
    assert verdict.cause == ("saturated" if plain_s > LOADER_S else "loader_floor")
    assert verdict.grew is None
    for terms in verdict.terms.values():
        assert terms[TOTAL].value * EPOCH_IMAGES / 1e6 == pytest.approx(augmented_s, rel=0.07)


def test_batches_that_are_done_and_still_awaited_are_the_handoff(tmp_path: Path) -> None:
    """Handing a batch over takes 0.02 ms for each of its samples, times its samples."""

    def run(folder: Path, batch: int) -> None:
        handover = round(0.02 * batch**2 * MS)
        plan = [Step(handover, batch * MS // 2)] * (SAMPLES // batch)
        train(
            folder, [plan], samples=batch, trace=lambda _, __, end: batch_trace(0, end - handover - MS, end - handover)
        )

    verdict = judged(tmp_path, run, 8, 64)
    assert (verdict.cause, verdict.grew) == ("handoff_growth", "input")


def test_putting_samples_together_that_takes_longer_is_handoff(tmp_path: Path) -> None:
    """In the training itself: from 32 samples on a batch's memory is new each time."""

    def run(folder: Path, batch: int) -> None:
        collating = batch * (MS if batch >= 32 else MS // 5)
        making = collating + batch * MS // 10

        def trace(_: int, begin: int, end: int) -> Any:
            return batch_trace(
                0, begin, end, read_ns=0, collate_ns=collating, minor_faults=batch * (37 if batch > 16 else 1)
            )

        train(folder, [[Step(making, batch * MS)] * (SAMPLES // batch)], samples=batch, trace=trace)

    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("handoff_growth", "input")
    pages = {e.what: e.value for e in verdict.evidence}
    assert pages["pages touched for the first time, a sample at batch 32"] == pytest.approx(37)


def test_memory_that_is_read_back_from_the_disk_is_memory(tmp_path: Path) -> None:
    def run(folder: Path, batch: int) -> None:
        steady(load_ms=3 if batch > 8 else 0.5)(folder, batch)
        ends = steps_of(folder)["fetch_end_ns"], steps_of(folder)["fetch_begin_ns"]
        rows = [
            {"step": n, "worker": 0, "samples": batch, "begin_ns": b, "end_ns": e, "threads": 1, "read_ns": 0}
            | {"major_faults": 20 if batch > 8 else 0, "loader": NOT_MEASURED}
            for n, (e, b) in enumerate(zip(*ends, strict=True))
        ]
        add(folder, BATCH, rows)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("memory", "input")


@pytest.mark.parametrize("part", ["compute", "copy"])
def test_padding_to_the_longest_is_told_by_the_elements_of_a_sample(tmp_path: Path, part: str) -> None:
    longest = {8: 1.0, 32: 1.5}

    def run(folder: Path, batch: int) -> None:
        compute = round(batch * MS * (longest[batch] if part == "compute" else 1))
        nbytes = round(batch * 10**7 * longest[batch]) if part == "copy" else 0
        train(folder, [[Step(MS, compute, copy_bytes=nbytes)] * (SAMPLES // batch)], samples=batch)
        _elements(folder, round(1000 * batch * longest[batch]))

    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("padding", part)
    assert "50 % more" in verdict.text


def test_samples_that_are_no_larger_are_not_padded(tmp_path: Path) -> None:
    def run(folder: Path, batch: int) -> None:
        steady(compute_ms=1.5 if batch > 8 else 1)(folder, batch)
        _elements(folder, 1000 * batch)

    assert judged(tmp_path, run, 8, 32).cause == "compute_growth"


@pytest.mark.parametrize(("mhz", "cause"), [(1000, "clock"), (1400, "compute_growth")])
def test_a_clock_that_falls_by_as_much_is_the_reason(tmp_path: Path, mhz: int, cause: str) -> None:
    def run(folder: Path, batch: int) -> None:
        large = batch > 8
        steady(compute_ms=1.5 if large else 1)(folder, batch)
        clocks = {"sm_clock_mhz": mhz if large else 1500, "sm_clock_max_mhz": 1500, "throttle_reasons": 4 * large}
        looked(folder, clocks)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == (cause, "compute")
    assert (f"from 1500 to {mhz} MHz" in verdict.text) == (cause == "clock")


def test_work_of_the_loop_that_grows_is_named_though_no_mechanism_is(tmp_path: Path) -> None:
    run = steady(host_ns=lambda batch: batch**2 * MS // 10, sync=always)
    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("none", "host")
    assert "training loop's own work" in verdict.text


def test_work_for_each_sample_that_no_batch_makes_less_is_said(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(host_ns=lambda batch: batch * MS, sync=always), 8, 32)
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "waits most for host, 1.00 ms a sample at batch 8 and 1.00 ms at batch 32" in verdict.text


def test_workers_that_rest_while_they_are_waited_for_need_more_batches_ahead(tmp_path: Path) -> None:
    """At batch 16 every fourth batch takes six times as long: 9 ms for 10 ms on average, but in bursts."""

    def run(folder: Path, batch: int) -> None:
        uneven = [
            Step((9 if batch == 8 else 24 if n % 4 == 3 else 4) * batch * MS // 8, 10 * batch * MS // 8, sync=True)
            for n in range(2560 // batch)
        ]

        def trace(step: int, _: int, end: int) -> Any:
            return batch_trace(0, end - uneven[step].fetch_ns, end)

        train(folder, [[*uneven]], samples=batch, workers=PlantedWorkers(1, 1), trace=trace)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "prefetch_factor" in verdict.text


def test_samples_that_take_longer_to_make_say_so(tmp_path: Path) -> None:
    """In the training itself, which has no workers that could rest."""

    def run(folder: Path, batch: int) -> None:
        plan = [Step(batch * (1 if batch == 8 else 3) * MS, batch * MS, sync=True)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=lambda _, begin, end: batch_trace(0, begin, end))
        add_events(folder, [(START, EventKind.LOADER_WORKERS, 0, NOT_MEASURED)])

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "making a sample takes 3.00 ms instead of 1.00" in verdict.text
    assert "beside the training" in verdict.text


def test_a_pool_that_makes_a_batch_together_is_one_worker(tmp_path: Path) -> None:
    def run(folder: Path, batch: int) -> None:
        batches = 256 // batch
        rest = [Step(batch * MS // 10, batch * MS, sync=True)] * (batches - 1)
        first = Step(3 * batch * MS, batch * MS, sync=True)
        train(
            folder,
            [[first, *rest]] * 16,
            samples=batch,
            trace=lambda _, begin, end: batch_trace(0, begin, end, threads=8),
        )

    assert judged(tmp_path, run, 8, 64).cause == "pipeline_fill"


def test_growth_of_two_parts_is_said_of_both(tmp_path: Path) -> None:
    run = steady(
        compute_ns=lambda batch: round(batch * (1.0 if batch == 8 else 1.3) * MS),
        host_ns=lambda batch: round(batch * (0.1 if batch == 8 else 0.5) * MS),
        sync=always,
    )
    verdict = judged(tmp_path, run, 8, 16)
    assert verdict.grew == "host"
    assert "(compute grew from 1.00 ms" in verdict.text


def test_work_that_computing_no_longer_covers_has_not_grown(tmp_path: Path) -> None:
    run = steady(compute_ms=0.1, fixed_ms=6, host_ns=lambda batch: round(0.9 * batch * MS))
    verdict = judged(tmp_path, run, 8, 32)
    assert verdict.grew == "host"
    assert "no longer covers" in verdict.text


def _elements(folder: Path, elements: int) -> None:
    def change(steps: Records) -> None:
        steps["flags"] |= StepFlag.SHAPE_KNOWN | elements << StepFlag.ELEMENTS_SHIFT

    amend(folder, change)
