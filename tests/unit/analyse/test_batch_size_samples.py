"""Times of a larger batch that are not its slowness: more samples, beginnings of epochs, work that was covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.batch_sweeps import always, judged, steady
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.scenarios.planted import MS, PlantedWorkers, Step, train


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
        steady(first_ms=8, epochs=batch, samples=lambda batch: batch * per_epoch, sync=always)(folder, batch)

    verdict = judged(tmp_path, run, 8, 16)
    assert (verdict.cause, verdict.grew) == ("pipeline_fill", "input")
    half = judged(tmp_path / "same", steady(first_ms=8, epochs=8, sync=always), 8, 16)
    longer = half.work[16].seconds / half.work[8].seconds
    assert longer > 1.1
    assert "the rest is more samples" in verdict.text
    assert "more samples" not in half.text


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


def test_accounting_says_which_part_grew_behind_what_computing_saved(tmp_path: Path) -> None:
    run = steady(load_ms=3, compute_ms=0.5, fixed_ms=16, samples=lambda batch: 80 * batch)
    verdict = judged(tmp_path, run, 8, 32)
    assert (verdict.cause, verdict.grew) == ("accounting", "input")
    assert "Of its parts input grew from" in verdict.text


def test_terms_add_up_to_the_time_per_sample(tmp_path: Path) -> None:
    run = steady(load_ms=3, copy_bytes=lambda batch: batch * 10**5, host_ns=lambda _: MS, sync=always)
    verdict = judged(tmp_path, run, 8, 16, 64)
    for terms in verdict.terms.values():
        assert sum(terms[part].value for part in PARTS) == pytest.approx(terms[TOTAL].value)
    assert sum(verdict.changes[part].value for part in PARTS) == pytest.approx(verdict.changes[TOTAL].value)
    assert verdict.terms[16][TOTAL].value == pytest.approx(4000, rel=0.1)
    assert verdict.medians[16] == pytest.approx({name: term.value for name, term in verdict.terms[16].items()})
