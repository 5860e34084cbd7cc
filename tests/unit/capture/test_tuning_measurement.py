"""What borders of steps are to a measurement of loader settings, told by what was trained up to them."""

from __future__ import annotations

import pytest

from whyidle.capture.tuning.switching import FEWEST, LEAST_BATCHES, MOST_CUTS, MOST_TRIES, Due, Measurement
from whyidle.record.tuning import LoaderSettings

MS = 1_000_000
TWO = LoaderSettings(2, 2, batch_size=4)


class Trained:
    """A measurement of 100 ms, of steps of 10 ms each."""

    def __init__(self, settings: LoaderSettings = TWO) -> None:
        self.now = MS
        self.measured = Measurement(settings, 100 * MS, held=False)
        self.measured.settles(self.now)

    def step(self, interrupted: bool = False, pass_ended: bool = False, samples: int | None = 4) -> Due:
        self.measured.trains(samples, 3 * MS)
        self.now += 10 * MS
        due = self.measured.at_border(self.now, interrupted, pass_ended)
        if due is Due.SETTLING:
            self.measured.settles(self.now)
        elif due is Due.BEGIN:
            self.measured.begin_ns = self.now
        elif due is Due.END:
            self.measured.end_ns = self.now
        return due

    def until(self, due: Due) -> int:
        """Train until that is due; how many steps it took."""
        for steps in range(1, 100):
            if self.step() is due:
                return steps
        raise AssertionError(due)


def test_it_settles_by_what_the_queue_holds_and_lasts_as_long_as_was_asked_for() -> None:
    trained = Trained()
    assert trained.until(Due.BEGIN) == TWO.outstanding
    assert trained.until(Due.END) == 10
    block = trained.measured.block()
    assert (block.batches, block.samples, block.wait_ns) == (10, 40, 30 * MS)
    assert block.end_ns - block.begin_ns == 100 * MS


def test_many_workers_are_measured_for_several_of_their_bursts() -> None:
    trained = Trained(LoaderSettings(8, 1, batch_size=4))
    trained.until(Due.BEGIN)
    assert trained.until(Due.END) == 24 > LEAST_BATCHES


@pytest.mark.parametrize("interrupted", [True, False])
def test_what_comes_into_it_begins_it_anew_and_in_the_end_what_lies_between_counts(interrupted: bool) -> None:
    trained = Trained()
    for _ in range(MOST_CUTS):
        trained.until(Due.BEGIN)
        assert trained.step(interrupted, not interrupted) is Due.SETTLING
    trained.until(Due.BEGIN)
    for _ in range(FEWEST):
        assert trained.step() is Due.NOTHING
    before = trained.now
    assert trained.step(interrupted, not interrupted) is Due.ENDED
    block = trained.measured.block()
    assert (block.batches, block.end_ns) == (FEWEST, before)


def test_passes_that_are_too_short_to_measure_within_one_are_measured_across() -> None:
    trained = Trained()
    for _ in range(MOST_CUTS):
        assert trained.step(pass_ended=True) is Due.SETTLING
    trained.until(Due.BEGIN)
    assert [trained.step(pass_ended=True) for _ in range(10)] == [Due.NOTHING] * 9 + [Due.END]


def test_with_interruptions_all_the_time_it_fails() -> None:
    trained = Trained()
    for _ in range(MOST_TRIES):
        assert trained.step(interrupted=True) is Due.SETTLING
    with pytest.raises(RuntimeError, match="too often"):
        trained.step(interrupted=True)
