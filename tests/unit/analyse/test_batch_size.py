"""What a larger batch did: each mechanism on the virtual clock, and the sweeps that must not be called slower."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.crafted import add, add_events, amend, facts_of_run, steps_of
from whyidle.analyse.cells.batch_size.result import BatchVerdict
from whyidle.analyse.cells.batch_size.verdict import batch_verdict
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.record.reader import Records
from whyidle.record.schema import BATCH, DEVICE, HOST, NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

SAMPLES = 1280
"""Of a run, whatever the batch."""
REPEATS = 3


def _always(_: int) -> bool:
    return True


Run = Callable[[Path, int], Any]
"""Trains at a batch size into a folder."""


def judged(tmp_path: Path, run: Run, *sizes: int, repeats: int = REPEATS) -> BatchVerdict:
    """Equal runs of each size: on the virtual clock there is no noise."""
    cells: dict[int, list[Facts]] = {}
    for size in sizes:
        run(tmp_path / str(size), size)
        cells[size] = [facts_of_run(tmp_path / str(size))] * repeats
    verdict = batch_verdict(cells, {size: range(repeats) for size in sizes})
    assert verdict is not None
    return verdict


def steady(
    load_ms: float = 0.1,
    compute_ms: float = 1.0,
    fixed_ms: float = 0.0,
    epochs: int = 4,
    first_ms: float = 0.0,
    samples: Callable[[int], int] = lambda _: SAMPLES,
    **more: Callable[[int], Any],
) -> Run:
    """Times a sample; `fixed_ms` a step; `first_ms` a sample more for the first batch of an epoch; of `more` each is a
    function of the batch."""

    def run(folder: Path, batch: int) -> Any:
        step = {name: value(batch) for name, value in more.items()}
        compute = step.pop("compute_ns", round((batch * compute_ms + fixed_ms) * MS))
        load = step.pop("fetch_ns", round(batch * load_ms * MS))
        rest = [Step(load, compute, **step)] * (samples(batch) // batch // epochs - 1)
        first = Step(load + round(batch * first_ms * MS), compute, **step)
        return train(folder, [[first, *rest]] * epochs, samples=batch)

    return run


def test_one_size_is_no_sweep(tmp_path: Path) -> None:
    steady()(tmp_path / "run", 8)
    facts = facts_of_run(tmp_path / "run")
    assert batch_verdict({8: [facts], 16: []}) is None
    assert batch_verdict({}) is None


def test_a_loader_that_sets_the_pace_is_a_floor(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(load_ms=3), 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", None)
    # 24 ms of loading behind 8 ms of computing at batch 8, twice as much at 16: the gap doubles, the share stays.
    assert "16 ms at batch 8 and 32 ms at batch 16" in verdict.text
    assert "stays at 3.00 ms (+0.0 ±" in verdict.text


def test_what_computing_gains_is_lost_to_a_loader_that_sets_the_pace(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(load_ms=3, compute_ms=0.5, fixed_ms=16), 8, 32)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "gains nothing" in verdict.text
    assert verdict.changes["input"].value == pytest.approx(-verdict.changes["compute"].value, rel=0.05)


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


def test_the_same_iterations_process_more_samples_and_are_not_slower(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(load_ms=3, samples=lambda batch: 160 * batch), 8, 16)
    assert (verdict.cause, verdict.grew) == ("accounting", None)
    assert "2.00 times as long" in verdict.text
    assert "2.00 times as many samples" in verdict.text
    assert verdict.work[16].samples == 2 * verdict.work[8].samples


def test_a_faster_larger_batch_that_runs_longer_is_accounting_too(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(fixed_ms=4, samples=lambda batch: 160 * batch), 8, 16)
    assert verdict.cause == "accounting"
    assert "falls from" in verdict.text


def test_stalls_that_grow_are_told_from_the_samples_that_are_more(tmp_path: Path) -> None:
    """The two readings of the study's riddle, together: twice the samples, each of which takes longer."""
    per_epoch = 160

    def run(folder: Path, batch: int) -> None:
        steady(first_ms=8, epochs=batch, samples=lambda batch: batch * per_epoch, sync=_always)(folder, batch)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("pipeline_fill", "input")
    half = judged(tmp_path / "same", steady(first_ms=8, epochs=8, sync=_always), 8, 16)
    longer = half.work[16].seconds / half.work[8].seconds
    assert longer > 1.1
    assert "the rest is more samples" in verdict.text
    assert "more samples" not in half.text


def test_a_device_that_computes_all_the_time_is_saturated(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(compute_ms=2), 8, 16)
    assert (verdict.cause, verdict.grew) == ("saturated", None)


def test_a_faster_larger_batch_needs_no_cause(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(fixed_ms=16), 8, 16)
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "a larger batch is faster" in verdict.text


def test_a_faster_batch_that_is_held_up_more_is_still_faster(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(load_ms=2, fixed_ms=32), 8, 64)
    assert (verdict.cause, verdict.grew) == ("none", "input")
    assert "faster" in verdict.text
    assert "the loader sets the pace" in verdict.text


def test_what_came_after_the_best_size_is_judged(tmp_path: Path) -> None:
    """Faster up to 16, and slower from there on: not against 8, which 32 still beats."""
    per_sample = {8: 4.0, 16: 1.0, 32: 1.5}
    verdict = judged(tmp_path, steady(compute_ns=lambda batch: round(per_sample[batch] * batch * MS)), 8, 16, 32)
    assert (verdict.smaller, verdict.larger) == (16, 32)
    assert (verdict.cause, verdict.grew) == ("compute_growth", "compute")


def test_first_batches_that_take_longer_are_pipeline_fill(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(first_ms=30, samples=lambda _: 2 * SAMPLES, sync=_always), 8, 32)
    assert (verdict.cause, verdict.grew) == ("pipeline_fill", "input")
    waits = [e.value for e in verdict.evidence]
    assert waits == pytest.approx([8 * 30, 32 * 30], rel=0.05)


def test_workers_that_never_get_a_batch_are_named(tmp_path: Path) -> None:
    """Eight workers at 16 ms a sample feed 2 ms a sample; two batches an epoch feed but two of them."""

    def run(folder: Path, batch: int) -> None:
        batches = 128 // batch
        plan = [Step(16 * batch * MS, 3 * batch * MS, sync=True)] * batches

        def trace(step: int, begin: int, end: int) -> Any:
            return _trace(step % batches % 8, end - 16 * batch * MS, end)

        train(folder, [plan] * 16, samples=batch, workers=PlantedWorkers(8, 1), trace=trace)

    verdict = judged(tmp_path, run, 8, 64)
    assert (verdict.cause, verdict.grew) == ("fewer_batches_than_workers", "input")
    assert "2 batches for 8 workers" in verdict.text
    # As many batches as workers is enough: then it is only that the first ones take longer.
    assert judged(tmp_path / "enough", run, 8, 16).cause == "pipeline_fill"


def test_batches_that_are_done_and_still_awaited_are_the_handoff(tmp_path: Path) -> None:
    """Handing a batch over takes 0.02 ms for each of its samples, times its samples."""

    def run(folder: Path, batch: int) -> None:
        handover = round(0.02 * batch**2 * MS)
        plan = [Step(handover, batch * MS // 2)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=lambda _, __, end: _trace(0, end - handover - MS, end - handover))

    verdict = judged(tmp_path, run, 8, 64)
    assert (verdict.cause, verdict.grew) == ("handoff_growth", "input")


def test_putting_samples_together_that_takes_longer_is_handoff(tmp_path: Path) -> None:
    """In the training itself: from 32 samples on a batch's memory is new each time."""

    def run(folder: Path, batch: int) -> None:
        collating = batch * (MS if batch >= 32 else MS // 5)
        making = collating + batch * MS // 10

        def trace(_: int, begin: int, end: int) -> Any:
            return _trace(
                0, begin, end, read_ns=0, collate_ns=collating, minor_faults=batch * (37 if batch > 16 else 1)
            )

        train(folder, [[Step(making, batch * MS)] * (SAMPLES // batch)], samples=batch, trace=trace)

    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("handoff_growth", "input")
    pages = {e.what: e.value for e in verdict.evidence}
    assert pages["pages touched for the first time, a sample at batch 32"] == pytest.approx(37)


def test_copies_that_grow_are_handoff_and_their_kind_is_said(tmp_path: Path) -> None:
    sizes = {8: 10**6, 16: 60 * 10**6}
    run = steady(copy_bytes=lambda batch: sizes[batch], pinned=lambda _: False)
    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("handoff_growth", "copy")
    assert "pageable" in verdict.text


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


@pytest.mark.parametrize("every", [1, 4])
def test_retries_of_the_allocator_at_the_larger_batch_are_memory(tmp_path: Path, every: int) -> None:
    """Each costs the host 60 ms."""

    def run(folder: Path, batch: int) -> None:
        large = batch > 8
        count = SAMPLES // batch
        plan = [Step(MS, batch * MS, sync=True, host_ns=60 * MS * (large and n % every == 0)) for n in range(count)]
        train(folder, [plan], samples=batch)
        if large:
            ends = steps_of(folder)["step_end_ns"]
            told = [(int(ends[n]), EventKind.ALLOCATOR_RETRIES, n // every + 1) for n in range(0, count, every)]
            add_events(folder, [(*event, NOT_MEASURED) for event in told])

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("memory", "host")


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
        end = int(steps_of(folder)["step_end_ns"].max())
        clocks = {"sm_clock_mhz": mhz if large else 1500, "sm_clock_max_mhz": 1500, "throttle_reasons": 4 * large}
        add(folder, DEVICE, [{"t_ns": t, "device": 0} | clocks for t in range(START, end, 50 * MS)])

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == (cause, "compute")
    assert (f"from 1500 to {mhz} MHz" in verdict.text) == (cause == "clock")


def test_work_of_the_loop_that_grows_is_named_though_no_mechanism_is(tmp_path: Path) -> None:
    run = steady(host_ns=lambda batch: batch**2 * MS // 10, sync=_always)
    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("none", "host")
    assert "training loop's own work" in verdict.text


def test_work_for_each_sample_that_no_batch_makes_less_is_said(tmp_path: Path) -> None:
    verdict = judged(tmp_path, steady(host_ns=lambda batch: batch * MS, sync=_always), 8, 32)
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
            return _trace(0, end - uneven[step].fetch_ns, end)

        train(folder, [[*uneven]], samples=batch, workers=PlantedWorkers(1, 1), trace=trace)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "prefetch_factor" in verdict.text


def test_a_growth_that_runs_differ_by_anyway_is_none(tmp_path: Path) -> None:
    """A sample takes 10 % longer at batch 16 on average, in runs that differ by as much."""
    cells: dict[int, list[Facts]] = {8: [], 16: []}
    for number, (small, large) in enumerate(((1.0, 0.9), (0.9, 1.2), (1.0, 1.1))):
        for batch, ms in ((8, small), (16, large)):
            folder = tmp_path / f"{batch}-{number}"
            steady(compute_ms=ms)(folder, batch)
            cells[batch].append(facts_of_run(folder))
    verdict = batch_verdict(cells, {8: range(3), 16: range(3)})
    assert verdict is not None
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert verdict.changes[TOTAL].value > 0.05 * verdict.terms[8][TOTAL].value
    assert verdict.changes[TOTAL].low < 0


def test_sizes_with_few_steps_are_left_out_and_said(tmp_path: Path) -> None:
    per_sample = {8: 1.0, 16: 1.0, 64: 3.0, 128: 9.0}
    run = steady(compute_ns=lambda batch: round(per_sample[batch] * batch * MS))
    verdict = judged(tmp_path, run, 8, 16, 64, 128)
    assert (verdict.smaller, verdict.larger, verdict.cause) == (8, 16, "saturated")
    assert "19 at batch 64, 8 at batch 128) are left out" in verdict.text
    assert set(verdict.terms) == set(per_sample)
    # Where all are short, they are all there is.
    short = judged(tmp_path / "short", run, 64, 128)
    assert (short.smaller, short.larger, short.cause) == (64, 128, "compute_growth")
    assert "prove little" in short.text


def test_runs_that_differ_too_much_to_tell_anything_say_how_many_would(tmp_path: Path) -> None:
    cells: dict[int, list[Facts]] = {8: [], 16: []}
    for number, (small, large) in enumerate(((1.0, 1.15), (1.15, 1.0))):
        for batch, ms in ((8, small), (16, large)):
            folder = tmp_path / f"{batch}-{number}"
            steady(load_ms=1.2 * ms, compute_ms=0.6 * ms)(folder, batch)
            cells[batch].append(facts_of_run(folder))
    verdict = batch_verdict(cells, {8: range(2), 16: range(2)})
    assert verdict is not None
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "proves nothing" in verdict.text
    runs = int(verdict.text.split("About ")[1].split()[0])
    assert 10 < runs < 50


@pytest.mark.parametrize(
    ("run", "cause"), [(steady(compute_ms=2), "none"), (steady(load_ms=3, samples=lambda b: 160 * b), "accounting")]
)
def test_one_run_of_each_size_tells_what_needs_no_repeats(tmp_path: Path, run: Run, cause: str) -> None:
    cells = {}
    for size in (8, 16):
        run(tmp_path / str(size), size)
        cells[size] = [facts_of_run(tmp_path / str(size))]
    verdict = batch_verdict(cells, {8: [0], 16: [0]})
    assert verdict is not None
    assert verdict.cause == cause
    assert ("one run of each size cannot tell" in verdict.text) == (cause == "none")


def _epochs_of(batch: int, epochs: int, steps: int, start_ms: int) -> Any:
    plan = [Step(batch * MS // 10, batch * MS, sync=True)] * steps
    return {"epochs": [plan] * epochs, "samples": batch, "workers": PlantedWorkers(2, 2, start_ns=start_ms * MS)}


@pytest.mark.parametrize(("few", "many"), [(1, 2), (2, 8)])
def test_beginnings_of_epochs_count_alike_in_runs_of_few_and_of_many(tmp_path: Path, few: int, many: int) -> None:
    """As many iterations at both sizes, of a set that is the same: what beginning an epoch costs is no growth."""

    def run(folder: Path, batch: int) -> None:
        train(folder, **_epochs_of(batch, few if batch == 8 else many, 160 // (1 if batch == 8 else many // few), 400))

    verdict = judged(tmp_path, run, 8, 8 * many // few)
    assert (verdict.cause, verdict.grew) == ("accounting", None)
    assert abs(verdict.changes[TOTAL].value) < 0.01 * verdict.terms[8][TOTAL].value


def test_a_loader_that_keeps_up_but_for_the_beginnings_of_epochs_is_no_floor(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lambda folder, batch: train(folder, **_epochs_of(batch, 6, 240 // batch, 400)), 8, 16)
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "at the beginning of epochs" in verdict.text


def test_samples_that_take_longer_to_make_say_so(tmp_path: Path) -> None:
    """In the training itself, which has no workers that could rest."""

    def run(folder: Path, batch: int) -> None:
        plan = [Step(batch * (1 if batch == 8 else 3) * MS, batch * MS, sync=True)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=lambda _, begin, end: _trace(0, begin, end))
        add_events(folder, [(START, EventKind.LOADER_WORKERS, 0, NOT_MEASURED)])

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "making a sample takes 3.00 ms instead of 1.00" in verdict.text
    assert "beside the training" in verdict.text


def test_what_is_known_of_one_size_only_proves_nothing(tmp_path: Path) -> None:
    """Collating takes the same share at both sizes, but is seen at one of them only."""

    def run(folder: Path, batch: int) -> None:
        making = batch * (1 if batch == 8 else 3) * MS

        def trace(_: int, begin: int, end: int) -> Any:
            return _trace(0, begin, end, read_ns=0, collate_ns=making * 6 // 10)

        plan = [Step(making, batch * MS, sync=True)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=trace if batch == 16 else None)

    assert judged(tmp_path, run, 8, 16).cause == "loader_floor"


def test_a_pool_that_makes_a_batch_together_is_one_worker(tmp_path: Path) -> None:
    def run(folder: Path, batch: int) -> None:
        batches = 256 // batch
        rest = [Step(batch * MS // 10, batch * MS, sync=True)] * (batches - 1)
        first = Step(3 * batch * MS, batch * MS, sync=True)
        train(
            folder,
            [[first, *rest]] * 16,
            samples=batch,
            trace=lambda _, begin, end: _trace(0, begin, end, threads=8),
        )

    assert judged(tmp_path, run, 8, 64).cause == "pipeline_fill"


def test_clocks_of_an_idle_device_say_nothing(tmp_path: Path) -> None:
    """It computes at full clock, longer for another reason; in between it rests."""

    def run(folder: Path, batch: int) -> None:
        large = batch > 8
        steady(load_ms=2, compute_ms=1.5 if large else 1)(folder, batch)
        steps = steps_of(folder)
        rows = [{"t_ns": int(t), "device": 0, "sm_clock_mhz": 1500} for t in steps["device_begin_ns"] + MS]
        rows += [
            {"t_ns": int(t), "device": 0, "sm_clock_mhz": 345 if large else 1500} for t in steps["device_end_ns"] + MS
        ]
        add(folder, DEVICE, sorted(rows, key=lambda row: row["t_ns"]))

    def sized(folder: Path, batch: int) -> None:
        run(folder, batch)

    cells = {}
    for size in (8, 16):
        sized(tmp_path / str(size), size)
        cells[size] = [facts_of_run(tmp_path / str(size))] * REPEATS
    for size in (8, 16):
        state = cells[size][0].device_state
        assert state is not None
        assert state.clock_mhz == 1500


def test_growth_of_two_parts_is_said_of_both(tmp_path: Path) -> None:
    run = steady(
        compute_ns=lambda batch: round(batch * (1.0 if batch == 8 else 1.3) * MS),
        host_ns=lambda batch: round(batch * (0.1 if batch == 8 else 0.5) * MS),
        sync=_always,
    )
    verdict = judged(tmp_path, run, 8, 16)
    assert verdict.grew == "host"
    assert "(compute grew from 1.00 ms" in verdict.text


def test_work_that_computing_no_longer_covers_has_not_grown(tmp_path: Path) -> None:
    run = steady(compute_ms=0.1, fixed_ms=6, host_ns=lambda batch: round(0.9 * batch * MS))
    verdict = judged(tmp_path, run, 8, 32)
    assert verdict.grew == "host"
    assert "no longer covers" in verdict.text


def test_runs_without_samples_are_left_out(tmp_path: Path) -> None:
    def none(steps: Records) -> None:
        steps["samples"] = 0

    steady()(tmp_path / "8", 8)
    steady()(tmp_path / "16", 16)
    amend(tmp_path / "16", none)
    assert batch_verdict({8: [facts_of_run(tmp_path / "8")], 16: [facts_of_run(tmp_path / "16")]}) is None


CROWDED, NOT_FULL, ALONE = 1.4, 1.25, 0.1
"""CPUs that others use, of two, of which the training itself uses half of one."""
TAKEN = "other programs used 1.4 CPUs while batch {} ran, and 0.1 while"
ONE_RUN = "one run of a size"


@pytest.mark.parametrize(
    ("load_ms", "others", "repeats", "said"),
    [
        pytest.param((1.5, 3.0), (ALONE, ALONE), REPEATS, "input grew from", id="slower, alone"),
        pytest.param((1.5, 3.0), (ALONE, CROWDED), REPEATS, TAKEN.format(16), id="slower, others at the larger"),
        pytest.param((1.5, 3.0), (ALONE, NOT_FULL), REPEATS, "input grew from", id="slower, others, and CPU left over"),
        pytest.param((1.5, 3.0), (CROWDED, ALONE), REPEATS, "input grew from", id="slower, others at the smaller"),
        pytest.param((1.5, 3.0), (CROWDED, CROWDED), REPEATS, "input grew from", id="slower, others at both"),
        pytest.param((1.5, 3.0), (CROWDED, CROWDED), 1, ONE_RUN, id="slower, others at both, once"),
        pytest.param((3.0, 1.5), (CROWDED, ALONE), REPEATS, TAKEN.format(8), id="faster, others at the smaller"),
        pytest.param((3.0, 1.5), (CROWDED, CROWDED), 1, ONE_RUN, id="faster, others at both, once"),
        pytest.param((3.0, 1.5), (ALONE, ALONE), 1, "a larger batch is faster", id="faster, alone, once"),
    ],
)
def test_where_others_may_be_why_no_mechanism_is_named(
    tmp_path: Path, load_ms: tuple[float, float], others: tuple[float, float], repeats: int, said: str
) -> None:
    def run(folder: Path, batch: int) -> None:
        place = int(batch > 8)
        steady(load_ms=load_ms[place], sync=_always)(folder, batch)
        busy = others[place]
        end = int(steps_of(folder)["step_end_ns"].max())
        rows = [
            {"t_ns": t, "cpus": 2000, "tree_cpu_ns": (t - START) // 2, "machine_busy_pct": 100 * (0.5 + busy) / 2}
            for t in range(START, end, 100 * MS)
        ]
        add(folder, HOST, rows)
        info = folder / "run.json"
        info.write_text(json.dumps(json.loads(info.read_text()) | {"host": {"cpus": 2}}))

    verdict = judged(tmp_path, run, 8, 16, repeats=repeats)
    assert said in verdict.text
    assert (verdict.cause == "none") == (said != "input grew from")
    assert verdict.grew == ("input" if load_ms[1] > load_ms[0] else None)


def test_accounting_says_which_part_grew_behind_what_computing_saved(tmp_path: Path) -> None:
    run = steady(load_ms=3, compute_ms=0.5, fixed_ms=16, samples=lambda batch: 80 * batch)
    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("accounting", "input")
    assert "Of its parts input grew from" in verdict.text


def test_making_that_got_a_little_longer_is_not_the_reason_of_a_wait_that_doubled(tmp_path: Path) -> None:
    def run(folder: Path, batch: int) -> None:
        large = batch > 8
        making, waiting = round(batch * (1.1 if large else 1.0) * MS), round(batch * (3 if large else 1.5) * MS)
        plan = [Step(waiting, batch * MS, sync=True)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=lambda _, __, end: _trace(0, end - making, end))

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("loader_floor", "input")
    assert "making a sample takes" not in verdict.text


def test_terms_add_up_to_the_time_per_sample(tmp_path: Path) -> None:
    run = steady(load_ms=3, copy_bytes=lambda batch: batch * 10**5, host_ns=lambda _: MS, sync=_always)
    verdict = judged(tmp_path, run, 8, 16, 64)
    for terms in verdict.terms.values():
        assert sum(terms[part].value for part in PARTS) == pytest.approx(terms[TOTAL].value)
    assert sum(verdict.changes[part].value for part in PARTS) == pytest.approx(verdict.changes[TOTAL].value)
    assert verdict.terms[16][TOTAL].value == pytest.approx(4000, rel=0.1)
    assert verdict.medians[16] == pytest.approx({name: term.value for name, term in verdict.terms[16].items()})


def test_runs_whose_samples_are_not_known_are_left_out(tmp_path: Path) -> None:
    for batch in (8, 16):
        steady()(tmp_path / str(batch), batch)

    def unknown(steps: Records) -> None:
        steps["samples"] = NOT_MEASURED

    steady()(tmp_path / "unknown", 16)
    amend(tmp_path / "unknown", unknown)
    known, other, without = (facts_of_run(tmp_path / name) for name in ("8", "16", "unknown"))
    assert batch_verdict({8: [known], 16: [without]}) is None
    verdict = batch_verdict({8: [known], 16: [without, other]}, {8: [0], 16: [0, 1]})
    assert verdict is not None
    assert verdict.runs == {8: 1, 16: 1}


def _elements(folder: Path, elements: int) -> None:
    def change(steps: Records) -> None:
        steps["flags"] |= StepFlag.SHAPE_KNOWN | elements << StepFlag.ELEMENTS_SHIFT

    amend(folder, change)


def _trace(worker: int, begin: int, end: int, **more: Any) -> Any:
    told: Mapping[str, Any] = dict.fromkeys(
        ("read_ns", "decode_ns", "transform_ns", "collate_ns", "cpu_ns", "minor_faults", "read_bytes")
    )
    return SimpleNamespace(worker=worker, begin_ns=begin, end_ns=end, **(told | {"threads": 1} | more))
