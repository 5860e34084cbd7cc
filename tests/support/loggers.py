"""Stand-ins for the loggers of trainings: each keeps what it was given."""

from __future__ import annotations

Call = tuple[dict[str, float], int]
"""Figures by name, and the step."""


class Kept:
    """A logger that is a function."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, figures: dict[str, float], step: int) -> None:
        self.calls.append((figures, step))


class Writer:
    """As a SummaryWriter."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        assert global_step is not None
        self.scalars.append((tag, scalar_value, global_step))


class Mlflow:
    """As the mlflow module: outside a run of the user's, `log_metrics` would begin one."""

    def __init__(self) -> None:
        self.run: object | None = None
        self.logged: list[Call] = []

    def active_run(self) -> object | None:
        return self.run

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        self.logged.append((metrics, step))


class WandbRun:
    """As a Weights & Biases run."""

    def __init__(self) -> None:
        self.defined: list[str] = []
        self.rows: list[tuple[dict[str, float], bool | None]] = []

    def define_metric(self, name: str, step_metric: str | None = None, hidden: bool | None = None) -> None:
        self.defined.append(name)

    def log(self, data: dict[str, float], step: int | None = None, commit: bool | None = None) -> None:
        assert step is None
        self.rows.append((data, commit))
