"""The page of a run that was observed from outside: the words of its text, trees of its stacks, curves over time."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.page_content import Element, parsed
from support.stacks import BACKWARD, TORCH, stack
from whyidle.analyse.attached.attached import attached
from whyidle.analyse.attached.causes import findings_of, verdict_of
from whyidle.analyse.attached.series import MOST_VALUES, Series, series_of
from whyidle.commands.main import main
from whyidle.record.attached import Frame, ProcessStates, Stack, Thread, write_stacks, write_states
from whyidle.record.run import Run, create_run, open_run
from whyidle.record.schema import HOST
from whyidle.report.contract import attached as attach_json
from whyidle.report.page import attach_page
from whyidle.report.page.attach_tree import Branch, tree

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


WAIT = stack(f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__", "/usr/lib/python3.12/queue.py:Queue.get")
MAKING = stack(f"{TORCH}/utils/data/_utils/worker.py:_worker_loop", f"{TORCH}/utils/data/_utils/fetch.py:X.fetch")


def recorded(folder: Path, threads: list[Thread], **info: Any) -> Run:
    told = {"attach": {"pid": 7, "seconds": 9.0}, "command": ["python", "train.py"], "device": {"kind": "cpu"}}
    made = create_run(folder, told | info)
    write_stacks(made, threads)
    states = ProcessStates(7, 1, "python", "python train.py", seconds=9.0, looks=90, states={"R": 40, "S": 50})
    worker = ProcessStates(8, 7, "pt_data_worker", seconds=9.0, looks=90, states={"S": 90})
    write_states(made, [states, worker])
    return open_run(made)


def shown(run: Run) -> Element:
    seen = attached(run)
    findings = findings_of(seen)
    return parsed(attach_page.page(run, seen, verdict_of(seen, findings), findings))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    training = Thread(7, 7, "MainThread", Counter({WAIT: 60, BACKWARD: 40}))
    return recorded(tmp_path_factory.mktemp("attached") / "run", [training, Thread(8, 8, "w", Counter({MAKING: 50}))])


def test_the_shares_are_those_of_the_json_with_their_bounds(run: Run) -> None:
    seen = attached(run)
    findings = findings_of(seen)
    told = attach_json.report(seen, verdict_of(seen, findings), findings)
    page = shown(run)
    (why,) = [each for each in page.all("section") if each.words.startswith("Why: what process 7 did")]
    rows = {row[0].words: row for row in why.all("table", "bars")[0].rows() if row[0].words}
    shares = told.trainers[0].shares
    assert rows.keys() == {name for name, share in shares.items() if share.share >= 0.005}
    for name, row in rows.items():
        assert row[1].words == f"{100 * shares[name].share:.0f} %"
        (bar,) = row[2].all("rect")
        assert float(bar.attributes["width"].rstrip("%")) == pytest.approx(100 * shares[name].share, abs=0.01)
        line = row[2].all("line")[0].attributes
        assert float(line["x1"].rstrip("%")) == pytest.approx(100 * (shares[name].low or 0), abs=0.001)
        assert float(line["x2"].rstrip("%")) == pytest.approx(100 * (shares[name].high or 0), abs=0.001)
    assert told.verdict.title in page.all("section", "verdict")[0].words
    assert all(unknown in page.words for unknown in told.unknown)


def test_the_stacks_are_trees_of_the_thread_that_trains_and_its_workers(run: Run) -> None:
    part = shown(run).by_id("stacks")
    assert [h3.words for h3 in part.all("h3")] == [
        "process 7, MainThread: the thread that trains 100 looks",
        "1 worker process, all together 50 looks",
    ]
    leaves = [each.words for each in part.all("div", "tree")[0].all("span", "frame")]
    assert leaves[0].startswith("100 % main")
    assert [words.split()[:3] for words in leaves[1:]] == [
        ["60", "%", "Queue.get"],
        ["40", "%", "_engine_run_backward"],
    ]
    # The file that speedscope opens, by its name.
    assert [link.attributes["href"] for link in part.all("a")] == ["attach-stacks.json"]


def every(branches: tuple[Branch, ...]) -> list[Branch]:
    return [found for each in branches for found in (each, *every(each.below))]


def test_a_function_that_only_calls_one_other_is_left_out_on_the_way_to_it() -> None:
    (only,) = tree("", [Thread(1, 1, "", Counter({BACKWARD: 3}))]).branches
    assert (only.name, only.share, only.through) == ("_engine_run_backward", 1.0, ("main", "Tensor.backward"))
    assert not only.below
    # One that is seen itself, too, is not.
    both = tree("", [Thread(1, 1, "", Counter({BACKWARD: 3, BACKWARD[:-1]: 1}))]).branches
    assert [(each.name, each.share) for each in every(both)] == [
        ("Tensor.backward", 1.0),
        ("_engine_run_backward", 0.75),
    ]


def test_branches_too_small_to_be_shown_are_counted(tmp_path: Path) -> None:
    small = {stack("/x.py:often", f"/x.py:seldom{number}"): 1 for number in range(30)}
    many = Thread(7, 7, "MainThread", Counter(small | {stack("/x.py:often", "/x.py:most"): 9970, BACKWARD: 5000}))
    (root,) = tree("", [many]).branches
    often = root.below[0]
    assert [each.name for each in often.below] == ["most"]
    assert often.rest == pytest.approx(30 / 15_000)
    loud = Thread(7, 7, "MainThread", Counter(dict.fromkeys(small, 5) | {stack("/x.py:often", "/x.py:most"): 850}))
    assert "15 % in smaller branches" in shown(recorded(tmp_path / "run", [loud])).by_id("stacks").words


STACKS = st.dictionaries(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(lambda names: stack(*(f"/x.py:{n}" for n in names))),
    st.integers(1, 300),
    min_size=1,
    max_size=8,
)


@given(STACKS)
def test_whatever_was_seen_branches_are_no_more_than_what_they_are_of(counts: dict[Stack, int]) -> None:
    thread = Thread(1, 1, "", Counter(counts))
    made = tree("", [thread])
    assert made.looks == thread.looks
    (root,) = made.branches
    assert root.share == pytest.approx(1.0)
    for branch in every(made.branches):
        below = sum(each.share for each in branch.below)
        assert branch.share + 1e-9 >= below + branch.rest
        assert 0.01 - 1e-9 <= branch.share <= 1 + 1e-9
        assert list(branch.below) == sorted(branch.below, key=lambda each: -each.share)


def host_records(t_ns: np.ndarray, cpu_ns: np.ndarray) -> np.ndarray:
    records = np.zeros(len(t_ns), dtype=HOST.dtype)
    for field in HOST.dtype.names or ():
        if HOST.dtype[field].kind == "f":
            records[field] = np.nan
        elif field != "seq":
            records[field] = np.iinfo(np.int64).min
    records["t_ns"], records["tree_cpu_ns"] = t_ns, cpu_ns
    return records


class Recorded:
    """A run of which the sampler saw the host alone."""

    def __init__(self, host: np.ndarray) -> None:
        self._host = host

    def records(self, kind: Any) -> np.ndarray:
        return self._host if kind is HOST else np.empty(0, dtype=kind.dtype)


def cpus_of(host: np.ndarray) -> Series:
    (found,) = series_of(Recorded(host))  # type: ignore[arg-type]
    return found


def test_cpus_over_time_are_the_counters_slopes_and_an_hour_takes_no_more_room_than_a_minute() -> None:
    for looks in (200, 20_000):
        t_ns = 200_000_000 * np.arange(looks)
        busy = np.where(np.arange(looks) < looks // 2, 0.5, 2.0)
        cpus = cpus_of(host_records(t_ns, np.cumsum(200_000_000 * busy).astype(np.int64)))
        assert cpus.unit == "CPUs"
        assert len(cpus.values) <= MOST_VALUES
        assert cpus.mean == pytest.approx(1.25, abs=0.02)
        assert [cpus.values[1], cpus.values[-1]] == pytest.approx([0.5, 2.0])
        assert cpus.seconds == pytest.approx(0.2 * (looks - 2))


def test_time_without_looks_is_a_gap_in_the_curve() -> None:
    t_ns = 1_000_000_000 * np.array([0, 1, 2, 3, 60, 61, 62])
    curve = attach_page._curve(cpus_of(host_records(t_ns, t_ns)))
    assert curve.count("M") == 2
    assert not any(math.isnan(float(number)) for number in re.findall(r"[\d.]+", curve))


def test_without_stacks_and_samples_the_page_says_what_is_known(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", [])
    (run.folder / "attach-stacks.json").unlink()
    page = shown(run)
    assert page.all("h1")[0].words.startswith("process 7 (python train.py)")
    assert "Stacks" not in [h2.words for h2 in page.all("h2")]
    assert "Over time" not in [h2.words for h2 in page.all("h2")]


def test_whatever_another_process_calls_its_functions_stays_words(tmp_path: Path) -> None:
    named = (*WAIT, Frame(HOSTILE, f"/x/{HOSTILE}", 3, HOSTILE))
    threads = [
        Thread(7, 7, "MainThread", Counter({named: 30, BACKWARD: 30})),
        Thread(7, 9, HOSTILE, Counter({WAIT: 9})),
    ]
    page = shown(recorded(tmp_path / "run", threads, command=["python", HOSTILE], notices=[HOSTILE]))
    assert not page.all("img")
    assert page.words.count("<img src=x onerror=alert(1)>") >= 3
    assert "\x1b" not in page.words


def test_report_writes_the_page_into_the_folder(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(run.folder / "report.html")
    assert parsed((run.folder / "report.html").read_text()).words == shown(run).words
