"""The stacks on the page of a run: who stood where, in boxes as wide as their share of the looks."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from support.crafted import train_on_cpu
from support.planted_runs import PlantedWorkers, Step, pooled, until
from support.planted_stacks import (
    DECODING,
    FETCHING,
    FORWARD,
    MAIN,
    MONITORING,
    OPENING,
    TORCH,
    WAITING,
    WORKER,
    look,
    plant_stacks,
)
from support.run_pages import CHROMIUM, page_of, told_by
from whyidle.record.run import open_run
from whyidle.record.stacks import Call
from whyidle.report.page.flame import MOST_BOXES, MOST_DEEP, Box, Icicle, Stacks, stacks_of
from whyidle.scenarios.planted import MS, START

HOSTILE = "</span><script>alert(1)</script>\"'&\x1b[31m\u2028"


def stacks_in(folder: Path) -> Stacks:
    run = open_run(folder)
    writer = run.leading_writer()
    assert writer is not None
    found = stacks_of(run, writer)
    assert found is not None
    return found


def named(stacks: Stacks, name: str) -> Icicle:
    return next(each for each in stacks.icicles if each.name == name)


def all_boxes(boxes: tuple[Box, ...]) -> list[Box]:
    return [each for box in boxes for each in (box, *all_boxes(box.below))]


@pytest.fixture
def cpu_run(tmp_path: Path) -> Path:
    """50 steps of 100 ms, 40 of them in the fetch."""
    return train_on_cpu(tmp_path / "run", [{"fetch": 40, "gap": 5}] * 50)


def looked_at(run: Path) -> Path:
    at = range(START, START + 5000 * MS, 10 * MS)
    return look(run, at, lambda _, moment: FETCHING if (moment - START) % (100 * MS) < 40 * MS else FORWARD)


def test_the_training_is_shown_by_the_parts_of_its_steps(cpu_run: Path) -> None:
    training = named(stacks_in(looked_at(cpu_run)), "The thread that trains")
    assert [(box.name, box.kind, box.looks, box.width) for box in training.boxes] == [
        ("in fetch", "part", 200, 40.0),
        ("between arrival and optimizer", "part", 300, 60.0),
    ]
    (outermost,) = training.boxes[0].below
    assert (outermost.name, outermost.place, outermost.width) == ("main", "me/train.py:61", 100.0)
    assert outermost.says == (
        "me/train.py:61 in main\ntrain(model, loader)\n40.0 % of the looks at this thread; 200 looks"
    )


def test_workers_that_make_batches_are_told_from_those_that_wait(cpu_run: Path) -> None:
    looked_at(cpu_run)
    at = range(START, START + 1000 * MS, 10 * MS)
    look(cpu_run, at, lambda number, _: (WAITING, OPENING, OPENING, DECODING)[number % 4], WORKER)
    look(cpu_run, at, lambda *_: MONITORING, None, WORKER + 5)
    stacks = stacks_in(cpu_run)
    making = named(stacks, "Workers that make batches")
    assert making.looks == 75
    # The calls that the training stood in when it forked the worker are none of the worker's.
    (fetch,) = making.boxes
    assert (fetch.name, fetch.kind) == ("_MapDatasetFetcher.fetch", "library")
    assert [(box.place, box.kind, box.looks, round(box.width, 3)) for box in fetch.below] == [
        ("me/data.py:27", "own", 50, 66.667),
        ("me/data.py:29", "own", 25, 33.333),
    ]
    assert named(stacks, "Workers that wait").looks == 25
    assert named(stacks, "Other threads of the training").looks == 100


def test_looks_that_failed_are_counted_and_widen_no_box(cpu_run: Path) -> None:
    looked_at(cpu_run)
    look(cpu_run, range(START + MS, START + 100 * MS, 10 * MS), lambda *_: None)
    stacks = stacks_in(cpu_run)
    assert (stacks.looks, stacks.failed) == (510, 10)
    training = named(stacks, "The thread that trains")
    assert training.looks == 500
    assert sum(box.width for box in training.boxes) == pytest.approx(100)


def test_thousands_of_different_stacks_stay_small(cpu_run: Path) -> None:
    def deep(number: int, _: int) -> tuple[Call, ...]:
        rare = (Call(f"rare_{number % 3000}", "/home/me/rare.py", number % 3000),)
        return (MAIN, *rare, *(Call(f"f{depth}", f"{TORCH}/deep.py", depth) for depth in range(60))) * (number % 7 > 0)

    look(cpu_run, range(START, START + 5000 * MS, MS), lambda number, moment: deep(number, moment) or (MAIN,))
    stacks = stacks_in(cpu_run)
    boxes = all_boxes(named(stacks, "The thread that trains").boxes)
    assert len(boxes) <= MOST_BOXES + 9
    assert not any(box.name.startswith("rare") for box in boxes)
    assert len(page_of(cpu_run)[0]) < 400_000


def test_very_many_frequent_calls_are_cut_to_those_seen_most(cpu_run: Path) -> None:
    def wide(number: int, _: int) -> tuple[Call, ...]:
        return (MAIN, *(Call(f"f{depth}", f"/home/me/{number % 60}.py", depth) for depth in range(150)))

    look(cpu_run, range(START, START + 5000 * MS, MS), wide)
    boxes = all_boxes(named(stacks_in(cpu_run), "The thread that trains").boxes)
    assert 1 < len(boxes) <= MOST_BOXES + 9
    assert not any(box.name == f"f{MOST_DEEP}" for box in boxes)


def test_what_a_recording_holds_is_escaped(cpu_run: Path) -> None:
    hostile = (Call(f"f{HOSTILE}", f"/home/me/{HOSTILE}.py", 1, f"x = {HOSTILE}"),)
    look(cpu_run, range(START, START + 5000 * MS, 10 * MS), lambda *_: hostile)
    made, _, _ = page_of(cpu_run)
    assert "alert(1)</script>" not in made
    assert html.escape("<script>alert(1)</script>") in made
    assert "\x1b" not in made


def test_a_run_without_looks_has_no_such_card(cpu_run: Path) -> None:
    made, _, _ = page_of(cpu_run)
    assert 'id="stacks"' not in made
    assert ".icicle" not in made


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_reader_zooms_into_a_box_and_finds_one(tmp_path: Path) -> None:
    steps = [[Step(fetch_ns=40 * MS, host_ns=3 * MS)] * 30]
    run = pooled(tmp_path / "run", steps, PlantedWorkers(2, 2))
    plant_stacks(run, end_ns=until(run))
    made, _, _ = page_of(run)
    script = """
    const told = [];
    const flames = [...document.querySelectorAll("details.flame")];
    const making = flames.find((each) => each.innerText.includes("Workers that make"));
    const boxes = [...making.querySelectorAll("li")];
    const box = boxes.find((each) => each.firstElementChild.innerText.includes("data.py:29"));
    const shown = () => [box.style.width, boxes.filter((each) => each.hidden).length];
    told.push(making.querySelector("pre").textContent);
    box.firstElementChild.click();
    told.push(...shown(), making.querySelector("pre").textContent);
    box.firstElementChild.click();
    told.push(shown()[1], box.style.width !== "100%");
    const search = document.querySelector("input[type=search]");
    search.value = "ZipFile";
    search.dispatchEvent(new Event("input"));
    told.push(making.querySelector(".found").textContent, making.querySelectorAll(".hit").length);
    """
    before, width, hidden, about, hidden_after, narrow, found, hits = told_by(made, script, tmp_path / "page.html")
    assert before.startswith("Point at a box")
    assert (width, hidden) == ("100%", 1)
    assert "return to_tensor(Image.open(file))" in about
    assert (hidden_after, narrow) == (0, True)
    opening = named(stacks_in(run), "Workers that make batches").boxes[0].below[0]
    assert opening.place == "me/data.py:27"
    assert re.fullmatch(r"· found in (\d+\.\d) % of them", found)
    assert found == f"· found in {opening.width:.1f} % of them"
    assert hits == 2
