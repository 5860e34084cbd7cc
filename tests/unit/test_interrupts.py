"""Signals that ask to end, while something must come to its end."""

from __future__ import annotations

import signal
import threading

import pytest

from whyidle.interrupts import ENDING, held


@pytest.mark.parametrize("number", ENDING)
def test_what_was_expected_is_counted_and_the_next_is_delivered_again_at_the_end(number: int) -> None:
    got: list[int] = []
    before = signal.signal(number, lambda seen, _: got.append(seen))
    try:
        told: list[str] = []
        with held(expected=1, then=lambda: told.append("now")) as came:
            signal.raise_signal(number)
            assert (came, told) == ([number], [])
            signal.raise_signal(number)
            assert (came, told, got) == ([number, number], ["now"], [])
        assert got == [number]
        with held(expected=1):
            signal.raise_signal(number)
        assert got == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_a_second_ctrl_c_is_an_interrupt_only_once_all_is_done() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held():
        signal.raise_signal(signal.SIGINT)
        done.append("all")
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_changes_no_handler() -> None:
    handlers = []

    def look() -> None:
        with held() as came:
            handlers.append([signal.getsignal(each) for each in ENDING])
            assert came == []

    before = [signal.getsignal(each) for each in ENDING]
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [before]
