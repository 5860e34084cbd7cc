"""Loggers that take flat figures, told apart by the methods they have: none of them is imported here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Send = Callable[[dict[str, float], int], None]
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
        return lambda figures, step: _add_scalars(target, figures, step)
    if hasattr(target, "log_metrics"):
        return lambda figures, step: _log_metrics(target, figures, step)
    if hasattr(target, "define_metric") and hasattr(target, "log"):
        return _WandB(target, alone)
    if callable(target):
        return lambda figures, step: _call(target, figures, step)
    if hasattr(target, "log"):
        return lambda figures, step: _call(target.log, figures, step)
    raise TypeError(f"log_to: {type(target).__name__} is no logger it knows. It takes {WHAT_IT_TAKES}.")


def is_closed(target: Any) -> bool:
    """Whether the program has closed its TensorBoard writer, which would open a new file for whatever is added now."""
    try:
        # Lightning has it in its logger.
        writer = target if hasattr(target, "add_scalar") else getattr(target, "_experiment", None)
        return hasattr(writer, "add_scalar") and getattr(writer, "all_writers", writer) is None
    except Exception:
        return False


def _add_scalars(writer: Any, figures: dict[str, float], step: int) -> None:
    for name, value in figures.items():
        writer.add_scalar(name, value, step)


def _log_metrics(target: Any, figures: dict[str, float], step: int) -> None:
    active = getattr(target, "active_run", None)
    if active is not None and active() is None:
        # The mlflow module would begin a run of its own: between two of the user's, or after the last.
        return
    target.log_metrics(figures, step=step)


def _call(function: Callable[..., Any], figures: dict[str, float], step: int) -> None:
    function(figures, step)


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
