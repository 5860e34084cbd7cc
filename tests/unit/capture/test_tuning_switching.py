"""Switching between sources of batches, on a clock of our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from whyidle.capture.tuning.switching import LEAST_BATCHES, MOST_CUTS, Switching
from whyidle.record.tuning import Block, LoaderSettings, Word

MS = 1_000_000
NONE = LoaderSettings(0, batch_size=4)
TWO = LoaderSettings(2, 2, batch_size=4)
FOUR = LoaderSettings(4, 3, batch_size=4, persistent_workers=True)


class Stopped(BaseException):
    pass


class World:
    """A clock, a tuner that gives orders one after the other, and sources that take time."""

    def __init__(self, *orders: tuple[str, LoaderSettings, float]) -> None:
        self.now = 0
        self.orders = [{"say": say, "settings": s, "seconds": seconds} for say, s, seconds in orders]
        self.said: list[dict[str, Any]] = []
        self.sources: list[Queue] = []
        self.alive = True
        self.make: Callable[[LoaderSettings], Queue] = lambda settings: Queue(self, settings)
        self.switching = Switching(
            self._make,
            self,  # type: ignore[arg-type]
            SimpleNamespace(now=lambda: self.now, synchronize=lambda: None),  # type: ignore[arg-type]
            self.stop,
            lambda: self.alive,
        )

    def _make(self, settings: LoaderSettings, _: Sequence[int]) -> Queue:
        source = self.make(settings)
        self.sources.append(source)
        return source

    def stop(self) -> NoReturn:
        raise Stopped

    def send(self, say: str, **content: Any) -> None:
        self.said.append({"say": say, **content})

    def receive(self, seconds: float) -> dict[str, Any] | None:
        if not self.orders:
            raise Stopped
        return self.orders.pop(0)

    def train(self, step: int = 10 * MS, interrupted: Callable[[int], bool] = lambda number: False) -> list[Any]:
        """To the end of the orders; the batches that were trained."""
        trained: list[Any] = []
        try:
            for number in range(100_000):
                self.switching.border(interrupted(number))
                trained.append(self.switching.next()[0])
                self.now += step
        except Stopped:
            pass
        return trained

    @property
    def blocks(self) -> list[Block]:
        return [said["block"] for said in self.said if said["say"] == Word.BLOCK]


class Queue:
    """Workers that each take `service` for a batch and have at most `outstanding` ordered or finished."""

    def __init__(self, world: World, settings: LoaderSettings, service: int = 40 * MS, size: int | None = None) -> None:
        self.world = world
        self.settings = settings
        self.service = service
        self.size = size
        self.fails_at: int | None = None
        self.closed = self.restarts = self.given = self.rested = 0
        self._begin()

    def _begin(self) -> None:
        self.world.now += 100 * MS  # to start the workers
        self.free = [self.world.now] * self.settings.num_workers
        self.ready: list[int] = []
        self.in_pass = 0
        self._order()

    def _order(self) -> None:
        while len(self.ready) < self.settings.outstanding:
            worker = min(range(len(self.free)), key=self.free.__getitem__)
            self.free[worker] = max(self.free[worker], self.world.now) + self.service
            self.ready.append(self.free[worker])

    def next(self) -> tuple[Any, int | None]:
        if self.fails_at == self.given:
            raise ValueError("no such sample")
        if self.size is not None and self.in_pass == self.size:
            raise StopIteration
        self.in_pass += 1
        self.given += 1
        if not self.settings.num_workers:
            self.world.now += self.service
        else:
            self.world.now = max(self.world.now, self.ready.pop(0))
            self._order()
        return (self.settings.num_workers, self.given), self.settings.batch_size

    def restart(self) -> None:
        self.restarts += 1
        self._begin()

    def rest(self, seconds: float) -> None:
        self.rested += 1
        self.world.now = max([self.world.now, *self.ready])

    def close(self) -> None:
        self.closed += 1

    def why_failed(self) -> str | None:
        return "worker 7 was ended by signal: SIGKILL" if self.fails_at == self.given else None


def test_a_block_measures_what_the_loader_lasts_to_give_and_nothing_of_its_queue() -> None:
    world = World((Word.MEASURE, TWO, 1.0), (Word.MEASURE, NONE, 1.0), (Word.MEASURE, TWO, 1.0))
    world.train()
    first, serial, again = world.blocks
    # Two workers of 40 ms feed steps of 10 ms; alone a step takes 50 ms.
    for block in (first, again):
        assert block.samples_per_s == pytest.approx(4 / 0.020, rel=0.05)
    assert serial.samples_per_s == pytest.approx(4 / 0.050, rel=1e-6)
    assert serial.wait_ns == serial.batches * 40 * MS
    assert first.seconds >= 1.0
    assert first.samples == 4 * first.batches
    assert len(world.sources) == 2
    # Its workers rest before the next one's block begins.
    assert world.sources[0].rested >= 1


def test_beginning_a_loader_is_told_apart_from_what_follows() -> None:
    world = World((Word.MEASURE, FOUR, 0.5), (Word.MEASURE, FOUR, 0.5), (Word.MEASURE, NONE, 0.5))
    world.train()
    fresh, again, serial = world.blocks
    assert fresh.start_ns == 140 * MS
    assert fresh.restart_ns == 140 * MS
    assert (again.start_ns, again.restart_ns) == (None, None)
    assert serial.restart_ns is None
    assert world.sources[0].restarts == 1


def test_settings_that_fail_at_once_or_later_are_said_and_others_go_on() -> None:
    def make(settings: LoaderSettings) -> Queue:
        if settings == FOUR:
            raise OSError(28, "No space left on device")
        source = Queue(world, settings)
        source.fails_at = 30 if settings == TWO else None
        return source

    world = World((Word.MEASURE, FOUR, 1.0), (Word.MEASURE, TWO, 5.0), (Word.MEASURE, NONE, 0.5))
    world.make = make
    trained = world.train()
    assert [said["say"] for said in world.said] == [Word.OOM, Word.OOM, Word.BLOCK]
    assert "ValueError: no such sample (worker 7 was ended by signal: SIGKILL)" in world.said[1]["why"]
    assert world.said[0]["settings"] == FOUR
    assert world.sources[0].closed == 1
    # The training got its next batch from the next order's loader.
    assert {workers for workers, _ in trained} == {0, 2}


def test_passes_that_end_are_begun_anew_and_what_that_takes_belongs_to_short_ones() -> None:
    world = World((Word.MEASURE, NONE, 1.0), (Word.MEASURE, TWO, 1.0))
    world.make = lambda settings: Queue(world, settings, size=10 if settings == NONE else 2)
    world.train()
    long_enough, short = world.blocks
    assert long_enough.samples_per_s == pytest.approx(4 / 0.050, rel=1e-6)
    # Two batches of 40 ms, both at once, after 100 ms to start.
    assert short.samples_per_s < 8 / 0.140


@pytest.mark.parametrize(("settings", "batches"), [(TWO, LEAST_BATCHES), (LoaderSettings(8, 1, batch_size=4), 24)])
def test_a_block_has_several_bursts_of_its_workers(settings: LoaderSettings, batches: int) -> None:
    world = World((Word.MEASURE, settings, 0.1))
    world.train()
    assert world.blocks[0].batches == batches


def test_what_comes_into_a_block_begins_it_anew_and_in_the_end_what_lies_between_counts() -> None:
    world = World((Word.MEASURE, NONE, 1.0))
    came: list[int] = []

    def interrupted(number: int) -> bool:
        if number % 8 == 7:
            came.append(world.now)
        return number % 8 == 7

    world.train(interrupted=interrupted)
    (block,) = world.blocks
    # Steps of 50 ms; two of each eight settle.
    assert block.batches == round(block.seconds / 0.050) == 5
    assert not [at for at in came if block.begin_ns < at < block.end_ns]
    assert len(came) == MOST_CUTS + 1


def test_with_interruptions_all_the_time_it_fails() -> None:
    world = World((Word.MEASURE, NONE, 1.0))
    world.train(interrupted=lambda number: True)
    assert (world.said[0]["say"], "too often" in world.said[0]["why"]) == (Word.FAILED, True)


def test_a_loader_without_batches_is_said() -> None:
    world = World((Word.MEASURE, NONE, 1.0))
    world.make = lambda settings: Queue(world, settings, size=0)
    world.train()
    assert world.said[0]["say"] == Word.FAILED
    assert "no batches" in world.said[0]["why"]


def test_held_batches_take_no_time_and_no_loader_of_another_size() -> None:
    large = LoaderSettings(2, 2, batch_size=8)
    world = World(
        (Word.MEASURE, TWO, 0.5),
        (Word.MEASURE, NONE.without_loader(), 0.5),
        (Word.MEASURE, large.without_loader(), 0.5),
    )
    trained = world.train()
    measured, held, larger = world.blocks
    assert (held.settings.held, measured.settings.held) == (True, False)
    assert held.samples_per_s == pytest.approx(4 / 0.010, rel=1e-6)
    assert larger.samples_per_s == pytest.approx(8 / 0.010, rel=1e-6)
    assert held.wait_ns == 0
    assert [source.settings for source in world.sources] == [TWO, LoaderSettings(0, batch_size=8)]
    assert len(set(trained[-larger.batches :])) == 8


def test_closing_ends_the_workers_and_the_next_order_makes_them_anew() -> None:
    world = World((Word.MEASURE, TWO, 0.5), (Word.CLOSE, TWO, 0), (Word.MEASURE, TWO, 0.5))
    world.train()
    assert [source.closed for source in world.sources] == [1, 0]
    assert all(block.start_ns is not None for block in world.blocks)


def test_the_training_stops_when_its_tuner_is_gone() -> None:
    world = World((Word.MEASURE, NONE, 1000.0))

    def gone(number: int) -> bool:
        world.alive = number < 100
        return False

    assert len(world.train(interrupted=gone)) < 130


def test_an_order_under_way_is_answered_when_the_training_ends() -> None:
    world = World((Word.MEASURE, NONE, 1000.0))
    world.switching.border()
    world.switching.next()
    world.switching.training_ended("it raised", True)
    world.switching.training_ended("it raised", True)
    assert [(said["say"], said["ended"]) for said in world.said] == [(Word.OOM, True)]
