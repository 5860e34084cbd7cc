"""What a larger batch did: each mechanism this version names, planted on the virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.analyse.batch_size import BatchVerdict, batch_verdict
from stallscope.analyse.facts import Facts, facts_of
from stallscope.record.run import open_run
from stallscope.scenarios.planted import MS, Step, train


def run(folder: Path, batch: int, per_sample_ms: float, compute_ms: float, steps: int, first_ms: float = 0) -> Facts:
    """Loader and device times per sample; `first_ms` per sample more for the first batch of each of 4 epochs."""
    rest = [Step(round(batch * per_sample_ms * MS), round(batch * compute_ms * MS))] * (steps // 4 - 1)
    first = Step(round(batch * (per_sample_ms + first_ms) * MS), round(batch * compute_ms * MS))
    train(folder, [[first, *rest]] * 4, samples=batch)
    facts = facts_of(open_run(folder))
    assert facts is not None
    return facts


def judged(tmp_path: Path, **changes: dict[str, float]) -> BatchVerdict:
    """Two sizes, two repeats each; `small` and `large` say how."""
    cells = {}
    for name, how in changes.items():
        batch = int(how.pop("batch"))
        cells[batch] = [run(tmp_path / f"{name}{repeat}", batch, **how) for repeat in range(2)]
    verdict = batch_verdict(cells)
    assert verdict is not None
    return verdict


def test_one_size_is_no_sweep(tmp_path: Path) -> None:
    assert batch_verdict({8: [run(tmp_path / "run", 8, 1, 1, 40)], 16: []}) is None


def test_a_loader_that_sets_the_pace_is_a_floor(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 3, "compute_ms": 1, "steps": 80},
        large={"batch": 16, "per_sample_ms": 3, "compute_ms": 1, "steps": 40},
    )
    assert (verdict.cause, verdict.grew) == ("loader_floor", None)
    # 24 ms of loading behind 8 ms of computing at batch 8, twice as much at 16: the gap doubles, the share stays.
    assert "16 ms at batch 8 and 32 ms at batch 16" in verdict.text


def test_the_same_iterations_process_more_images_and_are_not_slower(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 3, "compute_ms": 1, "steps": 80},
        large={"batch": 16, "per_sample_ms": 3, "compute_ms": 1, "steps": 80},
    )
    assert verdict.cause == "accounting"
    assert "more images" in verdict.text


def test_a_device_that_computes_all_the_time_is_saturated(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 0.1, "compute_ms": 2, "steps": 80},
        large={"batch": 16, "per_sample_ms": 0.1, "compute_ms": 2, "steps": 40},
    )
    assert verdict.cause == "saturated"


def test_a_faster_larger_batch_needs_no_cause(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 0.1, "compute_ms": 2, "steps": 80},
        large={"batch": 16, "per_sample_ms": 0.1, "compute_ms": 1, "steps": 40},
    )
    assert (verdict.cause, "faster" in verdict.text) == ("none", True)


def test_growing_computation_is_named(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 0.1, "compute_ms": 1, "steps": 80},
        large={"batch": 16, "per_sample_ms": 0.1, "compute_ms": 2, "steps": 40},
    )
    assert (verdict.cause, verdict.grew) == ("compute_growth", "compute")


def test_first_batches_that_take_longer_are_pipeline_fill(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 0.1, "compute_ms": 1, "steps": 160, "first_ms": 60},
        large={"batch": 32, "per_sample_ms": 0.1, "compute_ms": 1, "steps": 40, "first_ms": 60},
    )
    assert (verdict.cause, verdict.grew) == ("pipeline_fill", "input")


def test_terms_add_up_to_the_time_per_sample(tmp_path: Path) -> None:
    verdict = judged(
        tmp_path,
        small={"batch": 8, "per_sample_ms": 3, "compute_ms": 1, "steps": 80},
        large={"batch": 16, "per_sample_ms": 3, "compute_ms": 1, "steps": 40},
    )
    for terms in verdict.terms.values():
        parts = sum(terms[p].median for p in ("compute", "input", "copy", "sync", "host", "boundary"))
        assert parts == pytest.approx(terms["total"].median)
        assert terms["total"].median == pytest.approx(3000, rel=0.1)
