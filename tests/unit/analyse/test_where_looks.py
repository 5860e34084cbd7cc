"""Looks by whose they are and when they were made; what workers were seen to do while the training waited."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from support.planted_runs import trained
from support.planted_stacks import DECODING, FETCHING, MONITORING, OPENING, WAITING, WORKER, look
from whyidle.analyse.where.looks import LEAST_SEEN, ProcessLooks, looks_at, making_seen
from whyidle.record.run import open_run
from whyidle.record.schema import ThreadState
from whyidle.scenarios.planted import MS, START, Step

SIDE = 4_000_001
"""The kernel's number of another thread of the training."""
ALWAYS = np.array([[0, np.iinfo(np.int64).max]])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return trained(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 40])


def moments(count: int) -> range:
    return range(START, START + count * 10 * MS, 10 * MS)


def looked(folder: Path) -> ProcessLooks | None:
    run = open_run(folder)
    writer = run.leading_writer()
    assert writer is not None
    return looks_at(run, writer)


def looks(folder: Path) -> ProcessLooks:
    found = looked(folder)
    assert found is not None
    return found


def test_a_recording_without_looks_has_none(run: Path) -> None:
    assert looked(run) is None


def test_looks_are_of_the_training_its_threads_or_its_workers(run: Path) -> None:
    look(run, moments(10), lambda *_: FETCHING)
    look(run, moments(4), lambda *_: MONITORING, thread=SIDE)
    look(run, moments(6), lambda *_: OPENING, process=WORKER)
    look(run, moments(3), lambda *_: WAITING, process=WORKER + 1)
    found = looks(run)
    assert (len(found.training), len(found.threads), len(found.workers)) == (10, 4, 9)
    assert len(found.making) == 6
    assert set(found.workers.records["process"].tolist()) == {WORKER, WORKER + 1}
    assert set(found.training.records["process"].tolist()) == {os.getpid()}


@pytest.mark.parametrize(
    ("made", "state", "share"),
    [(18, ThreadState.RUNS, 0.75), (18, ThreadState.LOCK, 0.0), (0, ThreadState.RUNS, 0.0)],
)
def test_workers_make_batches_where_they_run_within_the_making(run: Path, made: int, state: int, share: float) -> None:
    if made:
        look(run, moments(made), lambda *_: DECODING, process=WORKER, state=state)
    look(run, moments(24 - made), lambda *_: WAITING, process=WORKER + 1, state=ThreadState.POLL)
    assert making_seen(looks(run), ALWAYS) == share


def test_too_few_looks_and_looks_from_within_say_nothing_of_workers(run: Path) -> None:
    look(run, moments(LEAST_SEEN - 1), lambda *_: DECODING, process=WORKER)
    assert making_seen(looks(run), ALWAYS) is None
    look(run, moments(40), lambda *_: DECODING, process=WORKER, state=-(2**63))
    assert making_seen(looks(run), ALWAYS) is None


def test_looks_during_some_time_are_those_within_it(run: Path) -> None:
    look(run, moments(10), lambda *_: FETCHING)
    training = looks(run).training
    first = np.array([[START, START + 25 * MS], [START + 60 * MS, START + 61 * MS]])
    assert training.during(first).records["t_ns"].tolist() == [START, START + 10 * MS, START + 20 * MS, START + 60 * MS]
    assert len(training.during(np.empty((0, 2), dtype=np.int64))) == 0
    assert len(training.between(START + 10 * MS, START + 30 * MS)) == 2
