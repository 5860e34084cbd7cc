"""How often a second this machine does something, on one core and on all of them at once.

Two cores seldom do twice as much as one: they share caches, memory and clock, and virtual ones an execution unit. So
what all of them do at once is measured as that, not as a multiple.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Self

from ..errors import WhyidleError

Parts = Mapping[str, Callable[[], object]]
"""What is measured, by name: each call does it for one sample."""
_PATIENCE_S = 60.0
"""Beyond the time that was asked for, until a process counts as gone."""


class CoreRates(NamedTuple):
    """Samples a second."""

    one: float
    """By a single process, the others idle."""
    all: float
    """By one process for each core, together."""


class AllCores:
    """A process for each core, forked at once from this one, which do the same thing at the same time when told to.

    Between measurements they wait on a pipe and cost nothing. Close it, or use it as a context.
    """

    def __init__(self, prepare: Callable[[int], Parts], cores: int) -> None:
        """
        Args:
            prepare: called in each process with its number, from 0. All must give the same names.
            cores: how many processes.

        Raises:
            WhyidleError: `prepare` failed in one of them.
        """
        context = get_context("fork")
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        try:
            for number in range(cores):
                here, there = context.Pipe()
                self._pipes.append(here)
                process = context.Process(target=_serve, args=(prepare, number, there, list(self._pipes)), daemon=True)
                process.start()
                self._processes.append(process)
                there.close()
            said = [self._answer(pipe) for pipe in self._pipes]
            self.names: tuple[str, ...] = said[0]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure(self, name: str, seconds: float) -> CoreRates:
        """Do one of the parts for so long, first in one process, then in all.

        Raises:
            WhyidleError: it failed, or a process died.
        """
        return CoreRates(self._together(name, seconds, self._pipes[:1]), self._together(name, seconds, self._pipes))

    def close(self) -> None:
        """Ends the processes; safe to call twice."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.kill()
            process.join()
        self._pipes, self._processes = [], []

    def _together(self, name: str, seconds: float, pipes: list[Connection]) -> float:
        for pipe in pipes:
            with suppress(OSError):  # of one that is gone, its answer tells
                pipe.send((name, seconds))
        return float(sum(self._answer(pipe, seconds) for pipe in pipes))

    def _answer(self, pipe: Connection, seconds: float = 0.0) -> Any:
        try:
            said = pipe.recv() if pipe.poll(seconds + _PATIENCE_S) else "it did not answer"
        except (EOFError, OSError):
            said = "a process died, perhaps because memory ran out"
        if isinstance(said, str):
            raise WhyidleError(f"This machine's limits were not measured: {said}.")
        return said


def _serve(prepare: Callable[[int], Parts], number: int, pipe: Connection, others: list[Connection]) -> None:
    """Entered in a child. Ends when its pipe does."""
    try:
        for other in others:  # held open here, they would not end with the process that holds their other end
            other.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever measures
        parts = prepare(number)
        pipe.send(tuple(parts))
        while True:
            name, seconds = pipe.recv()
            part, done, lasted, begin = parts[name], 0, 0.0, time.perf_counter()
            while lasted < seconds or lasted <= 0:
                part()
                done += 1
                lasted = time.perf_counter() - begin
            pipe.send(done / lasted)
    except EOFError:
        pass
    except Exception as error:
        with suppress(OSError):
            pipe.send(str(error) or type(error).__name__)
    finally:
        os._exit(0)  # nothing of the parent's is torn down twice
