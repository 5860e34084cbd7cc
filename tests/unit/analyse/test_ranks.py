"""Jobs of several ranks: who waits for whom and for what, and which ranks are of a job."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.crafted import evidence, facts_of_run
from support.jobs import SECOND, START, Job, Rank, analysed, late_ms, record, said
from whyidle.analyse.ranks.job import samples_within
from whyidle.analyse.ranks.membership import ranks_of
from whyidle.analyse.recent import RecentReader
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.errors import RecordError
from whyidle.record.reader import RecordFile
from whyidle.record.run import Run, open_run, update_run
from whyidle.record.schema import BATCH, HEADER, HEADER_BYTES, STEP
from whyidle.record.segment import RecordWriter
from whyidle.report.contract import run as contract
from whyidle.scenarios.planted import MS, Step, train


def causes(analysis: Analysis) -> list[str | None]:
    return [analysis.verdict.cause, *(f.cause for f in analysis.findings)]


DATA, COMPUTING = Rank(fetch_ns=21 * MS), Rank(forward_ns=23 * MS)
WITHOUT_CPU = Rank(forward_ns=23 * MS, cpu_ns=2 * MS)
IN_A_COLLECTIVE = [Rank(fetch_ns=1 * MS, forward_ns=23 * MS), Rank(fetch_ns=21 * MS, forward_ns=3 * MS)]
EIGHT = Rank(fetch_ns=8 * MS)


CUDA = {"device": "cuda"}
PAUSE = np.where(np.arange(200) == 100, 3 * SECOND, MS)
TEN, TWENTY = Rank(fetch_ns=10 * MS), Rank(fetch_ns=20 * MS)


@pytest.mark.parametrize(
    ("ranks", "how", "late", "said"),
    [
        ([Rank(), COMPUTING], {}, 20, ["rank 1", "its own computing.", "temperature", "not: would not show"]),
        ([Rank(), COMPUTING], CUDA, 0, ["would not show"]),
        ([Rank(), DATA], CUDA, 20, ["not: would not show"]),
        ([Rank(), Rank(host_ns=21 * MS)], CUDA, 21, ["not: would not show"]),
        (
            [Rank(), WITHOUT_CPU],
            *({}, 20, ["pass that does not compute", "whyidle attach PID", "thread on a CPU: 2.0", "not: temperature"]),
        ),
        # Ranks begin the backward pass together, because they waited for rank 1 in the forward pass already.
        (IN_A_COLLECTIVE, {}, 20, ["rank 1"]),
        # Every rank makes its batches itself; what helps the late one first is to have what the others have.
        ([EIGHT, Rank(fetch_ns=28 * MS), EIGHT], {}, 20, ["(input.serial)", "On rank 1: Give it what the other"]),
        *(
            ([Rank(**own)] * 4, {}, 0, ["not: late in turn"])
            for own in ({}, {"fetch_ns": 40 * MS}, {"host_ns": 40 * MS})
        ),
        ([Rank(), Rank(fetch_ns=PAUSE)], {}, None, []),
        # Trainings that do not wait for each other.
        ([TEN, TWENTY], {"lockstep": False}, None, ["do not end their steps together"]),
        (
            [TEN, replace(TWENTY, host="beta")],
            *({"lockstep": False, "shifts": {"beta": SECOND}}, None, ["clocks could not be paired"]),
        ),
    ],
)
def test_who_is_late_and_for_what(
    tmp_path: Path, ranks: list[Rank], how: dict[str, Any], late: float | None, said: list[str]
) -> None:
    analysis = analysed(record(tmp_path / "run", ranks, **how))
    verdict = analysis.verdict
    assert (verdict.cause == "rank.straggler") == ("rank.straggler" in causes(analysis)) == bool(late)
    if late:
        assert late_ms(analysis)[1] == pytest.approx(late, abs=0.6)
    assert late is not None or "lockstep" not in how or late_ms(analysis) == {}
    shown = [f"{each.what}: {each.value}" for each in verdict.evidence]
    text = " / ".join([verdict.title, *(each.change for each in verdict.next[:1]), *shown, *analysis.notes])
    for words in said:
        assert (words.removeprefix("not: ") in text) != words.startswith("not: "), text


def test_a_host_whose_ranks_are_all_late_is_named_as_a_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    ranks = [
        Rank(
            fetch_ns=(random.normal(21 if n >= 24 else 2, 0.2, 300) * MS).astype(int).clip(0),
            host="slow" if n >= 24 else "fast",
        )
        for n in range(32)
    ]
    analysis = analysed(record(tmp_path / "run", ranks, 300, shifts={"slow": 7 * 10**14}))
    told = evidence(analysis.verdict)
    assert (told["Waited for"], told["Host"]) == ("ranks 24, 25, 26, 27, 28, 29, 30 and 31", "slow")
    assert told["Wait of the others"] == pytest.approx(19, rel=0.03)


def test_a_straggler_that_explains_little_of_what_all_ranks_wait_for_is_second(tmp_path: Path) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(fetch_ns=40 * MS), Rank(fetch_ns=46 * MS)]))
    assert causes(analysis)[1:] == ["input.serial", "rank.straggler"]
    assert analysis.verdict.title.startswith("Rank 1: ")


def test_clocks_that_drift_for_an_hour_stay_paired(tmp_path: Path) -> None:
    ranks = [Rank(fetch_ns=500 * MS), Rank(fetch_ns=520 * MS, host="beta", forward_ns=200 * MS)]
    job = record(tmp_path / "run", ranks, 5000, shifts={"beta": -START // 2}, drifts={"beta": 5e-5}, apart=True)
    analysis = analysed(job)
    assert late_ms(analysis)[1] == pytest.approx(217, abs=0.5)
    assert said(analysis, "The clocks of 2 hosts were paired by the ends of 4995 steps' collectives")


def test_of_several_processes_of_a_rank_the_one_with_most_steps_counts_and_none_is_read_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = record(tmp_path / "run", [Rank(), Rank()]).folders[0]
    (path,) = folder.glob("step-1-*.rec")
    made, header = bytearray(path.read_bytes()), list(HEADER.unpack_from(path.read_bytes()))
    pid = header[5]
    header[5] += 1
    made[: HEADER.size] = HEADER.pack(*header)
    path.with_name(f"step-1-{pid + 1}.rec").write_bytes(made[: HEADER_BYTES + 40 * STEP.record_bytes])
    monkeypatch.setattr(RecordFile, "all", None, raising=False)
    monkeypatch.setattr(Run, "records", None)
    assert [rank.writer for rank in ranks_of([open_run(folder)])] == [(0, pid), (1, pid)]


def test_throughput_is_that_of_the_time_in_which_all_ranks_ran(tmp_path: Path) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(), Rank(steps=150)]))
    assert analysis.job.samples_per_s == pytest.approx(2 * 8 / 0.0105, rel=0.01)
    assert analysis.job.samples == pytest.approx(2 * 8 * 145, abs=16)


def test_part_of_a_window_holds_the_samples_that_the_device_trained_on_in_it(tmp_path: Path) -> None:
    """A host that queues all of its steps within milliseconds has not trained on their samples by then."""
    train(tmp_path / "run", [[Step(fetch_ns=0, compute_ns=20 * MS)] * 60])
    facts = facts_of_run(tmp_path / "run")
    begin, end = facts.window.begin_ns, facts.window.end_ns
    tenth = (end - begin) // 10
    assert samples_within(facts, begin + tenth, end) == pytest.approx(0.9 * facts.samples, rel=0.02)
    assert samples_within(facts, begin, end - tenth) == pytest.approx(0.9 * facts.samples, rel=0.02)


def test_of_a_job_of_two_hosts_one_folder_alone_says_what_is_missing(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(), Rank(host="beta", fetch_ns=21 * MS), Rank(host="beta")]
    together = analysed(record(tmp_path / "one", ranks, shifts={"beta": SECOND}))
    job = record(tmp_path / "two", ranks, shifts={"beta": SECOND}, apart=True)
    apart = analysed(job)
    assert late_ms(apart) == late_ms(together)
    assert {note for note in apart.notes if "clocks" in note} == {note for note in together.notes if "clocks" in note}
    assert said(apart, "The clocks of 2 hosts were paired by the ends of 195 steps' collectives")
    assert said(analyse(open_run(job.folders[0])), "2 of the job's 4 ranks were recorded; ranks 2 and 3 are missing")


def test_folders_that_are_not_of_one_job_are_refused(tmp_path: Path) -> None:
    one = record(tmp_path / "one", {0: Rank(), 1: Rank()})
    twin = record(tmp_path / "twin", {1: Rank(), 2: Rank()})
    larger = record(tmp_path / "larger", {2: Rank(host="beta"), 3: Rank(host="beta")}, world_size=4)
    later = record(tmp_path / "later", {2: Rank(host="beta")}, wall_off_ns={"beta": 7200 * SECOND}, world_size=2)
    for other, words in ((twin, "rank 1 is both in"), (larger, "jobs with 2 and with 4"), (later, "120 minutes after")):
        with pytest.raises(RecordError, match=words):
            analyse(open_run(one.folders[0]), open_run(other.folders[0]))


def test_ranks_that_were_killed_or_have_no_steps_or_a_damaged_file_are_told_and_the_others_are_compared(
    tmp_path: Path,
) -> None:
    job = record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS), Rank(), Rank(), Rank(steps=60)])
    folder = job.folders[0]
    next(folder.glob("step-2-*.rec")).unlink()
    next(folder.glob("step-3-*.rec")).write_bytes(b"nonsense")
    analysis = analysed(job)
    assert said(analysis, "Rank 4 ran fewer steps than the others: 60 of 200")
    assert said(analysis, "Rank 4 did not end the recording")
    assert said(analysis, "No steps of ranks 2 and 3 were recorded")
    assert said(analysis, "is not a whyidle record file")
    assert set(late_ms(analysis)) == {0, 1}
    assert "rank 1" in analysis.verdict.title
    detail = contract.report(analysis)["ranks_detail"]
    assert detail
    assert [rank["window"]["steps"] for rank in detail] == [195, 195, 0, 0, 57]
    assert detail[2]["late_ms"] is None


def test_ranks_none_of_which_has_steps_are_no_verdict(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(), Rank()])
    for file in job.folders[0].glob("step-*.rec"):
        file.unlink()
    analysis = analysed(job)
    assert analysis.verdict.title == "No verdict: no training step was recorded."
    assert contract.report(analysis)["run"]["ranks"] == 2


def test_without_what_processes_say_the_ranks_are_those_of_the_files(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS)])
    for file in job.folders[0].glob("process-*.json"):
        file.unlink()
    update_run(job.folders[0], {"device": {"kind": "cpu"}})
    analysis = analysed(job)
    assert "rank 1" in analysis.verdict.title
    assert not said(analysis, "ranks were recorded")


def test_the_live_view_shows_all_ranks_and_how_far_the_foremost_is(tmp_path: Path) -> None:
    job = record(tmp_path / "run", [Rank(steps=195), Rank(), Rank(steps=40)])
    view = RecentReader(job.folders[0]).snapshot()
    assert (view.ranks, view.steps, [each.steps for each in view.rank_views]) == (3, 200, [195, 200, 40])


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
    jobs = [with_workers(tmp_path / f"run-{ranks}", ranks) for ranks in (3, 6, 9)]
    opened: list[int] = []
    for module in (io, os):
        original = module.open
        monkeypatch.setattr(module, "open", lambda *args, _do=original, **kw: (opened.append(1), _do(*args, **kw))[1])
    counts = []
    for job in jobs:
        opened.clear()
        contract.report(analysed(job))
        counts.append(len(opened))
    assert counts[1] - counts[0] == counts[2] - counts[1]
    assert counts[0] > 3 * (2 + 2)


def test_a_run_that_is_opened_again_shows_the_ranks_that_came_since(tmp_path: Path) -> None:
    folder = record(tmp_path / "run", [Rank()], world_size=2).folders[0]
    assert not analyse(open_run(folder)).ranks
    record(tmp_path / "later", {1: Rank()}, world_size=2)
    for path in (tmp_path / "later").glob("*-1-*"):
        path.rename(folder / path.name)
    assert [rank.rank for rank in analyse(open_run(folder)).ranks] == [0, 1]
