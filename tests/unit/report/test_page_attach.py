"""The page and the curves of a run that was observed from outside."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import add
from support.page_content import Element, parsed
from support.stacks import BACKWARD, TORCH, record_threads, stack
from whyidle.analyse.attached.attached import attached
from whyidle.analyse.attached.causes import findings_of, verdict_of
from whyidle.analyse.attached.trainers import SeenThread
from whyidle.commands.main import main
from whyidle.record.run import ProcessStates, Run, create_run, open_run, write_states
from whyidle.record.schema import DEVICE, HOST
from whyidle.record.stacks import Call
from whyidle.report.page import attach_page

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"
WAIT = stack(f"{TORCH}/utils/data/dataloader.py:_BaseDataLoaderIter.__next__", "/usr/lib/python3.12/queue.py:Queue.get")


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


@pytest.mark.parametrize("looks", [200, 20_000])
def test_cpus_are_the_counters_slopes_and_time_without_looks_is_a_gap_in_the_curve(tmp_path: Path, looks: int) -> None:
    run = recorded(tmp_path / "run", [])
    at = 200_000_000 * np.arange(looks)
    at[looks // 2 :] += 3_000_000_000
    used = np.cumsum(200_000_000 * np.where(np.arange(looks) < looks // 2, 0.5, 2.0)).astype(np.int64)
    rows = zip(at.tolist(), used.tolist(), strict=True)
    add(run.folder, HOST, [{"t_ns": t_ns, "tree_cpu_ns": cpu_ns} for t_ns, cpu_ns in rows])
    add(run.folder, DEVICE, [{"t_ns": t_ns, "device": 1, "utilisation_pct": 50.0} for t_ns in at.tolist()])
    cpus, used_pct = attach_page.series_of(run)
    assert (used_pct.name, used_pct.unit, used_pct.mean) == ("GPU 1: utilisation (NVML)", "%", 50.0)
    assert used_pct.path.startswith("M0.0 50.0h1L")
    assert (cpus.name, cpus.unit) == ("CPUs this job uses", "CPUs")
    assert (cpus.mean, cpus.highest) == (pytest.approx(1.25, abs=0.02), 2.0)
    assert cpus.seconds == pytest.approx(0.2 * (looks - 2) + 3)
    assert cpus.path.count("M") == 2
    assert cpus.path.count("L") < attach_page.MOST_VALUES
    assert not any(math.isnan(float(number)) for number in re.findall(r"[\d.]+", cpus.path))


def test_without_stacks_and_samples_the_page_says_what_is_known(tmp_path: Path) -> None:
    page = shown(recorded(tmp_path / "run", []))
    assert page.all("h1")[0].words.startswith("process 7 (python train.py)")
    assert not {"Stacks", "Over time"} & {h2.words for h2 in page.all("h2")}
    assert "No verdict: the training's stacks were not read." in page.words


def test_whatever_another_process_calls_its_functions_stays_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = (*WAIT, Call(HOSTILE, f"/x/{HOSTILE}", 3, HOSTILE))
    threads = [SeenThread(7, 7, Counter({named: 30, BACKWARD: 30})), SeenThread(7, 9, Counter({WAIT: 9}))]
    run = recorded(tmp_path / "run", threads, command=["python", HOSTILE], notices=[HOSTILE])
    assert main(["report", str(run.folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(run.folder / "report.html")
    page = parsed((run.folder / "report.html").read_text())
    assert not page.all("img")
    assert page.words.count("<img src=x onerror=alert(1)>") >= 3
    assert "\x1b" not in page.words
