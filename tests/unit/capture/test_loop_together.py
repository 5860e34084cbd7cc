"""The loop detector by itself: updates whose batches are all fetched before the first of them is computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.loop_detector.actions import Action, Amend, BeginStep, Deliver, Happened, Say, TakeBack
from whyidle.capture.loop_detector.batches import MOST_HELD, MOST_TOGETHER
from whyidle.capture.loop_detector.detector import LoopDetector
from whyidle.capture.loop_detector.events import (
    Event,
    FetchBegins,
    FetchEnds,
    FetchStops,
    Finishes,
    IterBegins,
    IterEnds,
    Learns,
    Updated,
)
from whyidle.capture.loop_detector.loaders import Iteration, Role
from whyidle.capture.loop_detector.state import ADJACENT_NS
from whyidle.record.schema import EventKind


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
        detector = LoopDetector(1)
        return [action for event in self.events for action in detector.feed(event)]


def steps(actions: list[Action]) -> list[int]:
    """Samples of each step that is none that was taken back."""
    told: list[int] = []
    for action in actions:
        match action:
            case BeginStep():
                told.append(0)
            case Deliver() | Amend():
                told[-1] = action.samples
            case TakeBack():
                told.pop()
    return told


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
    told = [each.value for each in actions if isinstance(each, Happened) and each.what == EventKind.BATCHES_TOGETHER]
    assert told == [together]
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
    told = steps(program.ends())
    assert sum(told) == epochs * sum(sizes)
    if held < MOST_HELD:
        # Of two held back the last is learnt from with no fetch before it.
        assert told == epochs * updates_of(sizes, together)


def test_the_first_use_of_a_device_between_two_fetches_leaves_a_held_batch_held() -> None:
    program, of = Written(), Iteration(Role(), 100)
    program.fetches(of, 4)
    program.fetches(of, 3, after=100 * ADJACENT_NS)
    program.updates(1)
    program.fetches(of, 2)
    program.updates(1)
    program.stops(of)
    program.updates(1)
    assert steps(program.ends()) == [4, 3, 2]


def test_accumulation_as_it_comes_keeps_a_step_a_batch() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for k in range(1, 9):
        program.fetches(of, k)
        program.events.append(Learns(program.goes_on(), False))
        if k % 4 == 0:
            program.events += [Learns(program.goes_on(), True), Updated(program.goes_on(), 7)]
    assert steps(program.ends()) == list(range(1, 9))


def test_losses_summed_before_one_backward_pass_are_a_step_each_once_they_were_seen() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for k in range(1, 13):
        program.fetches(of, k, computed=k > 1)
        if k % 3 == 0:
            program.updates(1)
    assert steps(program.ends()) == list(range(4, 13))


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
    told = steps(program.ends())
    assert len(told) == 7
    assert told[2:] == [4] * 5


def test_pairs_drawn_for_one_backward_pass_are_one_step() -> None:
    program, of = Written(), Iteration(Role(), 100)
    for _ in range(5):
        program.fetches(of, 4)
        program.fetches(of, 4)
        program.updates(1)
    program.stops(of)
    told = steps(program.ends())
    assert len(told) == 5
    assert sum(told) == 40


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
