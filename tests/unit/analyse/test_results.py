"""What trainings came to."""

from __future__ import annotations

from typing import Any

import pytest

from support.cells import STEPS, Planned, training_result
from whyidle.analyse.cells.training_results import is_told, metrics_by_batch_size, results


def test_a_cell_is_the_mean_of_its_runs_and_keeps_each(planned: Planned) -> None:
    [found] = results([planned.cell(1, 2, results=(training_result(0.936, 3098.0), training_result(0.938, 3100.0)))])
    accuracy = found.metric("accuracy")
    assert accuracy is not None
    assert (accuracy.value, accuracy.low, accuracy.high, accuracy.repeats) == (pytest.approx(0.937), 0.936, 0.938, 2)
    assert [run.train_s for run in found.runs] == [3098.0, 3100.0]
    # Of the whole run, the warm-up included.
    assert [run.samples for run in found.runs] == [8 * STEPS] * 2
    assert found.metrics == ("accuracy", "loss")


def test_the_evaluation_leaves_the_confusion_out_which_is_summed_over_the_runs(planned: Planned) -> None:
    matrices = [[8, 2], [1, 9]], [[9, 1], [0, 10]]
    cell = planned.cell(
        1, 2, results=tuple(training_result(0.9, confusion=m, classes=["a", "b"], samples=20) for m in matrices)
    )
    [found] = results([cell])
    assert found.confusion == [[17, 3], [1, 19]]
    assert found.evaluation == {"accuracy": 0.9, "loss": 0.2, "classes": ["a", "b"], "samples": 20}
    assert found.classes == ["a", "b"]


def test_runs_that_told_nothing_have_no_result(planned: Planned) -> None:
    silent, untried = planned.cell(1, 2), planned.cell(1, 2, results=({"train_s": 3.0, "evaluation": None},))
    assert results([silent]) == ()
    [found] = results([untried])
    assert (found.evaluation, found.confusion, found.metrics, is_told(found)) == (None, None, (), False)


@pytest.mark.parametrize(
    ("small", "large", "says"),
    [
        ((0.700, 0.720), (0.705, 0.700), True),  # as much as repeats differ
        ((0.700, 0.702), (0.690, 0.691), False),
        ((0.700, 0.700), (0.695, 0.695), True),  # less than anybody would call a fall
        ((0.650,), (0.700,), True),
        ((0.700,), (0.650,), None),  # nothing was repeated
    ],
)
def test_accuracy_held_where_it_fell_by_no_more_than_repeats_differ(
    planned: Planned, small: tuple[float, ...], large: tuple[float, ...], says: bool | None
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=tuple(map(training_result, of_runs)))
        for size, of_runs in ((64, large), (8, small))
    ]
    [found] = metrics_by_batch_size(results(cells))
    assert found.metric == "accuracy"  # a loss is no merit
    assert [cell.batch_size for cell in found.cells] == [8, 64]
    assert found.held is says


def test_sizes_are_set_beside_each_other_only_where_all_else_is_the_same(planned: Planned) -> None:
    cells = [
        planned.cell(1, 2, net="a", results=(training_result(0.9),)),
        planned.cell(1, 2, net="b", batch_size=64, results=(training_result(0.5),)),
    ]
    assert metrics_by_batch_size(results(cells)) == ()


@pytest.mark.parametrize(
    ("accuracies", "more", "learnt"),
    [
        ((0.15, 0.12), {"classes": [str(n) for n in range(10)]}, False),
        ((0.85, 0.12), {"classes": [str(n) for n in range(10)]}, True),
        ((0.55, 0.52), {"confusion": [[5, 5], [4, 6]]}, False),
        ((0.80, 0.52), {"confusion": [[8, 2], [2, 8]]}, True),
        ((0.04, 0.042), {"average_precision": 0.04, "recall": 0.6}, False),
    ],
)
def test_whether_nets_learnt_is_judged_by_what_chance_gives(
    planned: Planned, accuracies: tuple[float, float], more: dict[str, Any], learnt: bool
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=(training_result(accuracy, **more),))
        for size, accuracy in zip((8, 16), accuracies, strict=True)
    ]
    assert {each.learnt for each in metrics_by_batch_size(results(cells))} == {learnt}
