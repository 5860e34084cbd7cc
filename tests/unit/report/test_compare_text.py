"""Comparisons as text and as pictures, where no kept output has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from support.cells import NET_SETTING, NOTHING, Planned, training_result, with_facts, with_info
from support.rendered import rendered
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.cost import Price, place_of, setting_of
from whyidle.errors import WhyidleError
from whyidle.report.contract import comparison as compare_json
from whyidle.report.documents.comparison import comparison_document, comparison_title
from whyidle.report.page import compare_page
from whyidle.report.plot import CONFUSION, MOST_MATRICES, save_picture

NETS = ("alexnet", "googlenet", "resnet50", "inception", "vgg")
DATA = {"samples": 1200, "unit": "review", "stand_in": "the IMDb reviews"}


def printed(cells: Sequence[Cell], width: int = 80, **more: Any) -> str:
    """`more` is of the comparison's setting."""
    return rendered(comparison_document(compare(cells), NET_SETTING | more), width)


def words(text: str) -> str:
    """In one line."""
    return " ".join(text.split())


def rows_of(text: str) -> list[list[str]]:
    """Its words, line by line."""
    return [line.split() for line in text.splitlines()]


def content(cells: Sequence[Cell], **more: Any) -> dict[str, Any]:
    """The JSON."""
    found: dict[str, Any] = json.loads(json.dumps(compare_json.comparison(compare(cells), NET_SETTING | more)))
    return found


def of_nets(cells: list[Cell], nets: int = 4) -> list[Cell]:
    return [replace(cell, axes=cell.axes | {"net": net}) for net in NETS[:nets] for cell in cells]


def beside(cell: Cell, busy_pct: float) -> Cell:
    """With other programs on its machine of two CPUs."""
    sampled = replace(cell.facts[0].sampled, machine_busy_pct=busy_pct, tree_cpus=0.3)
    return with_facts(cell, machine_cpus=2, sampled=sampled)


def test_that_others_used_a_full_machine_is_said_above_the_table(planned: Planned) -> None:
    cells = [planned.cell(30, 20, pipeline=name) for name in ("naive", "workers")]
    said = "Other programs used up to 1.7 of 2 CPUs while this ran: expect other rates on a quiet machine."
    for busy_pct, told in ((100.0, True), (60.0, False)):
        crowded = [beside(cell, busy_pct) for cell in cells]
        text, page = words(printed(crowded)), compare_page.page(compare(crowded), NET_SETTING)
        assert [said in text.split("waits for")[0], said in page] == [told] * 2
        assert ("quiet machine" in text) == told


@pytest.mark.parametrize(
    ("runs", "busy_pct", "cautions"), [(1, 30.0, "is of one run"), (2, 99.0, "1.7 CPUs"), (2, 30, "")]
)
def test_costs_of_one_run_and_of_a_busy_machine_are_told_with_caution(
    planned: Planned, runs: int, busy_pct: float, cautions: str
) -> None:
    cell = beside(planned.cell(10, 30, results=(None,) * runs), busy_pct)
    priced = setting_of(lambda *_: Price(usd_per_hour=1.0), [place_of(cell)], None)
    told = words(printed([cell], cost=priced))
    said = [each for each in ("is of one run", "Other programs used 1.7 CPUs") if each in told]
    assert [cautions in each for each in said] == [True] * bool(cautions)


def test_with_every_axis_the_table_keeps_places_and_rates_in_80_columns(planned: Planned) -> None:
    first = planned.cell(1, 9)
    other = {"net": "inception", "device": "emulated:v100", "augment": False, "feed": "loader-only", "store": "lmdb"}
    other |= {"ranks": 2, "threads": 4, "workers": 8}
    shown = printed([first, replace(first, pipeline="prefetch", batch_size=256, axes=first.axes | other)])
    assert all(len(line) <= 80 for line in shown.splitlines())
    # Bar, range and cause give way, and places are folded; no figure is cut.
    assert {"v100", "lmdb", "256", "888.9"} <= set(words(shown).split())


def test_many_groups_get_a_line_each_and_many_like_verdicts_one(planned: Planned) -> None:
    starved, fed = planned.cell(20, 9, pipeline="naive"), planned.cell(2, 9)
    shown = printed(of_nets([starved, fed]))
    for net in NETS[:4]:
        assert [net, "workers", "8", "888.9", "2.2×", "naive", "at", "batch", "8"] in rows_of(shown)
    assert words(shown).count("a background thread") == 1
    slow = planned.cell(20, 9, store="files")
    stores = of_nets([slow, planned.cell(2, 9, store="lmdb")])
    assert "2.2× files" in words(printed(stores, width=120))
    assert "input.serial: all 5 cells. The device waits" in words(printed(of_nets([starved], 5)))
    both = [replace(slow, axes=slow.axes | {"store": store}) for store in ("files", "lmdb")]
    assert "input.serial: files; lmdb. The device waits" in words(printed(both))


def test_a_short_run_gets_a_question_mark_and_no_claim_of_augmentation(planned: Planned) -> None:
    cells = [
        planned.cell(12 if on else 1, compute_ms, device=device, augment=on)
        for device, compute_ms in (("emulated:k80", 44.0), ("emulated:v100", 8.0))
        for on in (False, True)
    ]
    shown = words(printed(cells))
    assert "A figure with ? is uncertain: one run of less than 5 s." in shown
    assert "+50 % ?" in shown
    assert "same code and data" not in shown


def test_of_many_unexpected_times_the_worst_are_told(planned: Planned) -> None:
    real = planned.cell(30, 5)
    loader = planned.cell(20, NOTHING, feed="loader-only")
    sides = [real, planned.cell(NOTHING, 5, feed="synthetic"), loader]
    assert "workers at batch 8 takes 50 % longer: these runs do not show why." in words(printed(sides))
    assert content(sides)["differential"][0]["reasons"][0]["code"] == "unknown"
    assert "Net alone, loader alone" not in printed(sides[:2])
    many = [replace(cell, axes=cell.axes | {"net": f"net{n}"}) for n in range(11) for cell in sides]
    shown = words(printed(many))
    assert shown.count("50 % longer") == 8
    assert "And 3 more are off by less." in shown


def test_a_loader_that_runs_alone_is_not_said_to_starve_anything(planned: Planned) -> None:
    cells = [planned.cell(20, NOTHING, feed="loader-only", pipeline=loader) for loader in ("naive", "workers")]
    shown = words(printed(cells))
    told = ("(no net)", "empty steps", "waits for data", "busy 0 %")
    assert [said in shown for said in told] == [True, True, False, False]
    assert [cell["verdict"] for cell in content(cells)["cells"]] == [None, None]
    real = [planned.cell(fetch, 9, pipeline=name) for name, fetch in (("naive", 20), ("workers", 2))]
    idle = planned.cell(NOTHING, 9, pipeline="synthetic", feed="synthetic", workers=0, augment=False)
    shown = printed([*real, idle])
    assert ["feed", "loader"] in [row[:2] for row in rows_of(shown)]
    assert "real: workers at batch 8" in words(shown)
    assert "no augmentation" not in shown


def test_axes_on_which_all_cells_stand_alike_are_told_above_the_table(planned: Planned) -> None:
    place = {"ranks": 2, "threads": 4, "interconnect": "pcie3", "store": "lmdb"}
    two = [planned.cell(1, 9, net=net, **place) for net in ("cnn1", "vgg")]
    assert "4 threads, 2 ranks, over pcie3, store lmdb" in words(printed(two))
    plain = words(printed([planned.cell(1, 9, net=net) for net in ("cnn1", "vgg")]))
    assert not [said for said in ("thread", "1 rank", "store", "over ") if said in plain[: plain.index("samples/s")]]


def in_order(text: str, *said: str) -> bool:
    places = [text.index(each) for each in said]
    return places == sorted(places)


def test_what_the_data_are_is_told_above_the_figures_and_in_titles(planned: Planned) -> None:
    cells = [planned.cell(1, 9)]
    shown = printed(cells, dataset=DATA)
    assert in_order(shown, "STAND-IN DATA: generated, in place of the IMDb reviews.", "1200 reviews", "samples/s")
    assert comparison_title(compare(cells), NET_SETTING | {"dataset": DATA}).endswith("stand-in data")
    assert "tand-in" not in printed(cells)
    assert "STAND-IN DATA (lstm)" in printed(cells, datasets={"mlp": NET_SETTING["dataset"], "lstm": DATA})
    data = {"samples": 320, "unit": "image", "stand_in": None, "set": "mine, not Fashion-MNIST"}
    shown = words(printed(cells, dataset=data, notices=["mine/x is not the published file."]))
    assert "320 images of mine, not Fashion-MNIST, 2 epochs a run" in shown
    assert in_order(shown, "mine/x is not the published file.", "samples/s")
    # Of recorded runs each says it itself.
    recorded = [with_info(cells[0], dataset=DATA)]
    assert comparison_title(compare(recorded), NET_SETTING | {"scenario": None}).endswith("stand-in data")
    assert "in place of the IMDb reviews." in printed(recorded, scenario=None)


def test_trainings_that_learnt_nothing_are_not_said_to_hold_or_to_fall(planned: Planned) -> None:
    cells = [
        planned.cell(1, 9, batch_size=size, results=(training_result(ap, average_precision=ap),))
        for size, ap in ((8, 0.040), (16, 0.042))
    ]
    assert "as the batch grows, AP says nothing after so little training (0.040 at 8, 0.042" in words(printed(cells))
    untaught = {"train_s": 3.0, "epochs": [], "evaluation": None}
    for result, told in ((untaught, True), (training_result(0.9), False)):
        shown = printed([planned.cell(1, 9, plan="25", results=(result,))])
        assert ("An emulated device learns nothing, so there is no accuracy." in shown) == told
    cells = [planned.cell(1, 9, results=(training_result(0.9),)), planned.cell(1, 9, batch_size=16)]
    tried, silent = content(cells)["cells"]
    assert "Acc" not in tried["results"][0]
    assert (silent["accuracy"], "results" in silent) == (None, False)


@pytest.mark.parametrize(("cells", "classes"), [(1, 10), (4, 3), (8, 3)])
def test_confusion_is_a_panel_a_cell(planned: Planned, tmp_path: Path, cells: int, classes: int) -> None:
    matrix = [[9 if row == column else 1 for column in range(classes)] for row in range(classes)]
    cell = planned.cell(1, 9, results=(training_result(0.9, confusion=matrix),))
    several = compare([replace(cell, axes=cell.axes | {"net": f"net{n}"}) for n in range(cells)])
    # One more is the scale of colours.
    panels = [axes for axes in CONFUSION.draw(several, NET_SETTING, "x").axes if axes.get_visible()]
    assert len(panels) == min(cells, MOST_MATRICES) + 1
    file = tmp_path / "confusion.png"
    save_picture(lambda: CONFUSION.draw(several, NET_SETTING, "fashion-mnist"), file)
    with Image.open(file) as picture:
        assert min(picture.size) > 400
    with pytest.raises(WhyidleError, match="nothing to draw"):
        CONFUSION.draw(compare([planned.cell(1, 9)]), NET_SETTING, "x")


def test_markup_in_names_is_shown_and_not_obeyed(planned: Planned) -> None:
    named = replace(planned.cell(20, 9), pipeline="[/x]")
    shown = words(printed([named, Cell("[/y]", 8, "failed", "a [broken] file")]))
    assert "[/y]: failed: a [broken] file" in shown
    assert shown.count("[/x]") == 2
