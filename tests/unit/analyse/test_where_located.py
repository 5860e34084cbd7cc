"""Findings with the lines of code and the stages that they are about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add_events, steps_of
from support.judged_waits import waiting_for_data
from support.planted_stacks import FETCH, FETCHING, LIB, LOOP, WORKER, look
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.predict.predict import Prediction
from whyidle.analyse.run.exposed_data_wait import Sampling
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.analyse.statistics import Speedup
from whyidle.analyse.where.located import located
from whyidle.analyse.where.looks import ProcessLooks, looks_at
from whyidle.analyse.where.selection import Evidenced, making_stages_of
from whyidle.record.run import Run, open_run
from whyidle.record.schema import EVENT, PAUSE, EventKind
from whyidle.record.stacks import Call, CallStack
from whyidle.record.tuning import LoaderSettings
from whyidle.scenarios.planted import MS, START, Step, train

ITEM = Call("Shards.__getitem__", "/home/me/data.py", 30, "return self.tokenizer(text)")
SHUFFLE = Call("Buckets.__iter__", "/home/me/data.py", 12, "order = sorted(self.lengths())")
TOKENISING: CallStack = (*FETCHING[:2], LOOP, FETCH, ITEM)
SENDING: CallStack = (
    Call("Thread.run", f"{LIB}/threading.py", 1010),
    Call("Queue._feed", f"{LIB}/multiprocessing/queues.py", 264, "obj = _ForkingPickler.dumps(obj)"),
)


def update(line: int, text: str, function: str = "update", file: str = "/home/me/tree.py") -> CallStack:
    """The loop calls a function of the program's."""
    return (*FETCHING[:2], LOOP, Call(function, file, line, text))


END = START + 2000 * MS


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    waiting_for_data(tmp_path / "run")
    return tmp_path / "run"


def opened(folder: Path) -> tuple[Run, ProcessLooks, Facts]:
    run = open_run(folder)
    writer = run.leading_writer()
    assert writer is not None
    looks = looks_at(run, writer)
    assert looks is not None
    facts = facts_of(run, writer, looks)
    assert facts is not None
    return run, looks, facts


def seen(folder: Path, making: CallStack) -> tuple[Run, ProcessLooks, Facts]:
    """A run whose worker stands in that, and whose second thread sends what it made."""
    look(folder, range(START, END, 50 * MS), lambda *_: making, WORKER)
    look(folder, range(START, END, 50 * MS), lambda *_: SENDING, WORKER, WORKER + 7)
    run, looks, facts = opened(folder)
    of = Evidenced(facts, looks, run.records(EVENT), run.records(PAUSE))
    return run, looks, replace(facts, stages=making_stages_of(of))


def located_in(run: Run, looks: ProcessLooks, facts: Facts, finding: Finding) -> Finding:
    (found,) = located(Evidenced(facts, looks, run.records(EVENT), run.records(PAUSE)), [finding])
    return found


def told(folder: Path, making: CallStack, cause: str) -> Finding:
    more = Next("num_workers=4", 900.0, 800.0, 1000.0)
    return located_in(*seen(folder, making), Finding(cause, "It waits.", 0.5, 0.8, (), (more,)))


@pytest.mark.parametrize(
    ("cause", "first"),
    [
        *((f"input.{name}", ("tokenise", 1.0)) for name in ("too_few_workers", "cpu_exhausted", "serial")),
        *((cause, None) for cause in ("input.storage", "input.worker_restart", "host.step_gap", "copy.link")),
    ],
)
def test_what_making_a_batch_consists_of_belongs_to_what_is_about_that(
    recorded: Path, cause: str, first: tuple[str, float] | None
) -> None:
    stages = told(recorded, TOKENISING, cause).stages
    assert (stages and [(part.stage, part.share.value) for part in stages.parts]) == (first and [first])
    assert stages is None or stages.time == "the time in which workers prepare batches"


def test_beside_more_workers_stands_what_makes_the_costliest_stage_cheaper(recorded: Path) -> None:
    found = told(recorded, TOKENISING, "input.too_few_workers")
    changes = ["num_workers=4", "Tokenise once, before the training, and keep the numbers"]
    assert [each.change for each in found.next] == changes
    assert found.next[-1].predicted_samples_per_s is None


@pytest.mark.parametrize(
    ("cause", "text", "told", "kinds"),
    [
        # That the loop does something is less than what it does.
        ("host.step_gap", "add(node)", True, ["cheaper", "less_often"]),
        # What is done with batches on their way to the model is made, and not read now and then.
        ("input.main_process", "add(node.tolist())", False, ["less_often", "cheaper"]),
        ("host.boundary", "add(node)", False, ["less_often"]),
    ],
)
def test_of_what_the_training_itself_does_a_line_is_mended_by_whose_work_it_is(
    tmp_path: Path, cause: str, text: str, told: bool, kinds: list[str]
) -> None:
    path = tmp_path / "tree.py"
    path.write_text(f"def update(nodes):\n    for node in nodes:\n        {text}\n")
    train(tmp_path / "run", [[Step(host_ns=10 * MS)] * 60])
    updating = update(3, text, file=str(path))
    look(tmp_path / "run", range(START, END, 5 * MS), lambda *_: updating)
    run, looks, facts = opened(tmp_path / "run")
    general = Next("look at it", 9e9, 8e9, 1e10, "less_often", Speedup(1.5, 1.2, 1.8) if told else Speedup(90, 80, 99))
    finding = Finding(cause, "It works.", 0.5, 0.8, (), (general,))
    found = located_in(run, looks, facts, finding)
    assert [each.kind for each in found.next] == kinds


@pytest.mark.parametrize(("cause", "part"), [("host.step_gap", "host"), ("host.boundary", "boundary")])
def test_a_line_gains_no_more_than_it_takes_of_the_part_that_it_is_in(tmp_path: Path, cause: str, part: str) -> None:
    """A function that works in a fifth of the time, and 83 % of that, is called in all of the rest, too."""
    train(tmp_path / "run", [[Step(host_ns=10 * MS)] * 60])
    line, other = update(3, "work()"), update(9, "write()", "log")
    look(tmp_path / "run", range(START, END, 5 * MS), lambda n, _: other if n < 80 and n % 6 == 5 else line)
    run, looks, facts = opened(tmp_path / "run")
    fifth = np.array([[START, START + 400 * MS]])
    ns = facts.parts.wall_ns // 5
    parts = replace(facts.parts, host_ns=ns, boundary_ns=ns, when=facts.parts.when | {part: fifth})
    finding = Finding(cause, "It works.", 0.2, 0.8, (), ())
    found = located_in(run, looks, replace(facts, parts=parts), finding)
    first = found.where[0]
    assert (first.line, first.share) == (3, pytest.approx(0.83, abs=0.01))
    assert first.without is not None
    assert first.without.value == pytest.approx(1 / (1 - 0.2 * (first.share or 0)), rel=0.001)
    assert first.without.high < 1.4


class _Unmoved:
    """A replay that is of the middle of epochs, and has nothing of what this work took."""

    now = Prediction(LoaderSettings(2, 2), 1000.0, 950.0, 1050.0, 0.0, "training")

    def agrees(self, _: float) -> bool:
        return True

    def without(self, parts: list[object], _: object) -> list[Prediction]:
        return [self.now for _ in parts]


@pytest.mark.parametrize(("of_epochs", "brings"), [(True, 2.0), (False, 1.0)])
def test_where_an_epoch_begins_a_line_takes_what_the_clock_says_and_no_replay(
    recorded: Path, of_epochs: bool, brings: float
) -> None:
    """Half of the time is the sampler's, all of it in one line."""
    steps = steps_of(recorded)
    fetches = zip(steps["fetch_begin_ns"].tolist(), steps["fetch_end_ns"].tolist(), strict=True)
    add_events(recorded, [(begin, EventKind.SAMPLER, 8, end) for begin, end in fetches])
    look(recorded, range(START, END, 20 * MS), lambda *_: (*FETCHING[:2], SHUFFLE))
    run, looks, facts = opened(recorded)
    ns = facts.parts.wall_ns // 2
    drawn = Sampling(ns, ns if of_epochs else 0, None, None)
    facts = replace(facts, sampling=drawn, advice=_Unmoved())  # type: ignore[arg-type]
    finding = Finding("input.sampler", "It waits.", 0.5, 0.8, (), (Next("keep it"),))
    found = located_in(run, looks, facts, finding)
    assert found.where[0].code == SHUFFLE.text
    assert found.where[0].without is not None
    assert found.where[0].without.value == pytest.approx(brings, rel=0.02)
