"""Which settings are worth a trial, by what the model predicts for all of them.

What was measured so far, one entry an order: all that a search knows. What a search may try, and how much it may
cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...analyse.predict.advice import TIE
from ...analyse.predict.workload import Prediction
from ...record.tuning import DEFAULT_PREFETCH, Block, LoaderSettings


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


Arm = LoaderSettings
"""Settings without `persistent_workers`: within an epoch they do the same, so their blocks count together."""


def arm_of(settings: LoaderSettings) -> Arm:
    return replace(settings, persistent_workers=False)


@dataclass(frozen=True)
class Entry:
    """One order and its answer. Seconds are those since the search began."""

    settings: LoaderSettings
    round: int
    """Blocks of a round followed each other, so that drift of the machine hits them alike."""
    began_s: float
    ended_s: float
    held: bool = False
    block: Block | None = None
    error: str | None = None
    """Why there is no block."""
    out_of_memory: bool = False
    predicted: float | None = None
    """Samples/s by the model before these settings were first run."""

    @property
    def cost_s(self) -> float:
        return self.ended_s - self.began_s


EVEN = 0.005
"""What a model cannot tell apart at all: of the best of many that are as good, the cheapest is tried."""
HOPELESS = 0.5
"""Of the best prediction: what is not even expected to reach this is not tried."""
PREFETCHES = (1, 2, 4, 8)
MANY_WORKERS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64)


@dataclass(frozen=True)
class Chosen:
    arms: tuple[Arm, ...]
    """The baseline first, then by how much there is to learn from them."""
    not_tested: tuple[str, ...]
    left_out: Mapping[Arm, str] = field(default_factory=dict)
    """Settings that are not among them, and why."""


def cost(settings: LoaderSettings, baseline: LoaderSettings) -> tuple[int, int, int, int]:
    """Order in which settings that are equally fast are preferred: fewer workers, fewer batches held, nearer to what
    the program has."""
    other = settings.pipeline != baseline.pipeline
    changed = sum(
        getattr(settings, name) != getattr(baseline, name)
        for name in ("num_workers", "prefetch_factor", "pin_memory", "in_order")
    )
    return settings.num_workers, settings.outstanding, int(other), changed


def describe(settings: LoaderSettings, beside: LoaderSettings | None = None) -> str:
    """In a few words. `beside`: persistence is named where these settings differ from it in nothing else."""
    if settings.num_workers == 0:
        words = "no workers"
    else:
        plural = "" if settings.num_workers == 1 else "s"
        words = f"{settings.num_workers} worker{plural}, prefetch {settings.prefetch_factor}"
    if not settings.in_order:
        words += ", out of order"
    if settings.pin_memory:
        words += ", pinned"
    if beside is not None and settings != beside and arm_of(settings) == arm_of(beside):
        words += ", persistent" if settings.persistent_workers else ", not persistent"
    return f"{settings.pipeline}: {words}" if settings.pipeline else words


def space(plan: SearchPlan) -> list[Arm]:
    """All that the model is asked about, in the program's own loader and order."""
    own = arm_of(plan.baseline)
    if "num_workers" in plan.fixed:
        return [own]
    counts = sorted({w for w in (*MANY_WORKERS, own.num_workers) if 0 < w <= max(plan.most_workers, own.num_workers)})
    depths = {own.prefetch_factor} if "prefetch_factor" in plan.fixed else {*PREFETCHES, own.prefetch_factor}
    some = [
        replace(own, num_workers=workers, prefetch_factor=depth)
        for workers in counts
        for depth in sorted(depth or DEFAULT_PREFETCH for depth in depths)
    ]
    return [own.with_workers(0), *some]


def as_run(arm: Arm, plan: SearchPlan, persistent: bool) -> LoaderSettings:
    """How an arm is tried: the baseline as the program has it, others with persistent workers where that may matter."""
    if arm == arm_of(plan.baseline):
        return plan.baseline
    keep = arm.num_workers > 0 and (persistent or plan.baseline.persistent_workers)
    return replace(arm, persistent_workers=keep)


class Predicted:
    """A model's predictions for a space, without settings that cannot run."""

    def __init__(self, model: Model, plan: SearchPlan, persistent: bool, arms: Iterable[Arm]) -> None:
        self._model, self._plan, self._persistent = model, plan, persistent
        self._by_arm: dict[Arm, Prediction] = {}
        self.arms: list[Arm] = []
        self.add(arms)

    def add(self, arms: Iterable[Arm]) -> None:
        """Predict these too; the model knows nothing of other pipelines."""
        new = [a for a in dict.fromkeys(arms) if a not in self and a.pipeline == self._plan.baseline.pipeline]
        said = self._model.predict([as_run(arm, self._plan, self._persistent) for arm in new])
        self._by_arm |= {arm_of(each.settings): each for each in said}
        self.arms = [arm for arm, each in self._by_arm.items() if each.infeasible is None]

    def __contains__(self, arm: object) -> bool:
        return arm in self._by_arm

    def of(self, arm: Arm) -> Prediction:
        return self._by_arm[arm]

    def rate(self, arm: Arm) -> float:
        return self._by_arm[arm].samples_per_s

    def best(self) -> Arm:
        return max(self.arms, key=self.rate)

    def cheapest(self, plan: SearchPlan, within: float = TIE) -> Arm:
        """Of those so near to the best."""
        enough = self.rate(self.best()) * (1 - within)
        return min((arm for arm in self.arms if self.rate(arm) >= enough), key=lambda arm: cost(arm, plan.baseline))

    def refused(self) -> dict[Arm, str]:
        """Why settings that would be faster than all others cannot run."""
        best = self.rate(self.best())
        faster = [p for p in self._by_arm.values() if p.infeasible and p.samples_per_s > best * (1 + TIE)]
        faster.sort(key=lambda p: (p.settings.num_workers, p.settings.outstanding))
        return {arm_of(p.settings): str(p.infeasible) for p in faster[:1]}


def choose(said: Predicted, plan: SearchPlan, most: int) -> Chosen:
    """At most `most` settings of the program's own loader, and one of each further pipeline. `said`: of the space."""
    own = arm_of(plan.baseline)
    not_tested = [f"{name}: {why}" for name, why in plan.fixed.items()]
    if not said.arms:
        return Chosen((own,), (*not_tested, "other settings: by prediction none can run here"))
    pick, best = said.cheapest(plan), said.cheapest(plan, EVEN)
    # The model knows nothing of other loaders. They get as many workers as the program's own would need.
    pipelines = [replace(pick, pipeline=name) for name in plan.pipelines if name != own.pipeline]
    wanted: list[Arm] = [own, pick]
    if own.in_order and plan.out_of_order and pick.num_workers > 0 and "in_order" not in plan.fixed:
        wanted.append(replace(pick, in_order=False))
    wanted += [best, *neighbours(pick, said)]
    none = own.with_workers(0)
    left_out: dict[Arm, str] = {}
    if none in said and none != own:
        if said.of(none).high >= HOPELESS * said.rate(best):
            wanted.insert(3, none)
        else:
            slower = said.rate(best) / said.rate(none)
            left_out[none] = f"predicted to be {slower:.1f}× slower than the best"
    wanted = list(dict.fromkeys(wanted))
    left_out |= dict.fromkeys((arm for arm in wanted[most:] if arm != own), "left out to limit the number of trials")
    left_out |= said.refused()
    not_tested += _not_asked(plan, pick, said)
    return Chosen((*wanted[:most], *pipelines), tuple(not_tested), left_out)


def neighbours(arm: Arm, said: Predicted) -> list[Arm]:
    """One worker more, one less, the next deeper queue: as far as they can run."""
    if arm.num_workers == 0:
        near = [replace(arm, num_workers=1, prefetch_factor=2)]
    else:
        counts = sorted({each.num_workers for each in said.arms})
        at = counts.index(arm.num_workers)
        near = [arm.with_workers(counts[i]) for i in (at + 1, at - 1) if 0 <= i < len(counts) and counts[i] > 0]
        deeper = [
            each for each in said.arms if each.num_workers == arm.num_workers and each.outstanding > arm.outstanding
        ]
        near += sorted(deeper, key=lambda each: each.outstanding)[:1]
    return [each for each in near if each in said and said.of(each).infeasible is None]


def _not_asked(plan: SearchPlan, pick: Arm, said: Predicted) -> Sequence[str]:
    notes = []
    if plan.baseline.in_order and not plan.out_of_order and pick.num_workers > 0 and "in_order" not in plan.fixed:
        said.add([replace(pick, in_order=False)])
        loose = said.rate(replace(pick, in_order=False)) / said.rate(pick)
        gain = f" (predicted: {100 * (loose - 1):+.0f} %)" if loose > 1 + TIE else ""
        notes.append(f"in_order=False: batches would come in another order{gain}; --out-of-order tries it")
    if not plan.cuda:
        notes.append("pin_memory: no CUDA device")
    if plan.batches_per_epoch is None and "persistent_workers" not in plan.fixed:
        notes.append("persistent_workers: the length of an epoch is unknown, so beginnings of epochs do not count")
    return notes
