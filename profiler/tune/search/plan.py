"""What a search may try, and how much it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...analyse.predict.workload import Prediction
from ...record.tuning import LoaderSettings


class Model(Protocol):
    """Predicts settings: `analyse.replay.model.ReplayModel`. A search works on a copy of its own."""

    def predict(self, settings: Sequence[LoaderSettings]) -> Sequence[Prediction]: ...

    def learn(self, trials: Sequence[tuple[LoaderSettings, float]], *, steady: bool = False) -> None:
        """All samples/s that were measured; each call begins from what was recorded. `steady`: within epochs."""
        ...


@dataclass(frozen=True)
class SearchPlan:
    baseline: LoaderSettings
    """As the program sets them itself."""
    batch_size: int
    """Samples in a batch of the baseline."""
    budget_s: float
    batches_per_epoch: int | None = None
    """Of the baseline; `None`: not known, and rates are those within an epoch."""
    cpus: float = 1.0
    cuda: bool = False
    out_of_order: bool = False
    """Whether batches may come in another order than the program's."""
    pipelines: tuple[str, ...] = ()
    """Other loaders of a scenario that may be tried."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Settings that other values cannot be tried of, and why; `num_workers` means that there can be no workers."""
    most_workers: int = 64
    most_candidates: int = 7
    """With the baseline, without other pipelines."""
    most_rounds: int = 5
    most_blocks: int = 28
    block_s: float = 1.0
    least_steps: int = 20
    """In a block, and of whatever is returned."""
    seed: int = 0

    @property
    def samples_per_epoch(self) -> int | None:
        return None if self.batches_per_epoch is None else self.batches_per_epoch * self.batch_size
