"""What the trainings of a comparison came to: accuracy, what was taken for what, and data that stand in for others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from support.cells import NET_SETTING, Planned, training_result
from support.compared import content, printed, rows_of, words
from whyidle.analyse.cells.comparison import compare
from whyidle.errors import WhyidleError
from whyidle.report.documents.comparison import comparison_title
from whyidle.report.plot.confusion import MOST_PANELS, panels, write_confusion


def test_stand_in_data_are_told_above_the_figures_and_in_titles(planned: Planned) -> None:
    data = {"samples": 1200, "unit": "review", "stand_in": "the IMDb reviews"}
    cells = [planned.cell(1, 9)]
    shown = printed(cells, dataset=data)
    assert shown.index("STAND-IN DATA: generated, in place of the IMDb reviews.") < shown.index("samples/s")
    assert "1200 reviews" in shown
    assert comparison_title(compare(cells), NET_SETTING | {"dataset": data}).endswith("stand-in data")
    assert "tand-in" not in printed(cells)
    of_one = printed(cells, datasets={"mlp": NET_SETTING["dataset"], "lstm": data})
    assert "STAND-IN DATA (lstm)" in of_one


def test_a_plan_on_an_emulated_device_says_that_nothing_is_learnt(planned: Planned) -> None:
    cells = [planned.cell(1, 9, plan="25", results=({"train_s": 3.0, "epochs": [], "evaluation": None},))]
    assert "An emulated device learns nothing: no accuracy." in printed(cells)
    assert "learns nothing" not in printed([planned.cell(1, 9, plan="25", results=(training_result(0.9),))])


def test_nets_that_learnt_nothing_neither_held_nor_fell(planned: Planned) -> None:
    cells = [
        planned.cell(1, 9, batch_size=size, results=(training_result(ap, average_precision=ap),))
        for size, ap in ((8, 0.040), (16, 0.042))
    ]
    assert "AP as the batch grows: too little training to tell (0.040 at 8, 0.042 at 16)" in words(printed(cells))


def test_what_trainings_came_to_is_told_of_each_run(planned: Planned) -> None:
    results = (training_result(0.936, 3098.0), training_result(0.938, 3100.0))
    cells = [planned.cell(1, 9, results=results, plan=plan) for plan in ("25", "50")]
    shown = words(printed(cells, width=120))
    assert "0.936 in 3098.0 s" in shown
    assert "0.938 in 3100.0 s" in shown
    first, _ = content(cells)["cells"]
    assert first["accuracy"] == {"accuracy": pytest.approx(0.937), "loss": 0.2}
    assert [(run["Acc"], run["Time"]) for run in first["results"]] == [(0.936, 3098.0), (0.938, 3100.0)]


def test_without_a_plan_the_articles_keys_are_left_out_and_without_results_all_of_them(planned: Planned) -> None:
    tried, silent = content([planned.cell(1, 9, results=(training_result(0.9),)), planned.cell(1, 9, batch_size=16)])[
        "cells"
    ]
    assert "Acc" not in tried["results"][0]
    assert silent["accuracy"] is None
    assert "results" not in silent


def test_accuracy_by_batch_size_is_said_to_hold_or_to_fall(planned: Planned) -> None:
    cells = [
        planned.cell(
            1, 9, batch_size=size, results=tuple(training_result(0, precision=p, recall=0.6) for p in precisions)
        )
        for size, precisions in ((8, (0.70, 0.72)), (64, (0.71, 0.70)), (192, (0.60, 0.61)))
    ]
    shown = words(printed(cells))
    assert "workers, precision as the batch grows: fell (0.710 at 8, 0.705 at 64, 0.605 at 192; repeats differ" in shown
    assert "workers, recall as the batch grows: held (0.600 at 8" in shown
    # 40 steps each, of 8 to 192 samples: hours would compare different work.
    assert "processed 320 to 7680 samples: their times are of different work. Compare samples/s." in shown


def test_the_confusion_matrix_is_printed_with_the_names_of_classes(planned: Planned) -> None:
    matrix = [[90, 10, 0], [4, 95, 1], [0, 0, 100]]
    cell = planned.cell(1, 9, results=(training_result(0.95, confusion=matrix),))
    shown = printed([cell], dataset=NET_SETTING["dataset"] | {"classes": ["shirt", "T-shirt", "boot"]})
    assert ["shirt", "0", "90", "10", "0"] in rows_of(shown)
    assert "Most often taken for another: shirt for T-shirt (10 %), T-shirt for shirt (4 %)" in words(shown)
    assert "confusion" not in content([cell])["cells"][0]["accuracy"]
    assert content([cell])["cells"][0]["results"][0]["evaluation"]["confusion"] == matrix


@pytest.mark.parametrize(("cells", "classes"), [(1, 10), (4, 3), (8, 40)])
def test_confusion_is_drawn_a_panel_a_cell(planned: Planned, tmp_path: Path, cells: int, classes: int) -> None:
    matrix = [[9 if row == column else 1 for column in range(classes)] for row in range(classes)]
    cell = planned.cell(1, 9, results=(training_result(0.9, confusion=matrix),))
    several = compare([replace(cell, axes=cell.axes | {"net": f"net{n}"}) for n in range(cells)])
    assert len(panels(several, NET_SETTING)) == min(cells, MOST_PANELS)
    file = tmp_path / "confusion.png"
    write_confusion(several, NET_SETTING, "fashion-mnist", file)
    with Image.open(file) as picture:
        assert min(picture.size) > 400


def test_without_a_matrix_no_confusion_is_drawn(planned: Planned, tmp_path: Path) -> None:
    with pytest.raises(WhyidleError, match="nothing to draw"):
        write_confusion(compare([planned.cell(1, 9)]), NET_SETTING, "x", tmp_path / "a.png")


def test_what_the_data_are_and_what_is_wrong_with_them_is_told(planned: Planned) -> None:
    data = {"samples": 320, "unit": "image", "stand_in": None, "set": "mine, not Fashion-MNIST"}
    shown = words(printed([planned.cell(1, 9)], dataset=data, notices=["mine/x is not the published file."]))
    assert "320 images of mine, not Fashion-MNIST, 2 epochs a run" in shown
    assert shown.index("mine/x is not the published file.") < shown.index("samples/s")


def test_recorded_runs_on_generated_data_are_told_so(planned: Planned) -> None:
    cell = planned.cell(1, 9)
    data = {"samples": 50, "unit": "image", "stand_in": "CIFAR-10"}
    cell = replace(cell, analyses=tuple(replace(each, info=each.info | {"dataset": data}) for each in cell.analyses))
    setting = NET_SETTING | {"scenario": None}
    assert comparison_title(compare([cell]), setting).endswith("stand-in data")
    assert "in place of CIFAR-10." in printed([cell], scenario=None)
