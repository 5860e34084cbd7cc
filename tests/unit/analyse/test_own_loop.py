"""A loop that draws its batches itself: looks at its stack divide its time, each with an honest interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from support.crafted import records_of
from whyidle.analyse.where.looks import Looks
from whyidle.analyse.where.own_loop import COMPUTING, EVALUATING, LEAST_LOOKS, MAKING, OTHER, OwnLoop, own_loop_of
from whyidle.record.schema import STACK, STEP
from whyidle.record.stacks import Call, CallStack, StackNames, read_stacks
from whyidle.scenarios.planted import MS

SOURCE = """\
import torch
from model import GPT
def get_batch(split):
    return torch.stack(draw(split)), torch.stack(draw(split))
def train():
    X, Y = get_batch("train")
    while True:
        if number % 100 == 0:
            losses = estimate_loss()
        logits, loss = model(X, Y)
        X, Y = get_batch("train")
        loss.backward()
        optimizer.step()
        log(loss)
train()
"""
TORCH = "/venv/lib/python3.12/site-packages/torch"
MODULE = Call("Module._call_impl", f"{TORCH}/nn/modules/module.py", 1750)
LINEAR = Call("linear", f"{TORCH}/nn/functional.py", 125)
ADAM = Call("AdamW.step", f"{TORCH}/optim/adamw.py", 220)
ENGINE = Call("backward", f"{TORCH}/autograd/__init__.py", 300)
STEP_NS = 50 * MS


At = Callable[..., CallStack]


@pytest.fixture
def at(tmp_path: Path) -> At:
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    lines = SOURCE.splitlines()

    def call(line: int, function: str = "train", *inner: Call) -> CallStack:
        outer = (Call("<module>", str(path), 15, lines[14].strip()),)
        if function != "train":
            inner = (Call(function, str(path), 4, lines[3].strip()), *inner)
        return (*outer, Call("train", str(path), line, lines[line - 1].strip()), *inner)

    return call


def seen(
    folder: Path, stacks: Sequence[tuple[int, CallStack]], steps: int = 40, long: Sequence[int] = ()
) -> OwnLoop | None:
    """What is made of looks, each in the step of that number. Steps of `long` last ten times as long as others."""
    lengths = np.where(np.isin(np.arange(steps), long), 10 * STEP_NS, STEP_NS)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    names = StackNames(folder)
    rows = [{"t_ns": begins[step] + 7 * MS, "stack": names.number(stack)} for step, stack in stacks]
    rows.sort(key=lambda row: row["t_ns"])
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    table = records_of(STEP, [{"fetch_begin_ns": begin, "step_end_ns": end} for begin, end in spans])
    return own_loop_of(Looks(records_of(STACK, rows), read_stacks(folder)), table)


def told(folder: Path, stacks: Sequence[tuple[int, CallStack]], long: Sequence[int] = ()) -> OwnLoop:
    found = seen(folder, stacks, long=long)
    assert found is not None
    return found


def test_each_statement_of_the_loop_is_told_by_what_it_calls_and_what_it_feeds(tmp_path: Path, at: At) -> None:
    often = (
        (at(10, "train", MODULE, LINEAR), 40),
        (at(12, "train", ENGINE), 40),
        (at(13, "train", ADAM), 10),
        (at(11, "get_batch"), 30),
        (at(14), 20),
    )
    looks = [(step, stack) for stack, count in often for step in range(count)]
    looks += [(20, at(9, "estimate_loss", MODULE, LINEAR))] * 20
    found = told(tmp_path, looks, long=(20,))
    assert found.looks == 160
    shares = {kind: round(share.value * 160) for kind, share in found.shares.items()}
    assert shares == {COMPUTING: 90, MAKING: 30, EVALUATING: 20, OTHER: 20}
    (line, *_) = found.lines[MAKING]
    assert (line.function, line.line) == ("get_batch", 4)
    assert [each.line for each in found.lines[EVALUATING]] == [9]


def test_what_making_batches_by_hand_consists_of_is_told_by_stages(tmp_path: Path, at: At) -> None:
    forward, drawing = at(10, "train", MODULE, LINEAR), at(11, "get_batch")
    reading = at(11, "get_batch", Call("memmap.__new__", "/venv/lib/python3.12/site-packages/numpy/_core/memmap.py", 9))
    looks = [(step, forward) for step in range(40)]
    looks += [(step, reading) for step in range(30)] + [(step, drawing) for step in range(10)]
    found = told(tmp_path, looks)
    assert found.stages is not None
    assert found.stages.time == "the time of preparing batches"
    assert [(part.stage, part.name, part.looks) for part in found.stages.parts] == [
        ("read", "", 30),
        ("sample", "get_batch", 10),
    ]
    few = told(tmp_path, [*looks[:40], *looks[60:75]])
    assert few.stages is None


def test_looks_of_one_long_stretch_are_no_independent_ones(tmp_path: Path, at: At) -> None:
    backward, evaluating = at(12, "train", ENGINE), at(9, "estimate_loss", MODULE)
    found = told(tmp_path, [(step, backward) for step in range(40)] + [(20, evaluating)] * 40, long=(20,))
    one, spread = found.shares[EVALUATING], found.shares[COMPUTING]
    assert one.value == spread.value == 0.5
    assert one.high - one.low > 2 * (spread.high - spread.low)


def test_too_few_looks_say_nothing(tmp_path: Path, at: At) -> None:
    assert seen(tmp_path, [(step, at(10, "train", MODULE)) for step in range(LEAST_LOOKS - 1)]) is None


def test_a_program_whose_source_is_gone_still_shows_what_computes(tmp_path: Path, at: At) -> None:
    looks = [(step, at(10, "train", MODULE)) for step in range(30)] + [
        (step, at(11, "get_batch")) for step in range(10)
    ]
    (tmp_path / "train.py").unlink()
    found = told(tmp_path, looks)
    assert found.shares[COMPUTING].value == 0.75
    assert found.shares[OTHER].value == 0.25


LEARNER = """\
def learn(self):
    while self.goes_on():
        self.collect()
        self.train()
def collect(self):
    with torch.no_grad():
        action = self.policy(self.seen)
    self.seen = self.world.step(action)
def train(self):
    loss = self.policy(self.batch())
    loss.backward()
"""
SITE = "/venv/lib/python3.12/site-packages/gym/worlds.py"
STEPPING = Call("World.step", SITE, 40)


@pytest.fixture
def within(tmp_path: Path) -> At:
    """A stack in a library that learns, below the script's one line."""
    path = tmp_path / "site-packages" / "rl" / "learner.py"
    path.parent.mkdir(parents=True)
    path.write_text(LEARNER)
    lines = LEARNER.splitlines()
    script = Call("<module>", str(tmp_path / "agent.py"), 2, "model.learn()")

    def stack(*calls: tuple[str, int] | Call) -> CallStack:
        made = (
            each if isinstance(each, Call) else Call(each[0], str(path), each[1], lines[each[1] - 1].strip())
            for each in calls
        )
        return (script, *made)

    return stack


def test_gathering_without_gradients_in_a_librarys_loop_is_no_evaluation_and_not_all_that_computes(
    tmp_path: Path,
    within: At,
) -> None:
    """Rollouts of every tenth step, as long as the nine that train on them."""
    gathering = [within(("learn", 3), ("collect", 8), STEPPING), within(("learn", 3), ("collect", 7), MODULE)]
    training = [within(("learn", 4), ("train", 11), ENGINE), within(("learn", 4), ("train", 10), MODULE)]
    long = range(0, 40, 10)
    looks = [(step, each) for step in long for each in gathering * 10]
    looks += [(step, each) for step in range(40) if step not in long for each in training]
    found = told(tmp_path, looks, long=long)
    assert found.shares[EVALUATING].value == found.shares[MAKING].value == 0
    assert found.shares[OTHER].value == pytest.approx(80 / 152)
    assert found.shares[COMPUTING].high < 0.7
    assert "/rl/learner.py" in found.lines[OTHER][0].file


def test_what_a_library_asks_the_model_for_between_steps_evaluates_where_it_says_so(tmp_path: Path, within: At) -> None:
    evaluating = within(("learn", 3), Call("evaluate_policy", SITE, 7, "actions = model(seen)"), MODULE)
    looks = [(step, within(("learn", 4), ("train", 11), ENGINE)) for step in range(40)]
    found = told(tmp_path, looks + [(20, evaluating)] * 10, long=(20,))
    assert found.shares[EVALUATING].value == 0.2


ONE_LINE = """\
def train():
    while True:
        t = time(); b = next(mt); wait += time() - t
        opt.zero_grad(); loss = mse(net(b), b); loss.backward(); opt.step()
        log(plain(loss))
        loss = update(net, opt, memory.sample(8))
"""


def test_each_of_several_statements_of_a_line_and_what_is_given_on_count_by_what_they_call(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(ONE_LINE)
    lines = ONE_LINE.splitlines()

    def at(line: int, *inner: Call) -> CallStack:
        return Call("train", str(path), line, lines[line - 1].strip()), *inner

    update = Call("update", str(tmp_path / "update.py"), 3, "loss.backward()")
    mse = Call("mse_loss", f"{TORCH}/nn/functional.py", 3800)
    of = {
        COMPUTING: [at(4, MODULE), at(4, ENGINE), at(4, ADAM), at(4, mse), at(6, update, ENGINE)],
        MAKING: [at(3, Call("Augmenter.__next__", SITE, 9)), at(6, Call("Memory.sample", SITE, 90))],
        OTHER: [at(5, Call("log", SITE, 5)), at(5, Call("plain", SITE, 6)), at(4)],
    }
    found = told(tmp_path, [(step, stack) for step in range(40) for stacks in of.values() for stack in stacks])
    assert {kind: share.value for kind, share in found.shares.items() if share.value} == {
        kind: len(stacks) / 10 for kind, stacks in of.items()
    }
