"""Comparisons without their trainings: each run leaves the recording of a virtual one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.sampler.start import StackOptions
from whyidle.matrix import matrix
from whyidle.matrix.trial import TrialOutcome
from whyidle.record.run import update_run


class VirtualServer:
    """Stands in for the server that starts trainings.

    Args:
        target: what it is to be asked for.
        leave: makes the recording in a run folder, by what is to be trained and what is said of the run.
    """

    def __init__(self, target: str, leave: Callable[[Path, Any, dict[str, Any]], object]) -> None:
        self._target, self._leave = target, leave
        self.ran: list[Any] = []
        """What was to be trained, so far."""
        self.stacks: list[StackOptions] = []
        """Of each, which stacks were to be looked at."""
        self.then: Callable[[Any], TrialOutcome | None] = lambda spec: None
        """What becomes of a run once it is recorded; `None`: it ends well."""

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """For a test, and as if nothing had run."""
        monkeypatch.setattr(matrix, "TrialServer", self)
        monkeypatch.setattr(self, "ran", [])
        monkeypatch.setattr(self, "stacks", [])
        monkeypatch.setattr(self, "then", lambda spec: None)

    def __call__(self, target: str) -> VirtualServer:
        assert target == self._target
        return self

    def run(
        self,
        folder: Path,
        spec: Any,
        description: dict[str, Any],
        on_tick: Callable[[], None],
        *,
        stacks: StackOptions,
    ) -> TrialOutcome:
        self.ran.append(spec)
        self.stacks.append(stacks)
        self._leave(folder, spec, description)
        update_run(folder, {**description, "ended": {"status": "ok"}})
        return self.then(spec) or TrialOutcome("ok", None)
