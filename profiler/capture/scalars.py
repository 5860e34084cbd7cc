"""What a recording so far comes to, logged by the training's own logger: `stallscope.log_to`.

At the begin of a step, in the thread that trains, figures that the command has computed meanwhile are read and handed
over. An error of the logger's ends that, with one notice, and the training goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..record.scalars import PREFIX, state, told, want
from .loggers import Send

RETRY_NS = 1_000_000_000
"""After a look that found nothing new."""

Log = Callable[[int, int, int, Callable[[str], None]], bool]

log: Log | None = None
"""Called before a step begins, with its number, the time, this process's rank and who takes notices; tells whether it
took notable time. `None`: nobody logs."""


class ScalarLog:
    """Reads the figures of a run folder and sends them."""

    def __init__(self, folder: Path, send: Send, every_s: float, every_rank: bool) -> None:
        self._folder = folder
        self._send = send
        self._every_s = every_s
        self._every_rank = every_rank
        self._due_ns = 0
        self._seen = state(folder)
        self._asked = self._ended = False

    def __call__(self, number: int, now_ns: int, rank: int, notice: Callable[[str], None]) -> bool:
        if now_ns < self._due_ns or self._ended:
            return False
        try:
            return self._look(number, now_ns, rank)
        except Exception as error:
            self._ended = True
            notice(
                f"stallscope.log_to has stopped logging: {type(error).__name__}: {str(error)[:200]}. The recording and "
                "the training went on."
            )
            return True

    def _look(self, number: int, now_ns: int, rank: int) -> bool:
        if rank and not self._every_rank:
            self._ended = True
            return False
        if not self._asked:
            want(self._folder, self._every_s)
            self._asked = True
        self._due_ns = now_ns + min(RETRY_NS, round(self._every_s * 1e9))
        now = state(self._folder)
        if now is None or now == self._seen:
            return False
        self._seen = now
        self._due_ns = now_ns + round(self._every_s * 1e9)
        figures = told(self._folder)
        values = None if figures is None else figures.values if not self._every_rank else figures.ranks.get(rank)
        if values is None and figures is not None and not figures.ranks:
            values = figures.values
        if not values:
            return False
        self._send({PREFIX + name: value for name, value in values.items()}, number)
        return True


def begin(folder: Path, send: Send, every_s: float, every_rank: bool) -> None:
    """Log the recording of this process to one more logger."""
    global log
    added, before = ScalarLog(folder, send, every_s, every_rank), log
    log = added if before is None else _both(before, added)


def _both(one: Log, other: Log) -> Log:
    def call(number: int, now_ns: int, rank: int, notice: Callable[[str], None]) -> bool:
        took = one(number, now_ns, rank, notice)
        return other(number, now_ns, rank, notice) or took

    return call
