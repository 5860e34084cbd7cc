"""Doing the same thing on one core and on all at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from whyidle.capture.all_cores import AllCores
from whyidle.errors import WhyidleError


def naps(process: int) -> dict[str, Callable[[], object]]:
    return {"nap": lambda: time.sleep(0.01), "nothing": lambda: None}


def test_rates_are_of_one_process_and_of_all_together_which_end_with_it() -> None:
    with AllCores(naps, 3) as bench:
        assert bench.names == ("nap", "nothing")
        rates = bench.measure("nap", 0.1)
        started = list(bench._processes)
    # Sleeping takes no core: each does at most 100 a second, whatever else the machine does.
    assert 0 < rates.one <= 100
    assert rates.all <= 300
    bench.close()
    assert [process.is_alive() for process in started] == [False] * 3


def test_each_process_is_told_its_number() -> None:
    with AllCores(lambda process: {str(process): lambda: None}, 2) as bench:
        assert bench.names == ("0",)
        with pytest.raises(WhyidleError, match="'0'"):
            bench.measure("0", 0.01)  # the second has no such part


def test_what_fails_in_a_process_is_said_in_a_line() -> None:
    def broken(process: int) -> dict[str, Callable[[], object]]:
        raise WhyidleError("photo 7 breaks off")

    with pytest.raises(WhyidleError, match="This machine's limits were not measured: photo 7 breaks off"):
        AllCores(broken, 2)


def test_a_process_that_dies_is_no_hang() -> None:
    def dies(process: int) -> dict[str, Callable[[], object]]:
        return {"dies": lambda: os.kill(os.getpid(), signal.SIGKILL)}

    with AllCores(dies, 1) as bench, pytest.raises(WhyidleError, match="a process died"):
        bench.measure("dies", 1.0)
