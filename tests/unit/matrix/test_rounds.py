"""Which runs a budget of time has room for, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from whyidle.matrix.rounds import rounds, within

SECONDS = st.floats(0.1, 100)
ROUNDING = 1e-6
Case = tuple["Machine", list[tuple[int, str]], float, dict[str, float]]


class Machine:
    """Runs take what is said of their candidate; nothing else takes time."""

    def __init__(self, seconds: dict[str, float], start: float = 0.0) -> None:
        self._seconds = seconds
        self.now = 0.0
        self._start = start
        self.ran: list[tuple[int, str]] = []
        self.began: list[float] = []

    def clock(self) -> float:
        return self.now

    def run(self, order: Iterator[tuple[int, str]], budget: float) -> None:
        self.now += self._start
        for number, candidate in within(order, budget, 0.0, self.clock):
            self.ran.append((number, candidate))
            self.began.append(self.now)
            self.now += self._seconds[candidate]


@st.composite
def machines(draw: st.DrawFn) -> Case:
    seconds = draw(st.dictionaries(st.sampled_from("abcdefgh"), SECONDS, min_size=1))
    planned = list(rounds(list(seconds), draw(st.integers(1, 4)), draw(st.integers(0, 9))))
    return Machine(seconds, draw(st.floats(0, 50))), planned, draw(st.floats(0.1, 500)), seconds


@given(machines())
def test_the_first_runs_and_of_the_others_in_their_order_those_that_are_known_to_fit(case: Case) -> None:
    machine, planned, budget, seconds = case
    machine.run(iter(planned), budget)
    assert machine.ran[0] == planned[0]
    assert machine.ran == [pair for pair in planned if pair in machine.ran]
    for number, candidate in planned:
        if (number, candidate) not in machine.ran and (number - 1, candidate) in machine.ran:
            assert machine.now + seconds[candidate] > budget - ROUNDING
    seen: set[str] = set()
    for place, ((_, candidate), began) in enumerate(zip(machine.ran, machine.began, strict=True)):
        if place:
            assert began <= budget
        if candidate in seen:
            assert began + seconds[candidate] <= budget + ROUNDING
        seen.add(candidate)


def test_a_candidate_that_never_ran_is_expected_to_take_the_median_of_the_others() -> None:
    others = {"a": 2.0, "b": 3.0, "c": 40.0}
    order = [(0, name) for name in (*others, "new")]
    for budget, runs in ((48.0, True), (47.9, False)):
        machine = Machine(others | {"new": 20.0})
        machine.run(iter(order), budget)
        assert ((0, "new") in machine.ran) is runs


def test_the_latest_run_of_a_candidate_says_how_long_its_next_takes() -> None:
    machine = Machine({"a": 10})
    order = within([(number, "a") for number in range(9)], 24, 0.0, machine.clock)
    for seconds in (10, 2, 5):
        next(order)
        machine.now += seconds
    # 17 s are used up: another 5 s fit, as the latest took, and then 7 s do not.
    assert next(order) == (3, "a")
    machine.now += 7
    assert list(order) == []
