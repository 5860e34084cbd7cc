"""The page of a run that was observed from outside: the words of its text, icicles of its stacks, curves over time."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.page_content import Element, parsed
from support.stacks import BACKWARD, TORCH, record_threads, stack
from whyidle.analyse.attached.attached import attached
from whyidle.analyse.attached.causes import findings_of, verdict_of
from whyidle.analyse.attached.seen import SeenThread
from whyidle.analyse.attached.series import MOST_VALUES, Series, series_of
from whyidle.commands.main import main
from whyidle.record.attached import ProcessStates, write_states
from whyidle.record.run import Run, create_run, open_run
from whyidle.record.schema import HOST
from whyidle.record.stacks import Call
from whyidle.report.contract import attached as attach_json
from whyidle.report.page import attach_page

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


WAIT = stack(f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__", "/usr/lib/python3.12/queue.py:Queue.get")
MAKING = stack(f"{TORCH}/utils/data/_utils/worker.py:_worker_loop", f"{TORCH}/utils/data/_utils/fetch.py:X.fetch")


def recorded(folder: Path, threads: list[SeenThread], **info: Any) -> Run:
    told = {"attach": {"pid": 7, "seconds": 9.0}, "command": ["python", "train.py"], "device": {"kind": "cpu"}}
    made = create_run(folder, told | info)
    record_threads(made, threads, {8: 7})
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
    training = SeenThread(7, 7, Counter({WAIT: 60, BACKWARD: 40}))
    return recorded(tmp_path_factory.mktemp("attached") / "run", [training, SeenThread(8, 8, Counter({MAKING: 50}))])


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


def test_the_stacks_are_icicles_of_the_thread_that_trains_by_what_it_did_and_of_its_workers(run: Run) -> None:
    part = shown(run).by_id("stacks")
    assert [each.words.split(" looks")[0] for each in part.all("summary")] == [
        "The thread that trains 100",
        "Workers that make batches 50",
    ]
    training = part.all("details", "flame")[0]
    boxes = {each.all("span")[0].words: each.attributes["data-looks"] for each in training.all("li", "part")}
    assert boxes == {"data wait": "60", "backward": "40"}
    assert "Queue.get" in training.words


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
    page = shown(run)
    assert page.all("h1")[0].words.startswith("process 7 (python train.py)")
    assert "Stacks" not in [h2.words for h2 in page.all("h2")]
    assert "Over time" not in [h2.words for h2 in page.all("h2")]


def test_whatever_another_process_calls_its_functions_stays_words(tmp_path: Path) -> None:
    named = (*WAIT, Call(HOSTILE, f"/x/{HOSTILE}", 3, HOSTILE))
    threads = [
        SeenThread(7, 7, Counter({named: 30, BACKWARD: 30})),
        SeenThread(7, 9, Counter({WAIT: 9})),
    ]
    page = shown(recorded(tmp_path / "run", threads, command=["python", HOSTILE], notices=[HOSTILE]))
    assert not page.all("img")
    assert page.words.count("<img src=x onerror=alert(1)>") >= 3
    assert "\x1b" not in page.words


def test_report_writes_the_page_into_the_folder(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(run.folder / "report.html")
    assert parsed((run.folder / "report.html").read_text()).words == shown(run).words
