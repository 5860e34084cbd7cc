"""Jobs of several ranks: who waits for whom and for what, on virtual recordings."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.crafted import facts_of_run
from support.jobs import SECOND, START, Rank, analysed, late_ms, record, said
from whyidle.analyse.ranks.job import samples_within
from whyidle.analyse.run.analysis import Analysis
from whyidle.scenarios.planted import MS, Step, train


def causes(analysis: Analysis) -> list[str | None]:
    return [analysis.verdict.cause, *(f.cause for f in analysis.findings)]


@pytest.mark.parametrize("device", ["cpu", "emulated"])
def test_the_rank_that_waits_for_data_is_the_straggler_and_the_others_wait_as_long_as_it_is_late(
    tmp_path: Path, device: str
) -> None:
    job = record(tmp_path / "run", [Rank(), Rank(fetch_ns=21 * MS), Rank(fetch_ns=2 * MS)], device=device)
    analysis = analysed(job)
    verdict = analysis.verdict
    assert (verdict.cause, verdict.severity) == ("rank.straggler", "critical")
    assert "rank 1" in verdict.title
    assert "because of data (input.serial)" in verdict.title
    # 19 of 30.5 ms: what is gained when rank 1 is as rank 2.
    assert verdict.share == pytest.approx(19 / 30.5, rel=0.02)
    assert late_ms(analysis) == {0: 0, 1: pytest.approx(19.5, abs=0.01), 2: 0}
    assert analysis.job is not None
    waits = [analysis.job.waits_ns[rank] for rank in range(3)]
    assert waits == pytest.approx(job.waits_ns[:, 10:].mean(axis=1))
    evidence = {e.what: e.value for e in verdict.evidence}
    assert evidence["host"] == "alpha"
    assert evidence["the others wait"] == pytest.approx(19.5)
    assert evidence["steps in which it came last"] == 100
    assert verdict.next[0].change.startswith("rank 1: num_workers=")


def test_a_rank_that_sleeps_within_its_step_is_not_sent_to_look_at_its_hardware(tmp_path: Path) -> None:
    verdict = analysed(record(tmp_path / "run", [Rank(), Rank(forward_ns=23 * MS, cpu_ns=2 * MS)])).verdict
    assert verdict.cause == "rank.straggler"
    assert "code between the fetch and the backward pass that does not compute" in verdict.title
    assert "whyidle attach PID" in verdict.next[0].change
    assert "temperature" not in verdict.next[0].change
    assert {e.what: e.value for e in verdict.evidence}["its thread was on a CPU"] == pytest.approx(2)


def test_a_forward_pass_that_holds_a_collective_hides_no_lateness(tmp_path: Path) -> None:
    # Ranks begin the backward pass together, because they waited for rank 1 in the forward pass already.
    ranks = [Rank(fetch_ns=1 * MS, forward_ns=23 * MS), Rank(fetch_ns=21 * MS, forward_ns=3 * MS)]
    analysis = analysed(record(tmp_path / "run", ranks))
    assert "rank 1" in analysis.verdict.title
    assert late_ms(analysis)[1] == pytest.approx(20)


@pytest.mark.parametrize("rank", [Rank(), Rank(fetch_ns=40 * MS), Rank(host_ns=40 * MS)], ids=["fast", "data", "host"])
def test_ranks_that_are_alike_have_no_straggler_however_slow(tmp_path: Path, rank: Rank) -> None:
    analysis = analysed(record(tmp_path / "run", [rank] * 4))
    assert "rank.straggler" not in causes(analysis)
    assert set(late_ms(analysis).values()) == {0}
    assert not said(analysis, "late in turn")


@pytest.mark.parametrize("late", [Rank(fetch_ns=21 * MS), Rank(host_ns=21 * MS)], ids=["data", "host"])
def test_on_cuda_a_rank_is_late_if_its_device_begins_late(tmp_path: Path, late: Rank) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(), late], device="cuda"))
    assert analysis.verdict.cause == "rank.straggler"
    assert not said(analysis, "would not show")


def test_on_cuda_a_verdict_of_none_says_that_a_slow_device_would_not_show(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(forward_ns=23 * MS)]
    unseen = analysed(record(tmp_path / "cuda", ranks, device="cuda"))
    assert (unseen.verdict.cause, said(unseen, "would not show")) == ("none", True)
    seen = analysed(record(tmp_path / "cpu", ranks))
    assert (seen.verdict.cause, said(seen, "would not show")) == ("rank.straggler", False)


def test_one_long_pause_of_one_rank_makes_no_straggler(tmp_path: Path) -> None:
    pause = np.where(np.arange(200) == 100, 3 * SECOND, MS)
    assert "rank.straggler" not in causes(analysed(record(tmp_path / "run", [Rank(), Rank(fetch_ns=pause)])))


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
    assert analysis.job is not None
    assert analysis.job.straggler is not None
    assert analysis.job.straggler.ranks == tuple(range(24, 32))
    assert {e.what: e.value for e in analysis.verdict.evidence}["host"] == "slow"
    assert analysis.job.straggler.cost_ns == pytest.approx(19 * MS, rel=0.03)


def test_a_straggler_that_explains_little_of_what_all_ranks_wait_for_is_second(tmp_path: Path) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(fetch_ns=40 * MS), Rank(fetch_ns=46 * MS)]))
    assert causes(analysis)[1:] == ["input.serial", "rank.straggler"]
    assert analysis.verdict.title.startswith("Rank 1: ")


def test_trainings_that_do_not_wait_for_each_other_are_not_compared(tmp_path: Path) -> None:
    ranks = [Rank(fetch_ns=10 * MS), Rank(fetch_ns=20 * MS)]
    analysis = analysed(record(tmp_path / "run", ranks, lockstep=False))
    assert "rank.straggler" not in causes(analysis)
    assert said(analysis, "do not end their steps together")
    assert late_ms(analysis) == {}
    apart = [Rank(fetch_ns=10 * MS), Rank(fetch_ns=20 * MS, host="beta")]
    analysis = analysed(record(tmp_path / "apart", apart, lockstep=False, shifts={"beta": SECOND}))
    assert "rank.straggler" not in causes(analysis)
    assert said(analysis, "clocks of the hosts are unpaired")


def in_a_folder(ranks: Sequence[Rank], steps: int, **how: Any) -> Analysis:
    with tempfile.TemporaryDirectory() as folder:
        return analysed(record(Path(folder) / "run", ranks, steps, **how))


@st.composite
def jobs(draw: st.DrawFn) -> list[Rank]:
    """Two to five ranks, each with its own mean and its own noise."""
    seeds = np.random.default_rng(draw(st.integers(0, 2**32)))

    def rank() -> Rank:
        mean = draw(st.sampled_from([1, 4, 20]))
        scatter = draw(st.sampled_from([0.0, 0.1, 0.5]))
        return Rank(fetch_ns=(mean * MS * (1 + scatter * seeds.uniform(-1, 1, 80))).astype(int))

    return [rank() for _ in range(draw(st.integers(2, 5)))]


EACH = settings(max_examples=15)


@EACH
@given(jobs(), st.integers(-(10**11), 10**15), st.floats(-5e-5, 5e-5))
def test_where_the_clock_of_one_host_stands_changes_nothing(ranks: list[Rank], shift: int, drift: float) -> None:
    for rank in ranks[1::2]:
        rank.host = "beta"
    one = in_a_folder(ranks, 80)
    other = in_a_folder(ranks, 80, shifts={"beta": shift}, drifts={"beta": drift})
    assert one.job is not None
    assert other.job is not None
    # What a clock may drift between the medians of two blocks of steps.
    assert late_ms(other) == pytest.approx(late_ms(one), abs=0.1)
    assert (one.job.straggler is None) == (other.job.straggler is None)
    assert one.job.samples_per_s == pytest.approx(other.job.samples_per_s, rel=0.01)


def test_clocks_that_drift_for_an_hour_stay_paired(tmp_path: Path) -> None:
    ranks = [Rank(fetch_ns=500 * MS), Rank(fetch_ns=520 * MS, host="beta", forward_ns=200 * MS)]
    job = record(tmp_path / "run", ranks, 5000, shifts={"beta": -START // 2}, drifts={"beta": 5e-5}, apart=True)
    analysis = analysed(job)
    assert late_ms(analysis)[1] == pytest.approx(217, abs=0.5)
    assert said(analysis, "The clocks of 2 hosts were paired by the ends of 4995 steps' collectives")


def test_wall_clocks_that_contradict_the_pairing_are_told(tmp_path: Path) -> None:
    ranks = [Rank(), Rank(host="beta")]
    off = {"beta": 30 * SECOND}
    analysis = analysed(record(tmp_path / "run", ranks, shifts={"beta": SECOND * 77}, wall_off_ns=off))
    assert said(analysis, "The wall clocks of beta and alpha differ by 30.0 s")


def test_throughput_is_that_of_the_time_in_which_all_ranks_ran(tmp_path: Path) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(), Rank(steps=150)]))
    assert analysis.job is not None
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


def test_what_is_wrong_on_all_ranks_does_not_make_one_late(tmp_path: Path) -> None:
    """Every rank makes its batches itself; what helps the late one first is to have what the others have."""
    ranks = [Rank(fetch_ns=8 * MS), Rank(fetch_ns=28 * MS), Rank(fetch_ns=8 * MS)]
    verdict = analysed(record(tmp_path / "run", ranks)).verdict
    assert verdict.cause == "rank.straggler"
    assert "(input.serial)" in verdict.title
    assert verdict.next[0].change.startswith("rank 1: give it what the other ranks have")
