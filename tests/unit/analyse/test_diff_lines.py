"""Lines of code that took more or less of the time: shares of looks, held against what counts differ by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.pairs import SOME, compare, noisy
from support.planted_runs import until
from support.planted_stacks import DECODING, FETCHING, FORWARD, MAIN, OPENING, WAITING, WORKER, look
from whyidle.analyse.diff.lines import MOST_LINES, MovedLine
from whyidle.record.stacks import Call, CallStack
from whyidle.scenarios.planted import MS, START

LOG = Call("log", "/home/me/logs.py", 8, "writer.write(json.dumps(history))")
LOGGING: CallStack = (MAIN, LOG)
EVERY = 10 * MS
"""Between two looks: a step of 35 ms is seen three or four times."""


def looked(run: Path, seed: int, shares: Sequence[tuple[CallStack, float]], process: int | None = None) -> Path:
    """Each look saw one of these stacks, by chance."""
    random = SOME(seed)
    which = random.choice(len(shares), 10_000, p=np.array([share for _, share in shares]))
    return look(run, range(START, until(run), EVERY), lambda number, _: shares[which[number]][0], process)


def trained(tmp_path: Path, name: str, seed: int, shares: Sequence[tuple[CallStack, float]], **how: float) -> Path:
    return looked(noisy(tmp_path / name, SOME(seed), run_noise=0.0, **how), seed, shares)


def moved(a: Path | list[Path], b: Path | list[Path]) -> tuple[MovedLine, ...]:
    lines = compare(a, b).lines
    assert lines is not None
    return lines


def test_a_line_that_got_slower_is_named_with_its_time(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FETCHING, 0.3), (FORWARD, 0.6), (LOGGING, 0.1)])
    b = trained(tmp_path, "b", 2, [(FETCHING, 0.3), (FORWARD, 0.3), (LOGGING, 0.4)], compute_ms=20.0)
    named = {line.call.text: line for line in moved(a, b)}
    slower = named["writer.write(json.dumps(history))"]
    # 8 samples in 35 ms: 4375 µs a sample, of which it took a tenth, then four.
    assert slower.whose == "training"
    assert slower.a.low < 437.5 < slower.a.high
    assert slower.b.low < 1750 < slower.b.high
    assert slower.change.value == pytest.approx(slower.b.value - slower.a.value)
    assert slower.change.low > 0
    assert named["loss = model(images, labels)"].change.high < 0
    assert "for images, labels in loader:" not in named


def test_lines_of_workers_count_for_all_workers_together(tmp_path: Path) -> None:
    sides = []
    for name, seed, opening in (("a", 1, 0.2), ("b", 2, 0.7)):
        run = trained(tmp_path, name, seed, [(FETCHING, 1.0)], workers=2)
        for worker in range(2):
            stacks = [(OPENING, opening), (DECODING, 0.8 - opening), (WAITING, 0.2)]
            looked(run, 10 * seed + worker, stacks, WORKER + worker)
        sides.append(run)
    named = {line.call.line: line for line in moved(sides[0], sides[1])}
    assert set(named) == {27, 29}
    assert {line.whose for line in named.values()} == {"workers"}
    assert named[27].a.low < 2 * 4375 * 0.2 < named[27].a.high
    assert named[27].b.low < 2 * 4375 * 0.7 < named[27].b.high


def test_a_line_is_the_same_where_its_number_and_its_folder_moved(tmp_path: Path) -> None:
    elsewhere = replace(LOG, file="/tmp/copy/logs.py", line=31)
    a = trained(tmp_path, "a", 1, [(FORWARD, 0.9), (LOGGING, 0.1)])
    b = trained(tmp_path, "b", 2, [(FORWARD, 0.6), ((MAIN, elsewhere), 0.4)])
    lines = {line.call: line for line in moved(a, b)}
    assert lines[elsewhere].a.value > 0
    assert LOG not in lines


def test_one_long_call_that_many_looks_saw_and_a_change_too_small_for_a_word_are_no_proof(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FORWARD, 0.995), (LOGGING, 0.005)])
    assert moved(a, trained(tmp_path, "b", 2, [(FORWARD, 0.997), (LOGGING, 0.003)])) == ()
    once = noisy(tmp_path / "once", SOME(2), run_noise=0.0)
    stop = range(START + 2000 * MS, START + 2500 * MS)
    look(once, range(START, until(once), EVERY), lambda _, at: LOGGING if at in stop else FORWARD)
    assert moved(trained(tmp_path, "c", 1, [(FORWARD, 1.0)]), once) == ()


def test_at_most_five_are_named_the_most_first(tmp_path: Path) -> None:
    calls = [(MAIN, Call(f"f{n}", "/home/me/many.py", n, f"step_{n}()")) for n in range(8)]
    a = trained(tmp_path, "a", 1, [(call, 1 / 8) for call in calls])
    b = trained(tmp_path, "b", 2, [(FORWARD, 1.0)])
    lines = moved(a, b)
    assert len(lines) == MOST_LINES
    sizes = [abs(line.change.value) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert lines[0].call.text == "loss = model(images, labels)"


def test_repeats_that_differ_among_themselves_prove_less(tmp_path: Path) -> None:
    def side(name: str, *shares: float) -> list[Path]:
        return [trained(tmp_path, f"{name}{n}", n, [(FORWARD, 1 - s), (LOGGING, s)]) for n, s in enumerate(shares)]

    assert moved(side("a", 0.1, 0.12, 0.11), side("b", 0.3, 0.32, 0.31))
    assert moved(side("c", 0.05, 0.5, 0.05), side("d", 0.1, 0.6, 0.3)) == ()


def test_without_looks_on_one_side_nothing_is_known(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FORWARD, 1.0)])
    assert compare(a, noisy(tmp_path / "b", SOME(2))).lines is None
