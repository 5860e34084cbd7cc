"""Comparisons whose cells differ in more than loader and batch size: as text, as JSON, as a picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.cells import NET_SETTING, NOTHING, Planned
from support.compared import content, printed, rows_of, words
from whyidle.analyse.cells.cell_costs import place_of, setting_of
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.prices import Price
from whyidle.report.document import FittingColumn
from whyidle.report.page import compare_page
from whyidle.report.render.fitted import fitting


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
    assert said in compare_page.page(compare(with_others(100.0)), NET_SETTING)
    for quiet in (cells, with_others(60.0)):
        assert "quiet machine" not in printed(quiet)
        assert "quiet machine" not in compare_page.page(compare(quiet), NET_SETTING)


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
