"""A workload that predicts settings, and learns from those that were tried."""

from __future__ import annotations

from collections.abc import Sequence

from ...record.tuning import LoaderSettings
from .fit import learned
from .predict import predict
from .sizes import Line
from .workload import Prediction, Workload


class ReplayModel:
    """Predicts settings by replaying a recorded run, corrected by what trials really gave."""

    def __init__(self, workload: Workload, *, step: Line | None = None, seed: int = 0) -> None:
        self._recorded = self._workload = workload
        self._step = step
        self._seed = seed

    @property
    def workload(self) -> Workload:
        """What settings are predicted with: what was recorded, corrected by what was learned."""
        return self._workload

    def predict(self, settings: Sequence[LoaderSettings]) -> list[Prediction]:
        """What the replay says of each setting, in their order."""
        return predict(self._workload, settings, seed=self._seed, step=self._step)

    def learn(self, trials: Sequence[tuple[LoaderSettings, float]], *, steady: bool = False) -> None:
        """Correct the workload by all trials so far, with their samples/s: each call begins from what was recorded.
        `steady`: rates are within epochs, without their beginnings."""
        self._workload = learned(self._recorded, trials, steady=steady, seed=self._seed)
