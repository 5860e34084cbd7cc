"""Which ranks are of a job: their files, what is missing of them, and how often they are read."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from support.jobs import SECOND, Job, Rank, analysed, late_ms, record, said
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.analysis import analyse
from whyidle.errors import RecordError
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import BATCH
from whyidle.record.segment import RecordWriter
from whyidle.report.contract import run as contract
from whyidle.scenarios.planted import MS


def test_run_folders_of_two_hosts_are_one_job(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(), Rank(host="beta", fetch_ns=21 * MS), Rank(host="beta")]
    together = analysed(record(tmp_path / "one", ranks, shifts={"beta": SECOND}))
    job = record(tmp_path / "two", ranks, shifts={"beta": SECOND}, apart=True)
    assert len(job.folders) == 2
    apart = analysed(job)
    assert late_ms(apart) == late_ms(together)
    assert apart.verdict.title == together.verdict.title
    assert [part.host for part in apart.ranks] == ["alpha", "alpha", "beta", "beta"]
    alone = analyse(open_run(job.folders[0]))
    assert said(alone, "2 of the job's 4 ranks were recorded; ranks 2 and 3 are missing")


def test_folders_that_are_not_of_one_job_are_refused(tmp_path: Path) -> None:
    one = record(tmp_path / "one", {0: Rank(), 1: Rank()})
    twin = record(tmp_path / "twin", {1: Rank(), 2: Rank()})
    larger = record(tmp_path / "larger", {2: Rank(host="beta"), 3: Rank(host="beta")}, world_size=4)
    later = record(tmp_path / "later", {2: Rank(host="beta")}, wall_off_ns={"beta": 7200 * SECOND}, world_size=2)
    for other, words in ((twin, "rank 1 is both in"), (larger, "jobs with 2 and with 4"), (later, "120 minutes after")):
        with pytest.raises(RecordError, match=words):
            analyse(open_run(one.folders[0]), open_run(other.folders[0]))


def test_a_rank_that_was_killed_in_the_middle_is_told_and_the_others_are_still_compared(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(fetch_ns=21 * MS), Rank(steps=60)]
    analysis = analysed(record(tmp_path / "run", ranks))
    assert said(analysis, "Rank 2 ran fewer steps than the others: 60 of 200")
    assert said(analysis, "Rank 2 did not end the recording")
    assert set(late_ms(analysis)) == {0, 1}
    assert "rank 1" in analysis.verdict.title


def test_a_rank_without_steps_and_one_with_a_damaged_file_are_left_out_by_name(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS), Rank(), Rank()])
    folder = job.folders[0]
    next(folder.glob("step-2-*.rec")).unlink()
    next(folder.glob("step-3-*.rec")).write_bytes(b"nonsense")
    analysis = analysed(job)
    assert said(analysis, "No steps of ranks 2 and 3 were recorded")
    assert said(analysis, "is not a whyidle record file")
    assert "rank 1" in analysis.verdict.title
    detail = contract.report(analysis).ranks_detail
    assert detail
    assert [rank.window.steps for rank in detail] == [195, 195, 0, 0]
    assert detail[2].late_ms is None


def test_ranks_none_of_which_has_steps_are_no_verdict(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(), Rank()])
    for file in job.folders[0].glob("step-*.rec"):
        file.unlink()
    analysis = analysed(job)
    assert analysis.verdict.title == "No verdict: no training step was recorded."
    assert contract.report(analysis).run.ranks == 2


def test_without_what_processes_say_the_ranks_are_those_of_the_files(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS)])
    for file in job.folders[0].glob("process-*.json"):
        file.unlink()
    update_run(job.folders[0], {"device": {"kind": "cpu"}})
    analysis = analysed(job)
    assert "rank 1" in analysis.verdict.title
    assert not said(analysis, "ranks were recorded")


def test_the_live_view_shows_one_rank_and_says_of_how_many(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(steps=195), Rank(), Rank(steps=40)])
    view = RecentReader(job.folders[0]).snapshot()
    assert (view.rank, view.ranks, view.steps) == (0, 3, 195)


def with_workers(folder: Path, ranks: int, workers: int = 2) -> Job:
    """A job each of whose workers has a file of its own."""
    job = record(folder, [Rank(workers=workers)] * ranks, steps=30)
    for path in folder.glob("step-*.rec"):
        _, rank, pid = path.stem.split("-")
        writers = [RecordWriter(folder, BATCH, int(rank), int(pid), slot=True) for _ in range(workers)]
        for writer in writers:
            writer.append(*BATCH.missing())
            writer.close()
    return job


def test_files_are_opened_as_often_for_each_further_rank_as_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_sizes = [with_workers(tmp_path / f"run-{ranks}", ranks) for ranks in (3, 6, 9)]
    opened = 0

    def counting(module: Any) -> None:
        original = module.open

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal opened
            opened += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, "open", counted)

    counting(io)
    counting(os)
    counts = []
    for job in of_sizes:
        before = opened
        contract.report(analysed(job))
        counts.append(opened - before)
    assert counts[1] - counts[0] == counts[2] - counts[1]
    assert counts[0] > 3 * (2 + 2)


def test_a_run_that_is_opened_again_shows_the_ranks_that_came_since(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", [Rank()], world_size=2).folders[0]
    assert not analyse(open_run(folder)).ranks
    record(tmp_path / "later", {1: Rank()}, world_size=2)
    for path in (tmp_path / "later").glob("*-1-*"):
        path.rename(folder / path.name)
    assert [rank.rank for rank in analyse(open_run(folder)).ranks] == [0, 1]
