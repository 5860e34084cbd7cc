"""The loop detector by itself: tables of events, and what is to be done of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.loop_detector.actions import (
    Action,
    Amend,
    BeginStep,
    Compute,
    Deliver,
    EndStep,
    FetchWithinBegins,
    FetchWithinEnds,
    FirstLearning,
    Happened,
    Say,
    TakeBack,
)
from whyidle.capture.loop_detector.detector import LoopDetector
from whyidle.capture.loop_detector.events import (
    BoundaryBegins,
    BoundaryEnds,
    Event,
    FetchBegins,
    FetchEnds,
    FetchesElsewhere,
    FetchFails,
    FetchStops,
    Finishes,
    IterBegins,
    IterEnds,
    Learns,
    LearnsElsewhere,
    PhaseEnds,
    StepMarked,
    Updated,
    WaitBegins,
    WaitEnds,
)
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.capture.loop_detector.state import ADJACENT_NS
from whyidle.capture.loop_detector.unfed import BATCH_UPDATES, LEARNS_ELSEWHERE, UNFED_UPDATES
from whyidle.record.schema import NOT_MEASURED, EventKind

TRAINING, OTHER = 1, 2
"""Threads."""
FAR = 10 * ADJACENT_NS
"""Later than what belongs together."""


@pytest.fixture(autouse=True)
def what_follows_is_adjacent() -> None:
    """Tests of hooks in real loops stretch what is close together; here all times are made up."""


def told(events: Iterable[Event], detector: LoopDetector | None = None) -> list[Action]:
    detector = detector or LoopDetector(TRAINING)
    return [action for event in events for action in detector.feed(event)]


def passed(role: Role | None = None) -> Iteration:
    return Iteration(role or Role(), 1)


def fetched(of: Iteration, at: int, samples: int = 4, gradients: bool = True) -> list[Event]:
    return [FetchBegins(of, at, gradients), FetchEnds(of, at + 10, samples)]


def learnt(at: int, optimizer: int = 7) -> list[Event]:
    return [Learns(at, False), Learns(at + 10, True), Updated(at + 20, optimizer)]


def same(actions: Iterable[Action], expected: Iterable[Action]) -> bool:
    """Tuples of two kinds may be equal."""
    return [(type(each), each) for each in actions] == [(type(each), each) for each in expected]


def kinds(actions: Iterable[Action]) -> list[str]:
    return [type(action).__name__ for action in actions]


def boundaries(actions: Iterable[Action]) -> list[tuple[int, int]]:
    return [
        (each.t_ns, each.end_ns) for each in actions if isinstance(each, Happened) and each.what == EventKind.BOUNDARY
    ]


def test_a_batch_that_is_learnt_from_is_a_step_and_the_first_counts_its_epoch() -> None:
    of = passed()
    actions = told([*fetched(of, 100), *learnt(200), *fetched(of, 300, samples=2), *learnt(400)])
    expected = [
        BeginStep(0, True, None, 100),
        Deliver(4, 110, True),
        Happened(EventKind.EPOCH_BEGIN, 0, NOT_MEASURED, 100),
        FirstLearning(),
        BeginStep(0, False, None, 300),
        Deliver(2, 310, True),
        FirstLearning(),
    ]
    assert same(actions, expected)


def test_a_loader_that_is_never_learnt_from_leaves_no_step_and_one_boundary() -> None:
    of = passed()
    actions = told([*fetched(of, 100), *fetched(of, FAR), *fetched(of, 2 * FAR), FetchStops(of, 3 * FAR)])
    assert same(actions[:3], [BeginStep(0, True, None, 100), Deliver(4, 110, True), TakeBack()])
    assert boundaries(actions) == [(1, 3 * FAR)]
    assert "BeginStep" not in kinds(actions[3:])


def test_what_is_fetched_without_gradients_ends_the_step_before_and_is_a_boundary_until_its_end() -> None:
    trains, held_out = passed(), passed()
    actions = told(
        [
            *(*fetched(trains, 100), *learnt(200)),
            *fetched(held_out, 1000, gradients=False),
            *fetched(held_out, 2000, gradients=False),
            FetchStops(held_out, 3000),
            *fetched(trains, 4000),
        ]
    )
    after = actions[actions.index(FirstLearning()) + 1 :]
    assert after[0] == EndStep(False)
    assert boundaries(after) == [(1000, 3000)]
    assert same(after[-2:], [BeginStep(0, False, None, 4000), Deliver(4, 4010, True)])


def test_two_fetches_before_the_first_learning_hold_a_batch_back_to_the_end() -> None:
    of = passed()
    events: list[Event] = [*fetched(of, 100, 4), *fetched(of, 200, 3), *learnt(300)]
    events += [*fetched(of, FAR, 2), *learnt(FAR + 100), FetchBegins(of, 2 * FAR, True), FetchStops(of, 2 * FAR + 10)]
    delivered = [each.samples for each in told(events) if isinstance(each, Deliver)]
    # The second fetch belongs to the first step, whose batch is the first; at the end comes the one held back.
    assert delivered == [4, 4, 3, 2]


def test_a_first_batch_that_is_dropped_is_no_step_once_the_loader_was_seen_to_train_on_each_as_it_came() -> None:
    role = Role()
    one, two = passed(role), passed(role)
    before: list[Event] = [*fetched(one, 100), *learnt(200), *fetched(one, 300), *learnt(400)]
    ended: list[Event] = [FetchBegins(one, 500, True), FetchStops(one, 510)]
    dropped = told([*before, *ended, *fetched(two, 600, 4), *fetched(two, 700, 3), *learnt(800)])[-4:]
    assert same(dropped, [TakeBack(), BeginStep(1, False, None, 700), Deliver(3, 710, True), FirstLearning()])


def test_batches_summed_before_one_backward_pass_are_a_step_each_from_then_on() -> None:
    of = passed()
    round_: list[list[Event]] = [
        [*fetched(of, k * FAR), *fetched(of, k * FAR + 2 * ADJACENT_NS), *learnt(k * FAR + 3 * ADJACENT_NS)]
        for k in range(1, 6)
    ]
    first: list[Event] = [*fetched(of, 100), *learnt(200)]
    assert kinds(told([*first, *(event for each in round_ for event in each)])).count("BeginStep") == 11


def test_a_second_loader_within_a_step_that_trains_is_a_further_fetch_of_it() -> None:
    one, two = passed(), passed()
    begin: list[Event] = [*fetched(one, 100), *learnt(200), *fetched(one, FAR)]
    apart = told([*begin, *fetched(two, 3 * FAR), *learnt(4 * FAR)])
    assert kinds(apart)[-3:] == ["FetchWithinBegins", "FetchWithinEnds", "FirstLearning"]
    one, two = passed(), passed()
    begin = [*fetched(one, 100), *learnt(200), *fetched(one, FAR)]
    at_once = told([*begin, *fetched(two, FAR + 20, samples=9), *learnt(2 * FAR)])
    assert at_once[-2:] == [Deliver(4, FAR + 30, True), FirstLearning()]


def test_an_iterator_that_is_made_just_before_its_first_fetch_is_part_of_it() -> None:
    of = passed()
    near = told([IterBegins(of, 100, True), IterEnds(of, 200), *fetched(of, 300), *learnt(400)])
    assert same(near[:2], [BeginStep(0, True, None, 100), Deliver(4, 310, True)])
    of = passed()
    far = told([IterBegins(of, 100, True), IterEnds(of, 200), *fetched(of, FAR), *learnt(2 * FAR)])
    assert same(far[:3], [BeginStep(0, True, None, 100), TakeBack(), BeginStep(0, True, None, FAR)])


def test_a_fetch_that_fails_or_ends_takes_its_step_back() -> None:
    for ends in (FetchFails(), FetchStops(of := passed(), 200)):
        assert kinds(told([FetchBegins(of, 100, True), ends])) == ["BeginStep", "TakeBack"]


def test_optimizer_steps_without_batches_become_steps_after_a_few_which_is_said_once() -> None:
    actions = told(event for k in range(UNFED_UPDATES + 2) for event in learnt(100 * (k + 1)))
    assert kinds(actions).count("BeginStep") == 3
    first = next(each for each in actions if isinstance(each, BeginStep))
    assert first == BeginStep(0, True, None, 100 * UNFED_UPDATES + 20)
    assert kinds(actions).count("Say") == 1
    assert kinds(actions).count("Compute") == 3


def test_of_two_optimizers_in_turn_the_later_ends_the_steps() -> None:
    events = [event for k in range(1, 11) for event in (*learnt(100 * k, 1), *learnt(100 * k + 50, 2))]
    opened = [each.begin_ns for each in told(events) if isinstance(each, BeginStep)]
    assert opened
    assert {begin % 100 for begin in opened} == {70}


def test_a_training_that_stays_on_one_batch_goes_on_without_its_loader() -> None:
    of = passed()
    actions = told([*fetched(of, 100), *(each for k in range(BATCH_UPDATES + 1) for each in learnt(1000 * (k + 1)))])
    assert [each.begin_ns for each in actions if isinstance(each, BeginStep)] == [
        100,
        1000 * BATCH_UPDATES + 20,
        1000 * (BATCH_UPDATES + 1) + 20,
    ]


def test_steps_that_the_program_marks_begin_there_and_fetches_only_feed_them() -> None:
    of = passed()
    actions = told(
        [
            StepMarked(100),
            *fetched(of, 110),
            *learnt(200),
            StepMarked(300),
            *fetched(of, FAR, samples=3),
            *learnt(2 * FAR),
        ]
    )
    assert [each.begin_ns for each in actions if isinstance(each, BeginStep)] == [100, 300]
    assert FetchWithinEnds(3) in actions
    assert Deliver(4, 120, True) in actions


def test_a_wait_that_the_program_marks_opens_a_step_as_a_fetch_does() -> None:
    events = [
        event
        for k in range(1, 4)
        for event in (WaitBegins(k * FAR, True), WaitEnds(k * FAR + 5, False), *learnt(k * FAR + 9))
    ]
    assert [each.begin_ns for each in told(events) if isinstance(each, BeginStep)] == [FAR, 2 * FAR, 3 * FAR]


def test_a_wait_that_fails_is_no_step() -> None:
    assert kinds(told([WaitBegins(100, True), WaitEnds(200, True)])) == ["BeginStep", "TakeBack"]


def test_a_phase_between_steps_is_a_boundary_and_one_within_is_only_named() -> None:
    detector, of = LoopDetector(TRAINING), passed()
    told([*fetched(of, 100), Learns(200, False)], detector)
    assert not detector.between_steps
    within = detector.feed(PhaseEnds(300, 250, detector.learnings, detector.between_steps, 5))
    assert within == [Happened(EventKind.PHASE, 5, 300, 250)]
    told([Learns(400, True)], detector)
    assert detector.between_steps
    after = detector.feed(PhaseEnds(600, 500, detector.learnings, detector.between_steps, 5))
    assert after[1:] == [Happened(EventKind.BOUNDARY, NOT_MEASURED, 600, 500), EndStep(False, 500)]


def test_a_checkpoint_before_the_first_learning_leaves_the_step_open() -> None:
    of = passed()
    actions = told([*fetched(of, 100), BoundaryBegins(200), BoundaryEnds(300), *learnt(400)])
    assert boundaries(actions) == [(200, 300)]
    assert kinds(actions).count("BeginStep") == 1
    assert "Compute" in kinds(actions)
    assert "TakeBack" not in kinds(actions)


def test_a_thread_that_fetches_and_learns_is_taken_for_the_training_at_once() -> None:
    detector = LoopDetector(TRAINING)
    actions = told([FetchesElsewhere(OTHER, "T"), LearnsElsewhere(100, OTHER, "T", "main")], detector)
    assert detector.thread == OTHER
    assert kinds(actions) == ["Say"]


def test_beside_a_thread_that_fetches_it_takes_more_to_believe_that_another_trains() -> None:
    detector, of = LoopDetector(TRAINING), passed()
    told(fetched(of, 100), detector)
    for k in range(LEARNS_ELSEWHERE):
        assert detector.thread == TRAINING
        actions = detector.feed(LearnsElsewhere(200 + k, OTHER, "T", "main"))
    assert detector.thread == OTHER
    assert kinds(actions)[0] == "TakeBack"


def test_once_an_epoch_was_trained_no_other_thread_is() -> None:
    detector, of = LoopDetector(TRAINING), passed()
    told([*fetched(of, 100), *learnt(200)], detector)
    assert not detector.undecided
    assert told([LearnsElsewhere(300 + k, OTHER, "T", "main") for k in range(9)], detector) == []
    assert detector.thread == TRAINING


@pytest.mark.parametrize("learns", [True, False])
def test_a_training_without_steps_says_why(learns: bool) -> None:
    actions = told([*([Learns(100, False)] if learns else []), Finishes(200)])
    (said,) = [each.text for each in actions if isinstance(each, Say)]
    assert ("whyidle.step()" in said) == learns


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
                happens.append((FetchBegins, number, at(), gradients, computed))
                happens.append((FetchEnds, number, at(), draw(st.integers(0, 9)), 1, len(happens), 0))
                if what == "round":
                    happens += [(Learns, None, at(), False), (Learns, None, at(), True), (Updated, None, at(), 7)]
            case "learn":
                happens.append((Learns, None, at(), draw(st.booleans())))
                happens.append((Updated, None, at(), draw(st.integers(7, 8))))
            case "iter":
                number = draw(st.integers(0, 2))
                happens += [(IterBegins, -1 - number, at(), draw(st.booleans())), (IterEnds, number, at())]
            case "stop":
                number = draw(st.integers(0, 2))
                happens += [(FetchBegins, number, at(), True), (FetchStops, number, at())]
            case "fail":
                happens += [(FetchBegins, draw(st.integers(0, 2)), at(), True), (FetchFails, None)]
            case "mark":
                if draw(st.booleans()) and draw(st.booleans()):
                    happens.append((StepMarked, None, at()))
            case "wait":
                happens += [(WaitBegins, None, at(), draw(st.booleans())), (WaitEnds, None, at(), draw(st.booleans()))]
            case "save":
                happens += [(BoundaryBegins, None, at()), (BoundaryEnds, None, at())]
    return [*happens, (Finishes, None, at())]


def play(happens: list[tuple[Any, ...]], detector: LoopDetector) -> list[Action]:
    roles = [Role() for _ in range(3)]
    passes = [Iteration(role, 100) for role in roles]
    actions: list[Action] = []
    for kind, number, *fields in happens:
        if kind is BoundaryBegins and detector.in_boundary:
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
            case BeginStep():
                assert action.begin_ns >= last_begin
                is_open, within, last_begin = True, False, action.begin_ns
            case TakeBack() | EndStep():
                is_open = False
            case Deliver() | Amend() | Compute() | FetchWithinBegins() | FirstLearning():
                assert is_open
                assert not within
                within = isinstance(action, FetchWithinBegins)
            case FetchWithinEnds():
                assert within
                within = False
            case Happened(what=EventKind.BOUNDARY):
                assert max(ended, action.t_ns) <= action.end_ns
                ended = action.end_ns
    assert not is_open
    assert detector.open is None
    assert not detector.in_boundary
