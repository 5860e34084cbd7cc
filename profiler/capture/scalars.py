"""What a recording so far comes to, logged by the training's own logger: `whyidle.log_to`.

At the begin of a step, in the thread that trains, figures that the command has computed meanwhile are read and handed
over. An error of the logger's ends that, with one notice, and the training goes on.

Loggers that take flat figures, told apart by the methods they have: none of them is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any, cast

from ..record.scalars import PREFIX, state, told, want
from .hooks.switch import hand_on

Send = Callable[[dict[str, float], int], object]
"""Takes figures by their full names, and the step they belong to."""
WHAT_IT_TAKES = (
    "a TensorBoard SummaryWriter, a Weights & Biases run, the mlflow module, a Lightning logger, or any "
    "function of (figures, step)"
)


def sender(target: Any, alone: bool = False) -> Send:
    """How to log to `target`.

    Args:
        alone: nothing else is logged at the same time, so each call may be a row of its own.

    Raises:
        TypeError: it is no logger.
    """
    if hasattr(target, "add_scalar"):
        return lambda figures, step: [target.add_scalar(name, value, step) for name, value in figures.items()]
    if hasattr(target, "log_metrics"):
        return lambda figures, step: _log_metrics(target, figures, step)
    if hasattr(target, "define_metric") and hasattr(target, "log"):
        return _WandB(target, alone)
    if callable(target):
        return cast("Send", target)
    if hasattr(target, "log"):
        return cast("Send", target.log)
    raise TypeError(f"log_to: {type(target).__name__} is not a known logger. Give it {WHAT_IT_TAKES}.")


def is_closed(target: Any) -> bool:
    """Whether the program has closed its TensorBoard writer, which would open a new file for whatever is added now."""
    try:
        # Lightning has it in its logger.
        writer = target if hasattr(target, "add_scalar") else getattr(target, "_experiment", None)
        return hasattr(writer, "add_scalar") and getattr(writer, "all_writers", writer) is None
    except Exception:
        return False


def _log_metrics(target: Any, figures: dict[str, float], step: int) -> None:
    active = getattr(target, "active_run", None)
    if active is not None and active() is None:
        # The mlflow module would begin a run of its own: between two of the user's, or after the last.
        return
    target.log_metrics(figures, step=step)


class _WandB:
    """Weights & Biases counts rows itself, and drops what is logged for an earlier one.

    So figures join the row that the training's next call commits, with the step in a column of their own, and never
    move the training's count.
    """

    def __init__(self, target: Any, alone: bool) -> None:
        self._target = target
        self._alone = alone
        self._defined = False

    def __call__(self, figures: dict[str, float], step: int) -> None:
        run = getattr(self._target, "run", self._target)
        if run is None:
            return  # the module, before its `init` or after its `finish`
        if not self._defined:
            self._target.define_metric("whyidle/step", hidden=True)
            self._target.define_metric("whyidle/*", step_metric="whyidle/step")
            self._defined = True
        self._target.log(figures | {"whyidle/step": step}, commit=self._alone)


RETRY_NS = 1_000_000_000
"""After a look that found nothing new."""
MOST_LOGS = 32
"""Loggers at a time. A program that makes one for each of its trials means the newest."""
NEVER = sys.maxsize

Notice = Callable[[str], None]


class ScalarLog:
    """Reads the figures of a run folder and sends them to `target`, in the process that asked for it."""

    def __init__(self, folder: Path, target: Any, every_s: float, every_rank: bool) -> None:
        self.target: Any = target
        self._send: Send | None = sender(target)
        self._folder = folder
        self._every_s = every_s
        self._every_rank = every_rank
        self._pid = os.getpid()
        self.due_ns = 0
        self._seen = state(folder)
        self._asked = False

    def __call__(self, number: int, now_ns: int, rank: int, notice: Notice) -> bool:
        if now_ns < self.due_ns or self._send is None:
            return False
        try:
            return self._look(number, now_ns, rank, self._send, notice)
        except Exception as error:
            hand_on(error)
            self.end()
            notice(
                f"whyidle.log_to stopped logging: {type(error).__name__}: {str(error)[:200]}. Recording and "
                "training went on."
            )
            return True

    def end(self) -> None:
        """Log no more, and let go of the logger."""
        self.target = self._send = None
        self.due_ns = NEVER

    @property
    def is_over(self) -> bool:
        """Whether there is nobody to log to any more, in this process."""
        return self._send is None or self._pid != os.getpid() or is_closed(self.target)

    def is_for(self, target: Any) -> bool:
        # A method is a new object each time it is named.
        mine = self.target
        return mine is target or (isinstance(mine, MethodType) and isinstance(target, MethodType) and mine == target)

    def _look(self, number: int, now_ns: int, rank: int, send: Send, notice: Notice) -> bool:
        if rank and not self._every_rank:
            self.end()
            return False
        if self._pid != os.getpid():
            # The threads that write for the logger are not in a forked child: what it takes would never leave it, and
            # once it is full it would not return.
            self.end()
            notice(
                "whyidle.log_to logged nothing in a process that was forked after the call. Call it in the "
                "process that trains."
            )
            return False
        if not self._asked:
            want(self._folder, self._every_s)
            self._asked = True
        self.due_ns = now_ns + min(RETRY_NS, round(self._every_s * 1e9))
        now = state(self._folder)
        if now is None or now == self._seen:
            return False
        self._seen = now
        if is_closed(self.target):
            # It would open again. Should the program do that, it is sent the next figures.
            return False
        self.due_ns = now_ns + round(self._every_s * 1e9)
        figures = told(self._folder)
        values = None if figures is None else figures.values if not self._every_rank else figures.ranks.get(rank)
        if values is None and figures is not None and not figures.ranks:
            values = figures.values
        if not values:
            return False
        send({PREFIX + name: value for name, value in values.items()}, number)
        return True


logs: list[ScalarLog] = []
"""Of this process; empty where nobody logs. Changed in place: any thread may add to it while the training reads it."""
due_ns = NEVER
"""When the next of them is to be called: a step before that costs a comparison."""


on_begin: Callable[[], object] | None = None
"""Called when there is one more: the recording of this process looks at `due_ns` now and then only."""


def log(number: int, now_ns: int, rank: int, notice: Notice) -> bool:
    """Before step `number` begins, at the time `now_ns`: log what is due. Whether that took notable time."""
    global due_ns
    took = False
    for each in logs:
        took = each(number, now_ns, rank, notice) or took
    due_ns = min((each.due_ns for each in logs), default=NEVER)
    return took


def begin(folder: Path, target: Any, every_s: float, every_rank: bool) -> None:
    """Log the recording of this process to one more logger, or to one of them in another way.

    Raises:
        TypeError: it is no logger.
    """
    global due_ns
    added = ScalarLog(folder, target, every_s, every_rank)
    logs[:] = [each for each in logs if not (each.is_over or each.is_for(target))][1 - MOST_LOGS :] + [added]
    due_ns = added.due_ns
    if on_begin is not None:
        on_begin()
