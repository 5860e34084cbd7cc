"""What a larger batch did: each mechanism on the virtual clock, where the golden comparisons of sizes have none; and
where little is known or runs differ anyway, nothing is named that is not proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import add, add_events, amend, facts_of_run, steps_of
from support.planted_runs import batch_trace, elements, looked, until
from whyidle.analyse.cells.batch_size import BatchVerdict, Compared, RunTerms, SweepFit, batch_verdict
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.statistics import RUN_NOISE
from whyidle.record.run import update_run
from whyidle.record.schema import BATCH, DEVICE, HOST, NOT_MEASURED, EventKind
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

SAMPLES = 1280
"""Of a run, whatever the batch."""
REPEATS = 3
Run = Callable[[Path, int], Any]
"""Trains at a batch size into a folder."""


def always(_: int) -> bool:
    """At every batch size."""
    return True


def judged(tmp_path: Path, run: Run, *sizes: int, repeats: int = REPEATS) -> BatchVerdict:
    """Equal runs of each size: on the virtual clock there is no noise."""
    once = cells_of(tmp_path, {size: [run] for size in sizes})
    return verdict_of({size: runs * repeats for size, runs in once.items()})


def cells_of(folder: Path, runs: Mapping[int, Sequence[Run]]) -> dict[int, list[Facts]]:
    """The recordings of each size, by what trains them."""
    cells: dict[int, list[Facts]] = {size: [] for size in runs}
    for size, of_size in runs.items():
        for number, run in enumerate(of_size):
            run(folder / f"{size}-{number}", size)
            cells[size].append(facts_of_run(folder / f"{size}-{number}"))
    return cells


def verdict_of(cells: Mapping[int, Sequence[Facts]]) -> BatchVerdict:
    """Of sizes whose runs were made in as many rounds."""
    verdict = batch_verdict((size, number, run) for size, runs in cells.items() for number, run in enumerate(runs))
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


def of_elements(run: Run, of_batch: OfBatch) -> Run:
    """Batches of so many elements."""

    def with_elements(folder: Path, batch: int) -> None:
        run(folder, batch)
        elements(folder, round(of_batch(batch)))

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
        (of_elements(PADDED, ns(larger(1e-3, 1.5e-3))), (8, 32), "padding", "copy", ["50 % more"]),
        (of_elements(UNPADDED, lambda b: 1000 * b), (8, 32), "compute_growth", "compute", []),
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


# Where little is known, or runs differ anyway.


def test_one_size_is_no_sweep(tmp_path: Path) -> None:
    steady()(tmp_path / "run", 8)
    facts = facts_of_run(tmp_path / "run")
    assert batch_verdict([(8, 0, facts), (8, 1, facts)]) is None
    assert batch_verdict([]) is None


def test_a_growth_that_runs_differ_by_anyway_is_none(tmp_path: Path) -> None:
    """A sample takes 10 % longer at batch 16 on average, in runs that differ by as much."""
    small, large = ([steady(compute_ms=ms) for ms in of] for of in ((1.0, 0.9, 1.0), (0.9, 1.2, 1.1)))
    verdict = verdict_of(cells_of(tmp_path, {8: small, 16: large}))
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
    small, large = ([steady(load_ms=1.2 * ms, compute_ms=0.6 * ms) for ms in of] for of in ((1.0, 1.15), (1.15, 1.0)))
    verdict = verdict_of(cells_of(tmp_path, {8: small, 16: large}))
    assert (verdict.cause, verdict.grew) == ("none", None)
    assert "proves nothing" in verdict.text
    runs = int(verdict.text.split("about ")[1].split()[0])
    assert 10 < runs < 50


@pytest.mark.parametrize(
    ("run", "cause"), [(steady(compute_ms=2), "none"), (steady(load_ms=3, samples=lambda b: 160 * b), "accounting")]
)
def test_one_run_of_each_size_tells_what_needs_no_repeats(tmp_path: Path, run: Run, cause: str) -> None:
    verdict = judged(tmp_path, run, 8, 16, repeats=1)
    assert verdict.cause == cause
    assert ("one run of each size cannot tell" in verdict.text) == (cause == "none")


def test_clocks_of_an_idle_device_say_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(16 * MS, 12 * MS)] * 40])
    steps = steps_of(tmp_path / "run")
    looks = [(t, 1500) for t in steps["device_begin_ns"] + MS] + [(t, 345) for t in steps["device_end_ns"] + MS]
    add(tmp_path / "run", DEVICE, [{"t_ns": int(t), "device": 0, "sm_clock_mhz": mhz} for t, mhz in sorted(looks)])
    state = facts_of_run(tmp_path / "run").device_state
    assert state.clock_mhz == 1500


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
        steady(load_ms=load_ms[batch > 8], sync=always)(folder, batch)
        busy = others[batch > 8]
        rows = [
            {"t_ns": t, "cpus": 2000, "tree_cpu_ns": (t - START) // 2, "machine_busy_pct": 100 * (0.5 + busy) / 2}
            for t in range(START, until(folder), 100 * MS)
        ]
        add(folder, HOST, rows)
        update_run(folder, {"host": {"cpus": 2}})

    verdict = judged(tmp_path, run, 8, 16, repeats=repeats)
    assert said in verdict.text
    assert (verdict.cause == "none") == (said != "input grew from")
    assert verdict.grew == ("input" if load_ms[1] > load_ms[0] else None)


@pytest.mark.parametrize("told", [0, NOT_MEASURED])
def test_runs_without_samples_are_left_out(tmp_path: Path, told: int) -> None:
    def without(folder: Path, batch: int) -> None:
        steady()(folder, batch)
        amend(folder, lambda steps: steps["samples"].fill(told))

    cells = cells_of(tmp_path, {8: [steady()], 16: [without, steady()]})
    assert batch_verdict([(8, None, cells[8][0]), (16, None, cells[16][0])]) is None
    verdict = batch_verdict([(8, 0, cells[8][0]), *((16, number, run) for number, run in enumerate(cells[16]))])
    assert verdict.runs == {8: 1, 16: 1}


def measured(size: int, number: int | None, compute: float, input_: float) -> RunTerms:
    return size, number, {"compute": compute, "input": input_, TOTAL: compute + input_}


def rounds(*sizes: int, of: int = 3) -> list[RunTerms]:
    """Equal runs, of which the input grows with the size."""
    return [measured(size, number, 100.0, size) for number in range(of) for size in sizes]


def test_equal_runs_give_their_figures_and_the_noise_that_is_assumed() -> None:
    fit = SweepFit(rounds(8, 16))
    assert fit.at(16, "input").value == pytest.approx(16)
    assert fit.change(8, 16, "input").value == pytest.approx(8)
    assert fit.change(8, 16, "compute").value == pytest.approx(0)
    # Two degrees of freedom say there is none, two assumed ones say it is 3 %.
    assert fit.noise == pytest.approx(RUN_NOISE * np.sqrt(2 / 4))
    assert fit.change(8, 16, TOTAL).low > 0
    one = SweepFit([measured(8, 0, 100.0, 0.0), measured(16, 0, 112.0, 0.0)]).change(8, 16, TOTAL)
    # 4.3 times 3 % of each of the two, which is more than the 12 % they differ by.
    assert one.high - one.value == pytest.approx(4.303 * 0.03 * np.hypot(100, 112), rel=0.04)
    assert one.low < 0 < one.value


def test_what_a_round_does_to_all_runs_is_not_taken_for_noise() -> None:
    """The machine gets slower from round to round, for all sizes alike."""
    slower = (1.0, 1.1, 1.25)
    runs = [
        measured(size, number, 100.0 * size**0.1 * slower[number], 50.0 * slower[number])
        for number in range(3)
        for size in (8, 16, 32)
    ]
    apart = SweepFit([(size, None, terms) for size, _, terms in runs])
    fit = SweepFit(runs)
    assert fit.noise < 0.03 < 0.08 < apart.noise
    assert fit.change(8, 32, TOTAL).value == pytest.approx(apart.change(8, 32, TOTAL).value)
    assert fit.change(8, 32, TOTAL).low > 0 > apart.change(8, 32, TOTAL).low


def test_rounds_that_hold_no_size_twice_tell_nothing_of_drift() -> None:
    """Sizes in rounds of their own: what the rounds did is not told from what the sizes did, and nothing is made up."""
    apart = [measured(8, n, 20.0, 80.0) for n in (0, 1)] + [measured(16, n, 80.0, 20.0) for n in (2, 3)]
    assert SweepFit(apart).change(8, 16, "compute").value == pytest.approx(60)
    # One whole round is not enough to take what the runs of batch 8 differ by for drift.
    lonely = [measured(8, n, each, 0.0) for n, each in enumerate((1000.0, 1500.0, 700.0))] + [
        measured(16, 0, 1250.0, 0.0)
    ]
    assert SweepFit(lonely).noise > 0.15
    assert SweepFit(lonely).change(8, 16, TOTAL).low < 0


@pytest.mark.parametrize(("sizes", "least", "most"), [((8, 16), 1, 1), ((8, 16, 32, 64, 128), 1.2, 2)])
def test_the_pair_that_is_picked_out_of_many_needs_more_than_one_that_is_given(
    sizes: tuple[int, ...], least: float, most: float
) -> None:
    fit = SweepFit([measured(size, n, 100.0, 0.0) for n in range(3) for size in sizes])
    change, size = fit.change(8, 16, TOTAL), fit.at(8, TOTAL)
    wider = (change.high - change.value) / (size.high - size.value) / np.sqrt(2)
    assert least * (1 - 1e-6) <= wider <= most * (1 + 1e-6)


@pytest.mark.parametrize("sizes", [(8, 16), (8, 16, 32, 64, 128)])
@pytest.mark.parametrize("repeats", [2, 3])
def test_sweeps_in_which_nothing_changed_are_seldom_called_slower(sizes: tuple[int, ...], repeats: int) -> None:
    """On a machine whose runs differ by 8 %, though the fastest of the sizes is what the largest is compared with."""
    source = np.random.default_rng(0)
    alarms = 0
    for _ in range(300):
        drift = source.normal(1.0, 0.05, repeats)
        runs = []
        for n in range(repeats):
            for size in sizes:
                pace = drift[n] + source.normal(0, 0.08)
                terms = dict.fromkeys(PARTS, 0.0) | {"compute": 60 * pace, "input": 40 * pace, TOTAL: 100 * pace}
                runs.append((size, n, terms))
        fit = SweepFit(runs)
        fastest = min(sizes[:-1], key=lambda size: fit.at(size, TOTAL).value)
        alarms += Compared(fit, fastest, sizes[-1], [], []).slower
    assert alarms / 300 <= 0.08
