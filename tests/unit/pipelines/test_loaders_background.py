"""A thread that works ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.pipelines.background import Background


@given(st.lists(st.integers(), max_size=40), st.integers(1, 5))
def test_everything_comes_once_and_in_order(items: list[int], capacity: int) -> None:
    thread = Background(iter(items), capacity, "test")
    assert list(thread) == items
    thread.close()


def test_it_never_makes_more_than_it_may_hold(until: Any) -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for item in range(10):
            made.append(item)
            yield item

    thread = Background(source(), 3, "test")
    assert until(lambda: thread.ready() == 3)
    assert made == [0, 1, 2]
    assert next(thread) == 0
    assert until(lambda: thread.ready() == 3)
    assert made == [0, 1, 2, 3]
    thread.close()


def test_an_exception_comes_after_the_good_items_and_once() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("spoilt")

    thread = Background(source(), 5, "test")
    assert [next(thread), next(thread)] == [1, 2]
    with pytest.raises(KeyError, match="spoilt"):
        next(thread)
    assert list(thread) == []
    thread.close()


def test_closing_stops_a_full_thread_and_closes_its_source_there(until: Any) -> None:
    closed_by: list[int] = []

    def source() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed_by.append(threading.get_ident())

    before = threading.active_count()
    thread = Background(source(), 2, "test")
    assert until(lambda: thread.ready() == 2)
    thread.close()
    thread.close()
    assert threading.active_count() == before
    assert len(closed_by) == 1
    assert closed_by[0] != threading.get_ident()
    assert list(thread) == []


def test_closing_the_first_of_a_chain_frees_the_second() -> None:
    started = threading.Event()

    def waiting() -> Iterator[int]:
        yield 0
        started.wait()
        yield 1

    first = Background(waiting(), 1, "first")
    second = Background((item for item in first), 5, "second")
    assert next(second) == 0  # from here on the second waits for the first
    started.set()
    first.close()
    second.close()
    assert not [thread for thread in threading.enumerate() if thread.name in ("first", "second")]
