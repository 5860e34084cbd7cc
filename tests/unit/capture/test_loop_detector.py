"""The loop detector by itself, whatever a program does: its common cases, and the order of what it wants done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.loop_detector import actions as acts
from whyidle.capture.loop_detector import events
from whyidle.capture.loop_detector.detector import LoopDetector
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.capture.loop_detector.state import ADJACENT_NS
from whyidle.record.schema import EventKind

TRAINING = 1
"""The thread that trains."""


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
                happens.append((events.FetchBegins, number, at(), gradients, computed))
                happens.append((events.FetchEnds, number, at(), draw(st.integers(0, 9)), 1, len(happens), 0))
                if what == "round":
                    happens += [
                        (events.Learns, None, at(), False),
                        (events.Learns, None, at(), True),
                        (events.Updated, None, at(), 7),
                    ]
            case "learn":
                happens.append((events.Learns, None, at(), draw(st.booleans())))
                happens.append((events.Updated, None, at(), draw(st.integers(7, 8))))
            case "iter":
                number = draw(st.integers(0, 2))
                happens += [
                    (events.IterBegins, -1 - number, at(), draw(st.booleans())),
                    (events.IterEnds, number, at()),
                ]
            case "stop":
                number = draw(st.integers(0, 2))
                happens += [(events.FetchBegins, number, at(), True), (events.FetchStops, number, at())]
            case "fail":
                happens += [(events.FetchBegins, draw(st.integers(0, 2)), at(), True), (events.FetchFails, None)]
            case "mark":
                if draw(st.booleans()) and draw(st.booleans()):
                    happens.append((events.StepMarked, None, at()))
            case "wait":
                happens += [
                    (events.WaitBegins, None, at(), draw(st.booleans())),
                    (events.WaitEnds, None, at(), draw(st.booleans())),
                ]
            case "save":
                happens += [(events.BoundaryBegins, None, at()), (events.BoundaryEnds, None, at())]
    return [*happens, (events.Finishes, None, at())]


def play(happens: list[tuple[Any, ...]], detector: LoopDetector) -> list[acts.Action]:
    roles = [Role() for _ in range(3)]
    passes = [Iteration(role, 100) for role in roles]
    actions: list[acts.Action] = []
    for kind, number, *fields in happens:
        if kind is events.BoundaryBegins and detector.in_boundary:
            continue  # a checkpoint within a validation is part of it
        if number is None:
            event = kind(*fields)
        else:
            loader = -1 - number if number < 0 else number
            if number < 0 or passes[loader].done:
                passes[loader] = Iteration(roles[loader], fields[0])
            event = kind(passes[loader], *fields)
        actions += detector.feed(event)
    return actions


@given(programs())
def test_the_common_cases_are_short_for_what_the_long_way_does(happens: list[tuple[Any, ...]]) -> None:
    assert play(happens, LoopDetector(TRAINING)) == play(happens, Slow(TRAINING))


@given(programs())
def test_whatever_happens_steps_and_boundaries_are_in_order(happens: list[tuple[Any, ...]]) -> None:
    detector = LoopDetector(TRAINING)
    is_open, within, last_begin, ended = False, False, 0, 0
    for action in play(happens, detector):
        match action:
            case acts.BeginStep():
                assert action.begin_ns >= last_begin
                is_open, within, last_begin = True, False, action.begin_ns
            case acts.TakeBack() | acts.EndStep():
                is_open = False
            case acts.Deliver() | acts.Amend() | acts.Compute() | acts.FetchWithinBegins() | acts.FirstLearning():
                assert is_open
                assert not within
                within = isinstance(action, acts.FetchWithinBegins)
            case acts.FetchWithinEnds():
                assert within
                within = False
            case acts.Happened(what=EventKind.BOUNDARY):
                assert max(ended, action.t_ns) <= action.end_ns
                ended = action.end_ns
    assert not is_open
    assert detector.open is None
    assert not detector.in_boundary
