"""Comparisons whose cells differ in more than loader and batch size: as text, as JSON, as a picture."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

from support.cells import Planned
from whyidle.analyse.cells.cell_costs import place_of, setting_of
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.prices import Price
from whyidle.errors import WhyidleError
from whyidle.report.contract import comparison as compare_json
from whyidle.report.document import FittingColumn
from whyidle.report.documents.comparison import comparison_document, comparison_title
from whyidle.report.page import compare_page
from whyidle.report.plot.confusion import MOST_PANELS, panels, write_confusion
from whyidle.report.render.fitted import fitting
from whyidle.report.render.text import print_document

SETTING: dict[str, Any] = {
    "scenario": "fashion-mnist",
    "experiment": "nets",
    "question": "Where does augmentation cost time?",
    "net": "cnn1, vgg",
    "device": {"kind": "emulated", "title": "emulated K80, emulated V100"},
    "cpu_budget": 2.0,
    "workers": 2,
    "stop": {"epochs": 2},
    "repeats": 2,
    "augment": None,
    "dataset": {"samples": 48_000, "unit": "image", "stand_in": None},
}
NOTHING = 0.001


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    return Planned(tmp_path)


def printed(cells: Sequence[Cell], width: int = 80, **more: Any) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, color_system=None)
    print_document(comparison_document(compare(cells), SETTING | more), console)
    return file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def test_that_others_used_a_full_machine_is_said_above_the_table(planned: Planned) -> None:
    cells = [planned.cell(30, 20, pipeline=name) for name in ("naive", "workers")]

    def with_others(busy_pct: float) -> list[Cell]:
        return [
            replace(
                cell,
                analyses=tuple(
                    replace(
                        each,
                        facts=replace(
                            each.facts,
                            machine_cpus=2,
                            sampled=replace(each.facts.sampled, machine_busy_pct=busy_pct, tree_cpus=0.3),
                        ),
                    )
                    for each in cell.analyses
                    if each.facts
                ),
            )
            for cell in cells
        ]

    said = "Other programs used up to 1.7 of 2 CPUs while this ran: these rates are not those of a quiet machine."
    text = words(printed(with_others(100.0)))
    assert text.index(said) < text.index("waits for")
    assert said in compare_page.page(compare(with_others(100.0)), SETTING)
    for quiet in (cells, with_others(60.0)):
        assert "quiet machine" not in printed(quiet)
        assert "quiet machine" not in compare_page.page(compare(quiet), SETTING)


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def content(cells: Sequence[Cell], **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(compare_json.comparison(compare(cells), SETTING | more)))
    return found


def study(planned: Planned) -> list[Cell]:
    """A net on a slow and a fast device, with and without augmentation, and both sides of each."""
    cells, twice = [], (None, None)
    for device, compute_ms in (("emulated:k80", 44.0), ("emulated:v100", 8.0)):
        cells += [
            planned.cell(12 if on else 1, compute_ms, device=device, augment=on, results=twice) for on in (False, True)
        ]
        cells.append(planned.cell(NOTHING, compute_ms, device=device, feed="synthetic", augment=False))
    cells += [planned.cell(12 if on else 1, NOTHING, feed="loader-only", augment=on) for on in (False, True)]
    return cells


def told(accuracy: float, seconds: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"train_s": seconds, "epochs": [], "evaluation": {"accuracy": accuracy, "loss": 0.2, **more}}


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_column_for_each_axis_that_varies_and_fits(planned: Planned, width: int) -> None:
    shown = printed(study(planned), width)
    assert all(len(line) <= width for line in shown.splitlines())
    assert ["device", "augm.", "feed"] in [row[:3] for row in rows_of(shown)]
    assert ["k80", "off", "real"] in [row[:3] for row in rows_of(shown)]
    # What is the same everywhere is said once.
    assert "loader workers, batch 8," in words(shown)
    assert "emulated samples/s" in shown


def test_with_every_axis_the_table_keeps_places_and_rates_in_80_columns(planned: Planned) -> None:
    first = planned.cell(1, 9)
    other = {"net": "inception", "device": "emulated:v100", "augment": False, "feed": "loader-only", "store": "lmdb"}
    other |= {"ranks": 2, "threads": 4, "workers": 8}
    cells = [first, replace(first, pipeline="prefetch", batch_size=256, axes=first.axes | other)]
    shown = printed(cells)
    assert all(len(line) <= 80 for line in shown.splitlines())
    # Too many for columns of their own: the places become words, folded beside the figures.
    row = words(shown[shown.index("inception") :]).replace("888.9 ", "")
    assert row.startswith("inception v100 no augmentation loader-only lmdb 2 ranks 4 threads 8 workers prefetch 256")
    assert shown.count("888.9") >= 2


def test_stand_in_data_are_told_above_the_figures_and_in_titles(planned: Planned) -> None:
    data = {"samples": 1200, "unit": "review", "stand_in": "the IMDb reviews"}
    cells = [planned.cell(1, 9)]
    shown = printed(cells, dataset=data)
    assert shown.index("STAND-IN DATA: generated, in place of the IMDb reviews.") < shown.index("samples/s")
    assert "1200 reviews" in shown
    assert comparison_title(compare(cells), SETTING | {"dataset": data}).endswith("stand-in data")
    assert "tand-in" not in printed(cells)
    of_one = printed(cells, datasets={"mlp": SETTING["dataset"], "lstm": data})
    assert "STAND-IN DATA (lstm)" in of_one


def test_every_group_has_a_winner_of_its_own_and_all_together_none(planned: Planned) -> None:
    cells = [
        planned.cell(fetch_ms, 9, pipeline=loader, net=net, batch_size=16)
        for net in ("cnn1", "vgg")
        for loader, fetch_ms in (("naive", 20), ("workers", 2))
    ]
    found = content(cells)
    assert found["best"] is None
    assert [(group["axes"], group["best"]["pipeline"]) for group in found["groups"]] == [
        ({"net": "cnn1"}, "workers"),
        ({"net": "vgg"}, "workers"),
    ]
    assert found["cells"][0]["net"] == "cnn1"
    shown = words(printed(cells))
    assert "cnn1: workers at batch 16: 1777.8 samples/s, the emulated device busy 100 %." in shown
    assert "vgg: workers at batch 16: 1777.8" in shown


def test_many_groups_get_a_line_each(planned: Planned) -> None:
    starved, fed = planned.cell(20, 9, pipeline="naive"), planned.cell(2, 9)
    nets = ("alexnet", "googlenet", "resnet50", "inception")
    cells = [replace(cell, axes=cell.axes | {"net": net}) for net in nets for cell in (starved, fed)]
    shown = printed(cells)
    for net in nets:
        assert [net, "workers", "8", "888.9", "2.2", "x", "naive", "8"] in rows_of(shown)
    assert words(shown).count("Next: ") == 1  # one paragraph a cause


def test_where_stores_differ_the_slowest_is_named_with_its_loader(planned: Planned) -> None:
    slow, fast = (planned.cell(fetch, 9, store=store) for fetch, store in ((20, "files"), (2, "lmdb")))
    nets = ("alexnet", "googlenet", "resnet50", "inception")
    cells = [replace(cell, axes=cell.axes | {"net": net}) for net in nets for cell in (slow, fast)]
    assert "2.2 x workers files" in words(printed(cells, width=120))


def test_the_three_sides_are_set_beside_each_other(planned: Planned) -> None:
    cells = study(planned)
    shown = printed(cells)
    assert ["v100", "on", "1000", "667", "667", "667", "0", "%", "loader"] in [row[:9] for row in rows_of(shown)]
    assert "4 of 4. The loader is the floor in 1 of 4. The net is the limit in 3 of 4." in words(shown)
    assert "Not as expected" not in shown
    found = content(cells)["differential"]
    assert [(each["device"], each["augment"], each["limit"]) for each in found] == [
        ("emulated:k80", False, "net"),
        ("emulated:k80", True, "net"),
        ("emulated:v100", False, "net"),
        ("emulated:v100", True, "loader"),
    ]
    assert set(found[0]) >= {
        *("pipeline", "batch_size", "net_alone", "loader_alone", "expected", "measured", "epoch_s"),
        *("deviation_pct", "agrees", "overlaps", "limit", "reasons"),
    }
    assert found[3]["epoch_s"]["measured"] == pytest.approx(72, rel=0.01)


def test_that_augmentation_is_free_on_one_device_and_not_on_another_is_said_in_a_sentence(planned: Planned) -> None:
    cells = study(planned)
    assert (
        "vgg, the same code and data: augmentation is free on k80 and costs 50 % on v100, where the loader is the "
        "floor."
    ) in words(printed(cells))
    free, dear = content(cells)["augmentation"]
    assert (free["free"], dear["free"]) == (True, False)
    assert dear["cost_pct"] == pytest.approx(50, abs=1)


def test_a_short_run_gets_a_question_mark_and_no_claim_of_augmentation(planned: Planned) -> None:
    cells = [
        planned.cell(12 if on else 1, compute_ms, device=device, augment=on)
        for device, compute_ms in (("emulated:k80", 44.0), ("emulated:v100", 8.0))
        for on in (False, True)
    ]
    shown = words(printed(cells))
    assert "free ?" in shown
    assert "+50 % ?" in shown
    assert "?: one run of less than 5 s." in shown
    assert "the same code and data" not in shown


def test_where_neither_side_ran_alone_nothing_is_set_beside_the_training(planned: Planned) -> None:
    cells = [planned.cell(20, 5), planned.cell(NOTHING, 5, feed="synthetic")]
    assert "Net alone, loader alone" not in printed(cells)


def test_costs_of_one_run_and_of_a_busy_machine_are_told_with_caution(planned: Planned) -> None:
    def costs(runs: int, busy: float) -> str:
        cell = planned.cell(10, 30, results=(None,) * runs)
        facts = [
            replace(f, machine_cpus=2, sampled=replace(f.sampled, machine_busy_pct=busy, tree_cpus=0.5))
            for f in cell.facts
        ]
        cell = replace(cell, analyses=tuple(replace(a, facts=f) for a, f in zip(cell.analyses, facts, strict=True)))
        priced = setting_of(lambda *_: Price(usd_per_hour=1.0), [place_of(cell)], None)
        return words(printed([cell], cost=priced))

    assert "Costs of one run each may differ by 5 %" in costs(1, 30.0)
    assert "one run each" not in costs(2, 30.0)
    assert "Other programs used 1.5 CPUs" in costs(2, 99.0)
    assert "Other programs" not in costs(2, 30.0)


def test_a_plan_on_an_emulated_device_says_that_nothing_is_learnt(planned: Planned) -> None:
    cells = [planned.cell(1, 9, plan="25", results=({"train_s": 3.0, "epochs": [], "evaluation": None},))]
    assert "An emulated device learns nothing: no accuracy." in printed(cells)
    assert "learns nothing" not in printed([planned.cell(1, 9, plan="25", results=(told(0.9),))])


def test_nets_that_learnt_nothing_neither_held_nor_fell(planned: Planned) -> None:
    cells = [
        planned.cell(1, 9, batch_size=size, results=(told(ap, average_precision=ap),))
        for size, ap in ((8, 0.040), (16, 0.042))
    ]
    assert "AP as the batch grows: too little training to tell (0.040 at 8, 0.042 at 16)" in words(printed(cells))


def test_the_same_verdict_of_many_cells_is_told_once(planned: Planned) -> None:
    starved = planned.cell(20, 9)
    nets = ("alexnet", "googlenet", "resnet50", "inception", "vgg")
    many = words(printed([replace(starved, axes=starved.axes | {"net": net}) for net in nets]))
    assert ": all 5 cells. The device waits" in many
    of_two = words(printed([replace(starved, axes=starved.axes | {"store": store}) for store in ("files", "lmdb")]))
    assert "workers (files, batch 8); workers (lmdb, batch 8): The device waits" in of_two


def test_what_a_loader_makes_is_not_told_twice_where_it_was_measured_alone(planned: Planned) -> None:
    real = [planned.cell(fetch, 9, pipeline=loader) for loader, fetch in (("naive", 20), ("workers", 2))]
    assert "working all the time" in words(printed([planned_making(each) for each in real]))
    alone = planned.cell(20, NOTHING, pipeline="naive", feed="loader-only")
    assert "working all the time" not in words(printed([*map(planned_making, real), alone]))


def planned_making(cell: Cell) -> Cell:
    """As if its loader had told how fast it could be."""
    analyses = tuple(
        replace(each, facts=replace(each.facts, loader=replace(each.facts.loader, samples_per_s_limit=500.0)))
        for each in cell.analyses
        if each.facts
    )
    return replace(cell, analyses=analyses)


def test_the_strips_say_emulated_and_what_their_rows_are(planned: Planned) -> None:
    two = [planned.cell(2, 9, net=net) for net in ("cnn1", "vgg")]
    shown = printed(two)
    below = shown[shown.index("The emulated device at work") :]
    assert below.splitlines()[1].split()[0] == "cell"
    assert "loader, batch" in printed(two[:1])
    on_a_gpu = {"device": {"kind": "cuda", "title": "H200"}}
    assert "The device at work" in printed(two, **on_a_gpu)


def test_a_training_that_takes_longer_than_both_sides_is_told_with_a_reason(planned: Planned) -> None:
    cells = [
        planned.cell(30, 5),
        planned.cell(NOTHING, 5, feed="synthetic"),
        planned.cell(20, NOTHING, feed="loader-only"),
    ]
    assert "Not as expected: workers 8: 50 % longer: these runs do not show why." in words(printed(cells))
    assert content(cells)["differential"][0]["reasons"][0]["code"] == "unknown"


def test_of_many_unexpected_times_the_worst_are_told(planned: Planned) -> None:
    real, net, loader = (
        planned.cell(30, 5),
        planned.cell(NOTHING, 5, feed="synthetic"),
        planned.cell(20, NOTHING, feed="loader-only"),
    )
    cells = [replace(cell, axes=cell.axes | {"net": f"net{n}"}) for n in range(11) for cell in (real, net, loader)]
    shown = words(printed(cells))
    assert shown.count("50 % longer") == 8
    assert "and 3 more that are off by less." in shown


def test_a_loader_that_runs_alone_is_not_said_to_starve_anything(planned: Planned) -> None:
    cells = [planned.cell(20, NOTHING, feed="loader-only", pipeline=loader) for loader in ("naive", "workers")]
    shown = printed(cells)
    assert "waits for data" not in words(shown)
    assert "busy 0 %" not in shown
    assert "(no net)" in shown
    assert "steps that do nothing" in shown
    assert [cell["verdict"] for cell in content(cells)["cells"]] == [None, None]


def test_cells_that_load_nothing_stand_on_no_axis_of_loading(planned: Planned) -> None:
    cells = [
        *(planned.cell(fetch_ms, 9, pipeline=loader) for loader, fetch_ms in (("naive", 20), ("workers", 2))),
        planned.cell(NOTHING, 9, pipeline="synthetic", feed="synthetic", workers=0, augment=False),
    ]
    shown = printed(cells)
    assert ["feed", "loader"] in [row[:2] for row in rows_of(shown)]
    assert "real: workers at batch 8" in words(shown)
    assert "no augmentation" not in shown


def test_what_trainings_came_to_is_told_of_each_run(planned: Planned) -> None:
    results = (told(0.936, 3098.0), told(0.938, 3100.0))
    cells = [planned.cell(1, 9, results=results, plan=plan) for plan in ("25", "50")]
    shown = words(printed(cells, width=120))
    assert "0.936 in 3098.0 s" in shown
    assert "0.938 in 3100.0 s" in shown
    first, _ = content(cells)["cells"]
    assert first["accuracy"] == {"accuracy": pytest.approx(0.937), "loss": 0.2}
    assert [(run["Acc"], run["Time"]) for run in first["results"]] == [(0.936, 3098.0), (0.938, 3100.0)]


def test_without_a_plan_the_articles_keys_are_left_out_and_without_results_all_of_them(planned: Planned) -> None:
    tried, silent = content([planned.cell(1, 9, results=(told(0.9),)), planned.cell(1, 9, batch_size=16)])["cells"]
    assert "Acc" not in tried["results"][0]
    assert silent["accuracy"] is None
    assert "results" not in silent


def test_accuracy_by_batch_size_is_said_to_hold_or_to_fall(planned: Planned) -> None:
    cells = [
        planned.cell(1, 9, batch_size=size, results=tuple(told(0, precision=p, recall=0.6) for p in precisions))
        for size, precisions in ((8, (0.70, 0.72)), (64, (0.71, 0.70)), (192, (0.60, 0.61)))
    ]
    shown = words(printed(cells))
    assert "workers, precision as the batch grows: fell (0.710 at 8, 0.705 at 64, 0.605 at 192; repeats differ" in shown
    assert "workers, recall as the batch grows: held (0.600 at 8" in shown
    # 40 steps each, of 8 to 192 samples: hours would compare different work.
    assert "processed 320 to 7680 samples: their times are of different work. Compare samples/s." in shown


def test_the_confusion_matrix_is_printed_with_the_names_of_classes(planned: Planned) -> None:
    matrix = [[90, 10, 0], [4, 95, 1], [0, 0, 100]]
    cell = planned.cell(1, 9, results=(told(0.95, confusion=matrix),))
    shown = printed([cell], dataset=SETTING["dataset"] | {"classes": ["shirt", "T-shirt", "boot"]})
    assert ["shirt", "0", "90", "10", "0"] in rows_of(shown)
    assert "Most often taken for another: shirt for T-shirt (10 %), T-shirt for shirt (4 %)" in words(shown)
    assert "confusion" not in content([cell])["cells"][0]["accuracy"]
    assert content([cell])["cells"][0]["results"][0]["evaluation"]["confusion"] == matrix


@pytest.mark.parametrize(("cells", "classes"), [(1, 10), (4, 3), (8, 40)])
def test_confusion_is_drawn_a_panel_a_cell(planned: Planned, tmp_path: Path, cells: int, classes: int) -> None:
    matrix = [[9 if row == column else 1 for column in range(classes)] for row in range(classes)]
    cell = planned.cell(1, 9, results=(told(0.9, confusion=matrix),))
    several = compare([replace(cell, axes=cell.axes | {"net": f"net{n}"}) for n in range(cells)])
    assert len(panels(several, SETTING)) == min(cells, MOST_PANELS)
    file = tmp_path / "confusion.png"
    write_confusion(several, SETTING, "fashion-mnist", file)
    with Image.open(file) as picture:
        assert min(picture.size) > 400


def test_without_a_matrix_no_confusion_is_drawn(planned: Planned, tmp_path: Path) -> None:
    with pytest.raises(WhyidleError, match="nothing to draw"):
        write_confusion(compare([planned.cell(1, 9)]), SETTING, "x", tmp_path / "a.png")


def test_columns_go_from_the_least_important_on_until_the_rest_fits() -> None:
    columns = [
        FittingColumn("place", ["somewhere"]),
        FittingColumn("bar", ["#" * 20], goes=2),
        FittingColumn("rate (range)", ["12.3 (12-13)"], goes=1, instead=FittingColumn("rate", ["12.3"])),
    ]
    for width, heads in (
        (80, ["place", "bar", "rate (range)"]),
        (40, ["place", "rate (range)"]),
        (16, ["place", "rate"]),
    ):
        assert [column.head for column in fitting(columns, width)] == heads


def test_axes_on_which_all_cells_stand_alike_are_told_above_the_table(planned: Planned) -> None:
    place = {"ranks": 2, "threads": 4, "interconnect": "pcie3", "store": "lmdb"}
    shown = words(printed([planned.cell(1, 9, net=net, **place) for net in ("cnn1", "vgg")]))
    assert "4 threads, 2 ranks, over pcie3, store lmdb" in shown
    plain = words(printed([planned.cell(1, 9, net=net) for net in ("cnn1", "vgg")]))
    assert not [said for said in ("thread", "1 rank", "store", "over ") if said in plain[: plain.index("samples/s")]]


def test_what_the_data_are_and_what_is_wrong_with_them_is_told(planned: Planned) -> None:
    data = {"samples": 320, "unit": "image", "stand_in": None, "set": "mine, not Fashion-MNIST"}
    shown = words(printed([planned.cell(1, 9)], dataset=data, notices=["mine/x is not the published file."]))
    assert "320 images of mine, not Fashion-MNIST, 2 epochs a run" in shown
    assert shown.index("mine/x is not the published file.") < shown.index("samples/s")


def test_recorded_runs_on_generated_data_are_told_so(planned: Planned) -> None:
    cell = planned.cell(1, 9)
    data = {"samples": 50, "unit": "image", "stand_in": "CIFAR-10"}
    cell = replace(cell, analyses=tuple(replace(each, info=each.info | {"dataset": data}) for each in cell.analyses))
    setting = SETTING | {"scenario": None}
    assert comparison_title(compare([cell]), setting).endswith("stand-in data")
    assert "in place of CIFAR-10." in printed([cell], scenario=None)
