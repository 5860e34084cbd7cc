"""What a larger batch did: each mechanism on the virtual clock. Further ones are in the golden comparisons of sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.batch_sweeps import SAMPLES, Run, always, batch_trace, judged, steady
from support.crafted import add, add_events, amend, steps_of
from support.planted_runs import looked
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.record.reader import Records
from whyidle.record.schema import BATCH, NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

OfBatch = Callable[[int], Any]


def traced(
    load_ms: OfBatch,
    compute_ms: OfBatch = lambda batch: batch,
    made_ms: OfBatch | None = None,
    late_ms: OfBatch = lambda _: 0,
    seen: OfBatch = always,
    sync: bool = True,
    workers: int | None = None,
    **told: OfBatch,
) -> Run:
    """Batches that are waited for so long, and made in that time unless said; finished so long before they come."""

    def run(folder: Path, batch: int) -> None:
        load, late = round(load_ms(batch) * MS), round(late_ms(batch) * MS)
        made = load if made_ms is None else round(made_ms(batch) * MS)

        def trace(_: int, __: int, end: int) -> Any:
            return batch_trace(0, end - late - made, end - late, **{name: of(batch) for name, of in told.items()})

        plan = [Step(load, round(compute_ms(batch) * MS), sync=sync)] * (SAMPLES // batch)
        train(folder, [plan], samples=batch, trace=trace if seen(batch) else None)
        if workers is not None:
            add_events(folder, [(START, EventKind.LOADER_WORKERS, workers, NOT_MEASURED)])

    return run


def elements(run: Run, of_batch: OfBatch) -> Run:
    """Batches of so many elements."""

    def with_elements(folder: Path, batch: int) -> None:
        def change(steps: Records) -> None:
            steps["flags"] |= StepFlag.SHAPE_KNOWN | round(of_batch(batch)) << StepFlag.ELEMENTS_SHIFT

        run(folder, batch)
        amend(folder, change)

    return with_elements


def read_back(folder: Path, batch: int) -> None:
    """Pages of batches of 16 come from the disk."""
    steady(load_ms=3 if batch > 8 else 0.5)(folder, batch)
    steps = steps_of(folder)
    rows = [
        {"step": n, "worker": 0, "samples": batch, "begin_ns": b, "end_ns": e, "threads": 1, "read_ns": 0}
        | {"major_faults": 20 if batch > 8 else 0, "loader": NOT_MEASURED}
        for n, (b, e) in enumerate(zip(steps["fetch_begin_ns"], steps["fetch_end_ns"], strict=True))
    ]
    add(folder, BATCH, rows)


def slower_clock(folder: Path, batch: int) -> None:
    """By less than computing takes longer."""
    large = batch > 8
    steady(compute_ms=1.5 if large else 1)(folder, batch)
    state = {"sm_clock_mhz": 1400 if large else 1500, "sm_clock_max_mhz": 1500, "throttle_reasons": 4 * large}
    looked(folder, state)


def larger(small: float, large: float) -> OfBatch:
    """So much a sample at batch 8, and at larger ones."""
    return lambda batch: batch * (small if batch == 8 else large)


def ns(ms: OfBatch) -> OfBatch:
    return lambda batch: round(ms(batch) * MS)


def more(batch: int) -> int:
    """As many iterations at every size."""
    return 160 * batch


LATE = traced(lambda b: 0.02 * b * b, lambda b: b / 2, lambda _: 1, lambda b: 0.02 * b * b, sync=False)
COLLATED = traced(
    lambda b: b * (1.1 if b >= 32 else 0.3),
    read_ns=lambda _: 0,
    collate_ns=lambda b: b * (MS if b >= 32 else MS // 5),
    minor_faults=lambda b: b * (37 if b > 16 else 1),
)
SEEN_ONCE = traced(larger(1, 3), seen=lambda b: b == 16, read_ns=lambda _: 0, collate_ns=lambda b: b * 18 * MS // 10)
PADDED = steady(compute_ms=1, load_ms=1 / 8, copy_bytes=lambda b: round(b * 10**7 * (1 if b == 8 else 1.5)))
UNPADDED = steady(compute_ns=ns(larger(1, 1.5)))
GROWING_LOOP = steady(host_ns=lambda b: b * b * MS // 10, sync=always)
TWO_PARTS = steady(compute_ns=ns(larger(1, 1.3)), host_ns=ns(larger(0.1, 0.5)), sync=always)
UNCOVERED = steady(compute_ms=0.1, fixed_ms=6, host_ns=lambda b: round(0.9 * b * MS))
BEST_AT_16 = steady(compute_ns=lambda b: round({8: 4.0, 16: 1.0, 32: 1.5}[b] * b * MS))
SAVED_AND_LOST = steady(load_ms=3, compute_ms=0.5, fixed_ms=16, samples=lambda b: 80 * b)
SLOWER_MADE = ["preparing a sample takes 3.00 ms instead of 1.00", "beside the training"]
TWICE = ["2.00× as long", "2.00× as many samples"]


@pytest.mark.parametrize(
    ("run", "sizes", "cause", "grew", "said"),
    [
        (LATE, (8, 64), "handoff_growth", "input", []),
        (COLLATED, (8, 32), "handoff_growth", "input", ["first time per sample at batch 32: 37.0"]),
        (SEEN_ONCE, (8, 16), "loader_floor", "input", []),
        (traced(larger(1, 3), workers=0), (8, 16), "loader_floor", "input", SLOWER_MADE),
        (traced(larger(1.5, 3), made_ms=larger(1, 1.1)), (8, 16), "loader_floor", "input", ["not: a sample takes"]),
        (read_back, (8, 16), "memory", "input", []),
        (elements(PADDED, ns(larger(1e-3, 1.5e-3))), (8, 32), "padding", "copy", ["50 % more"]),
        (elements(UNPADDED, lambda b: 1000 * b), (8, 32), "compute_growth", "compute", []),
        (slower_clock, (8, 16), "compute_growth", "compute", ["not: MHz"]),
        (GROWING_LOOP, (8, 32), "none", "host", ["training loop's own work"]),
        (steady(host_ns=ns(larger(1, 1)), sync=always), (8, 32), "none", None, ["for host: 1.00 ms per sample"]),
        (TWO_PARTS, (8, 16), "none", "host", ["(compute grew from 1.00 ms"]),
        (UNCOVERED, (8, 32), "none", "host", ["no longer covers"]),
        (steady(load_ms=3, samples=more), (8, 16), "accounting", None, TWICE),
        (steady(fixed_ms=4, samples=more), (8, 16), "accounting", None, ["less time per sample"]),
        (steady(fixed_ms=16), (8, 16), "none", None, ["a larger batch is faster"]),
        (steady(load_ms=2, fixed_ms=32), (8, 64), "none", "input", ["faster", "the loader sets the pace"]),
        (BEST_AT_16, (8, 16, 32), "compute_growth", "compute", ["than batch 16"]),
        (SAVED_AND_LOST, (8, 32), "accounting", "input", ["input grew from"]),
    ],
)
def test_what_a_larger_batch_did_is_named(
    tmp_path: Path, run: Run, sizes: tuple[int, ...], cause: str, grew: str | None, said: list[str]
) -> None:
    verdict = judged(tmp_path, run, *sizes)
    assert (verdict.cause, verdict.grew) == (cause, grew)
    text = " / ".join([verdict.text, *(f"{each.what}: {each.value}" for each in verdict.evidence)])
    for words in said:
        assert (words.removeprefix("not: ") in text) != words.startswith("not: "), text


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


def test_stalls_that_grow_are_told_from_the_samples_that_are_more(tmp_path: Path) -> None:
    """The two readings of the study's riddle, together: twice the samples, each of which takes longer."""
    per_epoch = 160

    def run(folder: Path, batch: int) -> None:
        steady(first_ms=8, epochs=batch, samples=lambda batch: batch * per_epoch, sync=always)(folder, batch)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("pipeline_fill", "input")
    half = judged(tmp_path / "same", steady(first_ms=8, epochs=8, sync=always), 8, 16)
    longer = half.work[16].seconds / half.work[8].seconds
    assert longer > 1.1
    assert "the rest is more samples" in verdict.text
    assert "more samples" not in half.text


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


def test_terms_add_up_to_the_time_per_sample(tmp_path: Path) -> None:
    run = steady(load_ms=3, copy_bytes=lambda batch: batch * 10**5, host_ns=lambda _: MS, sync=always)
    verdict = judged(tmp_path, run, 8, 16, 64)
    for terms in verdict.terms.values():
        assert sum(terms[part].value for part in PARTS) == pytest.approx(terms[TOTAL].value)
    assert sum(verdict.changes[part].value for part in PARTS) == pytest.approx(verdict.changes[TOTAL].value)
    assert verdict.terms[16][TOTAL].value == pytest.approx(4000, rel=0.1)
    assert verdict.medians[16] == pytest.approx({name: term.value for name, term in verdict.terms[16].items()})
