"""Planted sweeps over the batch size: plans are data, and the truth about them is arithmetic on stamps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from whyidle.analyse.run.stall_breakdown import TERMS
from whyidle.errors import WhyidleError
from whyidle_bench.batch_sizes import DEVICE
from whyidle_bench.cases import samples as module
from whyidle_bench.cases.case import RETRY, Data, Loader, Plan
from whyidle_bench.cases.loop import device_of
from whyidle_bench.cases.samples import Samples, loader_of
from whyidle_bench.cases.truth import EngineSpan, Stamp
from whyidle_bench.sweeps import khosravi
from whyidle_bench.sweeps.registry import SWEEPS, sweeps
from whyidle_bench.sweeps.sweep import Sweep, steps_of
from whyidle_bench.sweeps.truth import true_terms


def test_every_cause_of_the_contract_is_planted_and_named_first_in_its_sweeps() -> None:
    assert len({sweep.cause for sweep in SWEEPS.values()}) == 11
    assert all(name.split(".")[0] == sweep.cause for name, sweep in SWEEPS.items())
    assert {sweep.grew for sweep in SWEEPS.values()} <= {*TERMS, None}


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=lambda sweep: sweep.name)
def test_each_size_is_a_training_that_can_be_judged(sweep: Sweep) -> None:
    plans = [sweep.plan(size) for size in sweep.sizes]
    assert len(plans) >= 2
    assert [plan.loader.batch for plan in plans] == list(sweep.sizes) == sorted(sweep.sizes)
    assert all(plan.steps >= 40 for plan in plans), "a verdict takes 30 steps after the warm-up"
    assert {plan.device for plan in plans} == {"emulated"}
    described = device_of(plans[0]).describe()
    assert {name: described[name] for name in DEVICE} == DEVICE


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=lambda sweep: sweep.name)
def test_only_accounting_processes_more_samples_at_a_larger_size(sweep: Sweep) -> None:
    counts = [sweep.plan(size).steps * size for size in sweep.sizes]
    if sweep.cause == "accounting":
        assert {sweep.plan(size).steps for size in sweep.sizes} == {sweep.plan(sweep.sizes[0]).steps}
        assert all(later > earlier for earlier, later in pairwise(counts))
    else:
        assert len(set(counts)) == 1


def test_an_epoch_has_fewer_batches_than_workers_only_where_that_is_planted() -> None:
    for sweep in SWEEPS.values():
        few = [sweep.plan(size).batches < sweep.plan(size).loader.workers for size in sweep.sizes]
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


def test_sweeps_are_chosen_by_name() -> None:
    assert [sweep.name for sweep in sweeps(["padding", "accounting"])] == ["accounting", "padding"]
    assert sweeps() == list(SWEEPS.values())
    with pytest.raises(WhyidleError, match=r"unknown case 'pading'\. Did you mean padding"):
        sweeps(["padding", "pading"])
    with pytest.raises(ValueError, match="no whole number of batches of 7"):
        steps_of(768, 7)


def test_padding_falls_to_the_fill_ratio_in_closed_form(tmp_path: Path) -> None:
    sweep = SWEEPS["padding"]
    assert sweep.fill is not None
    expected = [sweep.fill(size) for size in sweep.sizes]
    assert expected[0] > 1.2 * expected[-1]
    for size, share in zip(sweep.sizes, expected, strict=True):
        lengths = [
            len(samples[index])
            for samples in (Samples(without_waiting(sweep.plan(size)), seed, tmp_path) for seed in range(20))
            for index in range(len(samples))
        ]
        batches = [lengths[begin : begin + size] for begin in range(0, len(lengths), size)]
        padded = sum(size * max(batch) for batch in batches)
        assert sum(lengths) / padded == pytest.approx(share, rel=0.02)
    assert sweep.fill(1) == pytest.approx(1.0)


def test_batches_of_uneven_lengths_are_padded_with_zeros_to_the_longest(tmp_path: Path) -> None:
    plan = without_waiting(SWEEPS["padding"].plan(4))
    samples = Samples(plan, 3, tmp_path)
    [batch] = next(iter(loader_of(plan, samples)))
    # Every size of a repetition draws the same.
    other = Samples(without_waiting(SWEEPS["padding"].plan(16)), 3, tmp_path)
    assert [len(samples[n]) for n in range(len(samples))] == [len(other[n]) for n in range(len(other))]
    lengths = [len(samples[index]) for index in range(4)]
    assert batch.shape == (4, max(lengths))
    assert len(set(lengths)) > 1
    assert min(lengths) >= plan.data.floats
    for row, length in zip(batch, lengths, strict=True):
        assert not row[length:].any()
        assert row[1:length].all()


def test_unpickling_holds_up_the_training_and_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[float] = []
    monkeypatch.setattr(module, "sleep_ms", lambda ms: held.append(ms) if ms else None)
    plan = Plan(Data(unpickling_ms=30.0), Loader(workers=1, batch=2), batches=4)
    samples = Samples(plan, 0, tmp_path)
    module.collate(plan.data, [samples[0], samples[1]])  # as the worker does
    assert held == []
    assert sum(1 for _ in loader_of(plan, samples)) == 4
    assert held == [30.0] * 4


def without_waiting(plan: Plan) -> Plan:
    """Its samples, at once, from this process."""
    data = Data(floats=plan.data.floats, length_tail=plan.data.length_tail)
    return Plan(data, Loader(workers=0, batch=plan.loader.batch), batches=plan.batches)


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
    assert found is not None
    # Of 80 µs the device computes 22 + 18, copies 4, waits for data 10 + 12, the loop works 4, waits 5 after computing,
    # and does in the last 5 what nothing tells.
    expected = {"compute": 40, "input": 22, "copy": 4, "sync": 5, "host": 9, "boundary": 0, "total": 80}
    assert found == {term: pytest.approx(us / 8) for term, us in expected.items()}


def test_a_retry_of_the_allocator_is_within_the_steps_computation() -> None:
    stamps = [Stamp("fetch", 0, 10_000), Stamp("host", 10_000, 30_000, RETRY), Stamp("host", 90_000, 95_000)]
    found = true_terms(stamps, [EngineSpan("compute", 30_000, 90_000)], (0, 100_000), 2)
    assert found is not None
    assert (found["compute"], found["host"], found["total"]) == (40.0, 5.0, 50.0)
    assert true_terms([Stamp("fetch", 0, 10)], [EngineSpan("copying", 0, 10)], (0, 10), 4) is None


def test_steps_that_are_computed_in_several_pieces_are_as_many_samples() -> None:
    stamps = [Stamp("fetch", 0, 10_000), Stamp("fetch", 10_000, 20_000)]
    pieces = [EngineSpan("compute", at, at + 10_000) for at in range(20_000, 60_000, 10_000)]
    found = true_terms(stamps, pieces, (0, 60_000), 4)
    assert found is not None
    assert (found["compute"], found["input"], found["total"]) == (40 / 8, 20 / 8, 60 / 8)
