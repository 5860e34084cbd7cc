"""Traces keep the rules of the Trace Event Format, and say what happened."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import add, add_events, amend
from whyidle.errors import WhyidleError
from whyidle.record.reader import Records
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import BATCH, DEVICE, NOT_MEASURED, STEP, EventKind
from whyidle.record.stacks import Names
from whyidle.report.export.trace import (
    RunTrace,
    Stretch,
    Written,
    about,
    lanes_of,
    stretch_of,
    tracks_of,
    write_trace,
)
from whyidle.results.recordings import RunResult
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

Event = dict[str, Any]
REQUIRED = {
    "X": {"pid", "tid", "ts", "dur", "name"},
    "C": {"pid", "ts", "name", "args"},
    "i": {"pid", "tid", "ts", "s", "name"},
    "s": {"pid", "tid", "ts", "id", "cat", "name"},
    "f": {"pid", "tid", "ts", "id", "cat", "name", "bp"},
    "M": {"pid", "name", "args"},
}


def check(events: list[Event]) -> None:
    """The rules that viewers rely on."""
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert event["ts"] >= 0
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000)))
    for track, spans in slices.items():
        open_until: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            assert end >= begin
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], f"slices of {track} overlap at {begin}"
            open_until.append(end)
    counters: dict[tuple[int, str], list[float]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append(event["ts"])
            assert all(isinstance(value, float) for value in event["args"].values())
    assert all(times == sorted(set(times)) for times in counters.values())
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(starts) + len(ends) == sum(event["ph"] in "sf" for event in events)
    assert starts.keys() == ends.keys()
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        for flow in (start, ends[number]):
            at = round(flow["ts"] * 1000)
            assert any(low <= at <= high for low, high in slices[flow["pid"], flow["tid"]])
    named = [(event["pid"], event["tid"], event["name"]) for event in events if event["ph"] == "M"]
    assert len(named) == len(set(named))
    said = {(pid, tid) for pid, tid, name in named if name == "thread_name"}
    assert slices.keys() <= said


def opened(folder: Path, *others: Path) -> RunTrace:
    return RunResult([open_run(each) for each in (folder, *others)]).trace()


def written(trace: RunTrace, stretch: Stretch, most_bytes: int = 50_000_000) -> tuple[dict[str, Any], Written]:
    file = io.StringIO()
    told = write_trace(tracks_of(trace, stretch), about(trace, stretch), most_bytes, file)
    assert len(file.getvalue()) == told.bytes <= most_bytes
    content = json.loads(file.getvalue(), parse_constant=pytest.fail)
    assert len(content["traceEvents"]) == told.events
    check(content["traceEvents"])
    return content, told


def whole(folder: Path, *others: Path) -> list[Event]:
    trace = opened(folder, *others)
    return list(written(trace, stretch_of(trace, None, 0, None, 0))[0]["traceEvents"])


def on(events: list[Event], thread: str) -> list[Event]:
    """The slices of the tracks of that name, in order of time."""
    tracks = {
        (event["pid"], event["tid"])
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name" and event["args"]["name"] == thread
    }
    mine = [event for event in events if event["ph"] == "X" and (event["pid"], event["tid"]) in tracks]
    return sorted(mine, key=lambda event: event["ts"])


def processes(events: list[Event]) -> list[str]:
    return [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    """Three workers; the batch of step 40 takes long, and those after it lie finished."""
    steps = [
        Step(fetch_ns=(200 if n == 40 else 15) * MS, compute_ns=10 * MS, copy_bytes=10**6, sync_within=n % 3 == 0)
        for n in range(80)
    ]
    run = tmp_path / "run"
    train(run, [steps, steps[:20]], workers=PlantedWorkers(3, prefetch=2))

    def number_batches(steps: Records) -> None:
        steps["loader"], steps["batch"] = 1, steps["step"]

    amend(run, number_batches)
    rows = []
    for number, handed in open_run(run).records(STEP)[["step", "fetch_end_ns"]].tolist():
        end = max(handed - MS // 2 - 40 * MS * (40 < number < 46), START)
        begin = max(end - (200 if number == 40 else 9) * MS, START)
        who = {"worker": number % 3, "loader": 1, "batch": number}
        rows.append(who | {"begin_ns": begin, "end_ns": end})
    add(run, BATCH, rows)
    busy = [{"utilisation_pct": float(n)} if n % 5 else {} for n in range(100)]
    looks = [{"t_ns": START + n * 10 * MS, "device": 0} | seen for n, seen in enumerate(busy)]
    add(run, DEVICE, looks)
    return run


def test_batches_flow_to_their_steps_a_block_is_seen_and_counters_have_gaps(fed: Path) -> None:
    events, trace = whole(fed), opened(fed)
    assert sum(event["ph"] == "s" for event in events) == 100
    (block,) = [each for each in on(events, "head-of-line blocks") if "step 40 " in each["name"]]
    (long,) = [each for each in on(events, "worker 1") if each["name"] == "batch of step 40"]
    assert block["ts"] + block["dur"] == pytest.approx(long["ts"] + long["dur"])
    busy = [event["args"]["%"] for event in events if event["name"] == "device 0: utilisation"]
    inside = [n for n in range(100) if 0 <= START + n * 10 * MS + trace.axis.offsets[0] < trace.high]
    assert busy == [float(n) for n in inside if n % 5]


def test_batches_made_in_the_training_process_are_on_no_workers_track(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=10 * MS)] * 40])
    steps = open_run(tmp_path / "run").records(STEP)
    stamps = steps[["step", "fetch_begin_ns", "fetch_end_ns"]].tolist()
    add(tmp_path / "run", BATCH, [{"step": n, "worker": 0, "begin_ns": b, "end_ns": e} for n, b, e in stamps])
    add_events(tmp_path / "run", [(START, EventKind.LOADER_WORKERS, 0, NOT_MEASURED)])
    events = whole(tmp_path / "run")
    assert len(on(events, "batches prepared in the training process")) == 40
    assert on(events, "worker 0") == []


def test_of_a_run_that_is_too_large_what_is_around_the_worst_stall_is_shown(fed: Path) -> None:
    trace = opened(fed)
    timeline = trace.ranks[0].timeline
    stretch = stretch_of(trace, None, None, None, 60_000)
    assert "around the longest stall" in stretch.why
    assert "ms of input" in stretch.why
    assert stretch.low < int(timeline.steps[40]["fetch_end_ns"]) + trace.axis.offsets[0] < stretch.high
    _, told = written(trace, stretch, 60_000)
    assert told.cut_ns is None
    assert told.bytes > 5_000


@pytest.mark.parametrize("most_bytes", [6_000, 20_000, 45_000])
def test_a_trace_that_would_be_too_large_is_cut_between_events(fed: Path, most_bytes: int) -> None:
    trace = opened(fed)
    content, told = written(trace, stretch_of(trace, None, 0, None, 0), most_bytes)
    assert told.cut_ns is not None
    assert content["otherData"]["cut"].startswith(f"at {told.cut_ns / 1e9:.3f} s")
    # Of a step that began before, all phases are there.
    begins = [event["ts"] for event in content["traceEvents"] if event.get("cat") != "phase"]
    assert max(begins) <= told.cut_ns / 1e3


def test_epochs_and_phases_are_there_and_hostile_names_are_harmless(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 30, [Step()] * 30])
    number = Names(tmp_path / "run").number("warm")
    with (tmp_path / "run" / "names.tsv").open("a") as file:
        file.write('99\t</script>\x1b]0;x\x07","pid":1\n')
    rows = [(START + 50 * MS, EventKind.PHASE, number, START + 90 * MS)]
    # Overlaps the other without nesting in it.
    rows += [(START + 70 * MS, EventKind.PHASE, 99, START + 120 * MS)]
    rows += [(START + 80 * MS, EventKind.PHASE, 5, NOT_MEASURED)]
    add_events(tmp_path / "run", rows)
    update_run(tmp_path / "run", {"device": {"kind": "emulated", "title": "evil\x1b[2J"}})
    events = whole(tmp_path / "run")
    assert [event["name"] for event in on(events, "phases of the program")] == ["warm"]
    assert [event["name"] for event in on(events, "phases of the program (2)")] == ['</script>?]0;x?","pid":1']
    instants = [event["name"] for event in events if event["ph"] == "i"]
    assert {"epoch 0 begins", "epoch 1 begins", "the warm-up ends: reports count from here"} <= set(instants)
    assert "device (evil?[2J)" in processes(events)


def test_what_was_over_before_the_first_step_is_left_out(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 30])
    first = int(open_run(tmp_path / "run").records(STEP)["fetch_begin_ns"].min())
    before = [(first - (n + 2) * MS, EventKind.GARBAGE, 2, first - (n + 1) * MS) for n in range(5)]
    across = (first - MS, EventKind.GARBAGE, 2, first + 3 * MS)
    within = (first + 40 * MS, EventKind.GARBAGE, 2, first + 45 * MS)
    add_events(tmp_path / "run", [*before, across, within])
    add(tmp_path / "run", BATCH, [{"worker": 0, "begin_ns": first - 9 * MS, "end_ns": first - 5 * MS, "step": 0}])
    events = whole(tmp_path / "run")
    found = [(event["ts"], event["dur"]) for event in on(events, "garbage collection")]
    assert found == [(0.0, 3000.0), (40_000.0, 5000.0)]
    assert on(events, "worker 0") == []


@pytest.mark.parametrize(
    ("since_s", "until_s", "said"),
    [
        (900, 901, "--from 900 --to 901: nothing lies there; the run's steps last from 0 to"),
        (900, None, "--from 900: nothing lies there"),
        (None, -1, "--to -1: nothing lies there"),
        (3, 2, "--from 3 --to 2: nothing lies there"),
    ],
)
def test_no_stretch_is_told(fed: Path, since_s: float | None, until_s: float | None, said: str) -> None:
    with pytest.raises(WhyidleError, match=said):
        stretch_of(opened(fed), None, since_s, until_s, 0)


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    pairs = draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=30))
    return [(begin, begin + length) for begin, length in pairs]


@given(spans())
def test_slices_of_a_lane_do_not_overlap_and_none_is_wasted(drawn: list[tuple[int, int]]) -> None:
    begin, end = (np.array(each, dtype=np.int64) for each in zip(*drawn, strict=True))
    lanes = lanes_of(begin, end)
    for lane in range(int(lanes.max()) + 1):
        mine = sorted((int(begin[n]), int(end[n])) for n in np.flatnonzero(lanes == lane))
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(mine))
    deepest = max(sum(low <= at < high for low, high in drawn) for at in range(81))
    empty = any(low == high for low, high in drawn)
    assert empty or int(lanes.max()) + 1 == deepest
