"""The loop detector by itself, whatever a program does: its common cases, and the order of what it wants done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.loop_detector.detector import ADJACENT_NS, LoopDetector
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.record.schema import EventKind

Doing = tuple[Any, ...]
"""The name of a call that is to be made, and its arguments."""


class Called:
    """In place of what records: gives functions of whatever name."""

    def __getattr__(self, name: str) -> Any:
        def call() -> None: ...

        call.__name__ = name
        return call


SESSION: Any = SimpleNamespace(steps=Called(), event=Called().event, notice=Called().notice)


@pytest.fixture(autouse=True)
def what_follows_is_adjacent() -> None:
    """Tests of hooks in real loops stretch what is close together; here all times are made up."""


class Slow(LoopDetector):
    """Goes the long way in the common cases as well."""

    def next_begins(self, of: Iteration, now: int) -> bool:
        return False

    def next_ends(self, of: Iteration, now: int, samples: int, loader: int, batch: int) -> bool:
        return False

    def next_learns(self, updates: bool) -> bool:
        return self.learnt and super().next_learns(updates)


DOES = ("round", "round", "fetch", "learn", "iter", "stop", "mark", "wait", "save", "fail")


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """What a program with up to three loaders does: (event, fields with a loader's number for its pass)."""
    happens: list[tuple[Any, ...]] = []
    now = 100

    def at() -> int:
        nonlocal now
        now += draw(st.sampled_from((10, ADJACENT_NS // 2, 2 * ADJACENT_NS)))
        return now

    for _ in range(draw(st.integers(1, 30))):
        match draw(st.sampled_from(DOES)):
            case "round" | "fetch" as what:
                number, gradients = draw(st.integers(0, 2)), draw(st.sampled_from((True, True, True, False)))
                computed = draw(st.sampled_from((None, False, False, True)))
                happens.append(("fetch_began", number, at(), gradients, computed))
                happens.append(("fetch_ended", number, at(), draw(st.integers(0, 9)), 1, len(happens), 0))
                if what == "round":
                    happens += [
                        ("learning_began", None, at(), False),
                        ("learning_began", None, at(), True),
                        ("update_ended", None, at(), 7),
                    ]
            case "learn":
                happens.append(("learning_began", None, at(), draw(st.booleans())))
                happens.append(("update_ended", None, at(), draw(st.integers(7, 8))))
            case "iter":
                number = draw(st.integers(0, 2))
                happens += [
                    ("iter_began", -1 - number, at(), draw(st.booleans())),
                    ("iter_ended", number, at()),
                ]
            case "stop":
                number = draw(st.integers(0, 2))
                happens += [("fetch_began", number, at(), True), ("fetch_stopped", number, at())]
            case "fail":
                happens += [("fetch_began", draw(st.integers(0, 2)), at(), True), ("fetch_failed", None)]
            case "mark":
                if draw(st.booleans()) and draw(st.booleans()):
                    happens.append(("step_marked", None, at()))
            case "wait":
                happens += [
                    ("wait_began", None, at(), draw(st.booleans())),
                    ("wait_ended", None, at(), draw(st.booleans())),
                ]
            case "save":
                happens += [("boundary_began", None, at()), ("end_boundary", None, at())]
    return [*happens, ("finished", None, at())]


def play(happens: list[tuple[Any, ...]], detector: LoopDetector) -> list[Doing]:
    roles = [Role() for _ in range(3)]
    passes = [Iteration(role, 100) for role in roles]
    done: list[Doing] = []
    for kind, number, *fields in happens:
        if kind == "boundary_began" and detector.in_boundary:
            continue  # a checkpoint within a validation is part of it
        if number is not None:
            loader = -1 - number if number < 0 else number
            if number < 0 or passes[loader].done:
                passes[loader] = Iteration(roles[loader], fields[0])
            fields = [passes[loader], *fields]
        done += [(call.__name__, *arguments) for call, arguments in detector.feed(getattr(detector, kind), *fields)]
    return done


@given(programs())
def test_the_common_cases_are_short_for_what_the_long_way_does(happens: list[tuple[Any, ...]]) -> None:
    assert play(happens, LoopDetector(1, SESSION)) == play(happens, Slow(1, SESSION))


@given(programs())
def test_whatever_happens_steps_and_boundaries_are_in_order(happens: list[tuple[Any, ...]]) -> None:
    detector = LoopDetector(1, SESSION)
    is_open, within, last_begin, ended = False, False, 0, 0
    for doing in play(happens, detector):
        match doing:
            case ("fetch_begin", _, _, _, begin_ns):
                assert begin_ns >= last_begin
                is_open, within, last_begin = True, False, begin_ns
            case ("abandon_fetch" | "end_step", *_):
                is_open = False
            case ("fetch_end" | "amend" | "compute_begin" | "fetch_within_begin" | "_first_learning" as call, *_):
                assert is_open
                assert not within
                within = call == "fetch_within_begin"
            case ("fetch_within_end", *_):
                assert within
                within = False
            case ("event", EventKind.BOUNDARY, _, end_ns, begin_ns):
                assert max(ended, begin_ns) <= end_ns
                ended = end_ns
            case ("event" | "notice" | "_loader_trains", *_):
                pass
            case _:
                raise AssertionError(doing)
    assert not is_open
    assert detector.open is None
    assert not detector.in_boundary
