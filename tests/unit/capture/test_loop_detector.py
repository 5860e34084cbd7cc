"""The loop detector by itself: what is to be done of events, and of updates whose batches are all fetched first."""

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
from whyidle.capture.loop_detector.batches import MOST_HELD, MOST_TOGETHER
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
    StepMarked,
    Updated,
    WaitBegins,
    WaitEnds,
)
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.capture.loop_detector.state import ADJACENT_NS
from whyidle.capture.loop_detector.unfed import LEARNS_ELSEWHERE
from whyidle.record.schema import EventKind

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


def test_an_iterator_that_is_made_just_before_its_first_fetch_is_part_of_it() -> None:
    of = passed()
    near = told([IterBegins(of, 100, True), IterEnds(of, 200), *fetched(of, 300), *learnt(400)])
    assert same(near[:2], [BeginStep(0, True, None, 100), Deliver(4, 310, True)])
    of = passed()
    far = told([IterBegins(of, 100, True), IterEnds(of, 200), *fetched(of, FAR), *learnt(2 * FAR)])
    assert same(far[:3], [BeginStep(0, True, None, 100), TakeBack(), BeginStep(0, True, None, FAR)])


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


class Written:
    """Makes the events of a program on a clock of its own."""

    def __init__(self) -> None:
        self.now = 100
        self.events: list[Event] = []

    def goes_on(self, ns: int = 10) -> int:
        self.now += ns
        return self.now

    def iterates(self, role: Role) -> Iteration:
        of = Iteration(role, self.goes_on())
        self.events += [IterBegins(of, of.begin_ns, True), IterEnds(of, self.goes_on())]
        return of

    def fetches(self, of: Iteration, samples: int, computed: bool | None = False, after: int = 10) -> None:
        self.events += [FetchBegins(of, self.goes_on(after), True, computed), FetchEnds(of, self.goes_on(), samples)]

    def stops(self, of: Iteration) -> None:
        self.events += [FetchBegins(of, self.goes_on(), True, False), FetchStops(of, self.goes_on())]

    def updates(self, passes: int) -> None:
        self.events += [Learns(self.goes_on(10 * ADJACENT_NS), False) for _ in range(passes)]
        self.events += [Learns(self.goes_on(), True), Updated(self.goes_on(), 7)]

    def ends(self) -> list[Action]:
        self.events.append(Finishes(self.goes_on()))
        return told(self.events)


def steps(actions: list[Action]) -> list[int]:
    """Samples of each step that is none that was taken back."""
    samples: list[int] = []
    for action in actions:
        match action:
            case BeginStep():
                samples.append(0)
            case Deliver() | Amend():
                samples[-1] = action.samples
            case TakeBack():
                samples.pop()
    return samples


def trains(program: Written, role: Role, sizes: list[int], together: int, held: int) -> None:
    """An epoch of transformers' Trainer over a loader that holds `held` batches back."""
    of, left, over = program.iterates(role), list(sizes), False
    for begin in range(0, len(sizes), together):
        update = sizes[begin : begin + together]
        ready = len(sizes) - len(left) - begin
        while ready < len(update) + held and not over:
            if left:
                program.fetches(of, left.pop(0))
                ready += 1
            else:
                program.stops(of)
                over = True
        program.updates(len(update))
    if not over:
        program.stops(of)


def updates_of(sizes: list[int], together: int) -> list[int]:
    return [sum(sizes[begin : begin + together]) for begin in range(0, len(sizes), together)]


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("together", [2, 3, 4, 16])
@pytest.mark.parametrize("last", [1, 2, 4])
def test_an_update_is_one_step_with_its_micro_batches_from_the_first_to_the_shorter_last_of_each_epoch(
    together: int, held: int, last: int
) -> None:
    program, role = Written(), Role()
    sizes = [*range(1, 3 * together + last), 1]
    for _ in range(3):
        trains(program, role, sizes, together, held)
    actions = program.ends()
    assert steps(actions) == 3 * updates_of(sizes, together)
    known = [each.value for each in actions if isinstance(each, Happened) and each.what == EventKind.BATCHES_TOGETHER]
    assert known == [together]
    (said,) = [each.text for each in actions if isinstance(each, Say)]
    assert f"{together} batches for each update" in said


@given(
    sizes=st.lists(st.integers(1, 9), min_size=7, max_size=40),
    together=st.integers(1, 3),
    held=st.integers(0, MOST_HELD),
    epochs=st.integers(1, 3),
)
def test_each_batch_is_counted_once_and_each_update_is_a_step(
    sizes: list[int], together: int, held: int, epochs: int
) -> None:
    program, role = Written(), Role()
    for _ in range(epochs):
        trains(program, role, sizes, together, held)
    samples = steps(program.ends())
    assert sum(samples) == epochs * sum(sizes)
    if held < MOST_HELD:
        # Of two held back the last is learnt from with no fetch before it.
        assert samples == epochs * updates_of(sizes, together)


def test_an_adversarial_net_under_a_loader_that_fetches_ahead_has_a_step_a_batch() -> None:
    program, of = Written(), Iteration(Role(), 100)
    program.fetches(of, 4)
    for _ in range(6):
        program.fetches(of, 4)
        program.updates(2)
        program.updates(1)
    program.stops(of)
    program.updates(2)
    program.updates(1)
    samples = steps(program.ends())
    assert (len(samples), samples[2:]) == (7, [4] * 5)


def test_batches_that_a_resumed_training_skips_lie_before_its_first_step() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for _ in range(20):
        program.fetches(of, 4)
    last = program.now - 10
    for k in range(5):
        program.updates(1)
        program.fetches(of, k)
    actions = program.ends()
    assert steps(actions)[:5] == [4, 0, 1, 2, 3]
    (amended,) = [each for each in actions if isinstance(each, Amend)]
    assert amended == Amend(4, last)


@pytest.mark.parametrize("batches", [3, 40, MOST_TOGETHER + 1])
@pytest.mark.parametrize("stops", [True, False])
def test_a_pass_that_only_looks_at_the_data_is_a_boundary_and_no_step(batches: int, stops: bool) -> None:
    program, role = Written(), Role()
    of = program.iterates(role)
    for _ in range(batches):
        program.fetches(of, 4)
    if stops:
        program.stops(of)
    trains(program, role, [4] * 6, 1, 0)
    actions = program.ends()
    assert steps(actions) == [4] * 6
    looked = [each for each in actions if isinstance(each, Happened) and each.what == EventKind.EVALUATION]
    assert [each.t_ns for each in looked] == [of.begin_ns]


def test_a_list_of_all_batches_is_no_update() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for _ in range(6):
        program.fetches(of, 4)
    program.stops(of)
    for _ in range(8):
        program.updates(1)
    assert steps(program.ends()) == [0] * 5


def test_epochs_of_one_update_are_steps_from_the_second_on() -> None:
    program, role = Written(), Role()
    for _ in range(3):
        trains(program, role, [4, 4, 4, 2], 4, 1)
    assert steps(program.ends()) == [14, 14]


def test_a_loader_that_fed_each_batch_by_itself_may_feed_several_at_once_later() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for _ in range(4):
        program.fetches(of, 4)
        program.updates(1)
    for _ in range(4):
        program.fetches(of, 4)
        program.fetches(of, 4)
        program.updates(2)
    # The first of them is two steps, of which one computes nothing.
    assert steps(program.ends()) == [4, 4, 4, 4, 4, 4, 8, 8, 8]
