"""How the time of making batches, or of handing them over, divides between stages, as stack samples tell."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.stacks import Call, CallStack
from ..statistics import Estimate, wilson
from .looks import Looks
from .places import FETCHER, own_part, place_of, within
from .stages import (
    HANDING_STAGES,
    SAMPLE,
    STAGES,
    WAITING,
    AtStage,
    handing_stage_of,
    in_state,
    stage_by_hand,
    stage_of,
)

LEAST_STAGE_LOOKS = 20
"""Looks from which stages are told: of fewer the shares are anything."""
LEAST_STAGE_SHARE = 0.03
"""Share of the time from which a stage stands by itself."""
OTHER = "other"
"""All stages below that."""
_MOST_ALIKE = 0.95


@dataclass(frozen=True)
class StageShare:
    """A stage, and how much of the time it takes."""

    stage: str
    """Of `stages.STAGES` or `stages.HANDING_STAGES`, or `OTHER`."""
    name: str
    """Which transform; of the data set's own code the function. Empty of all others."""
    share: Estimate
    """Of the time in question, 0..1, with its 95 % interval."""
    looks: int
    """That saw it."""
    calls: str = ""
    """The innermost function of a library that it was in most often; empty where there was none, as in C code."""
    at: Call | None = None
    """The innermost line of the user's own code in it, most often; `None` where it was in none."""

    @property
    def words(self) -> str:
        """What it is called."""
        if self.stage == OTHER:
            return "all else"
        return self.name or {**STAGES, **HANDING_STAGES}[self.stage]


@dataclass(frozen=True)
class Stages:
    """A time divided between stages."""

    time: str
    """What they are of, in words."""
    looks: int
    """At it, those that failed left out."""
    parts: tuple[StageShare, ...]
    """The largest first, `OTHER` last; their shares sum to one."""

    @property
    def costliest(self) -> tuple[str, float] | None:
        """The stage that takes most, all transforms taken for one, and its share; `None` where that is the data set's
        own code. What is waited for is left out."""
        together: dict[str, float] = defaultdict(float)
        for part in self.parts:
            if part.stage not in WAITING and part.stage != OTHER:
                together[part.stage] += part.share.value
        stage, share = max(together.items(), key=lambda each: each[1], default=(SAMPLE, 0.0))
        return None if stage == SAMPLE else (stage, share)


def making_stages(looks: Looks, time: str, transforms: Collection[str]) -> Stages | None:
    """Of looks at processes that prepare batches. `transforms`: names of those that were timed by themselves."""

    def named(stack: CallStack) -> tuple[AtStage | None, CallStack]:
        return stage_of(stack, transforms), within(own_part(stack), FETCHER) or ()

    return _divided(looks, time, named, in_state)


def stages_by_hand(looks: Looks, time: str, in_loop: Mapping[CallStack, CallStack]) -> Stages | None:
    """Of looks at a thread whose loop makes batches without a loader. `in_loop`: stack → the part of it from the loop's
    function on."""
    return _divided(looks, time, lambda s: (stage_by_hand(in_loop[s]), in_loop[s]), in_state)


def handing_stages(looks: Looks, time: str) -> Stages | None:
    """Of looks at threads that send or take batches."""
    return _divided(looks, time, lambda s: (handing_stage_of(s), own_part(s)), lambda standing, _: standing)


def _divided(
    looks: Looks,
    time: str,
    named: Callable[[CallStack], tuple[AtStage | None, CallStack]],
    stating: Callable[[AtStage, int], AtStage],
) -> Stages | None:
    """`named`: a stack → its stage, `None` where it is in none, and the part of it that the stage is told from."""
    records = looks.records
    pairs, of_look = np.unique(np.stack((records["stack"], records["state"])), axis=1, return_inverse=True)
    numbers: dict[tuple[str, str], int] = {}
    lines: dict[int, Counter[Call]] = defaultdict(Counter)
    calls: dict[int, Counter[str]] = defaultdict(Counter)
    which = np.full(pairs.shape[1], -1)
    counts = np.bincount(of_look.ravel(), minlength=pairs.shape[1])
    for pair, (number, state) in enumerate(pairs.T.tolist()):
        standing, part = named(looks.table.stack(number))
        if standing is None:
            continue
        standing, found = stating(standing, state), place_of(part)
        name = _function(found[0]) if found is not None and standing.stage == SAMPLE else standing.name
        which[pair] = numbers.setdefault((standing.stage, name), len(numbers))
        if found is not None:
            lines[which[pair]][found[0]] += int(counts[pair])
            calls[which[pair]][found[1]] += int(counts[pair])
    stages = which[of_look.ravel()]
    known = stages >= 0
    if int(known.sum()) < LEAST_STAGE_LOOKS:
        return None
    stages, process = stages[known], records["process"][known]
    whole, keys = len(stages), list(numbers)
    seen = np.bincount(stages, minlength=len(keys))
    shown = [at for at in np.argsort(-seen, kind="stable").tolist() if seen[at] >= LEAST_STAGE_SHARE * whole]
    parts = [
        StageShare(
            keys[at][0],
            keys[at][1],
            _estimate(stages == at, process),
            int(seen[at]),
            calls[at].most_common(1)[0][0] if calls[at] else "",
            lines[at].most_common(1)[0][0] if lines[at] else None,
        )
        for at in shown
    ]
    rest = ~np.isin(stages, shown)
    if rest.any():
        parts.append(StageShare(OTHER, "", _estimate(rest, process), int(rest.sum())))
    return Stages(time, whole, tuple(parts))


def _estimate(holds: npt.NDArray[np.bool_], process: npt.NDArray[np.int64]) -> Estimate:
    """The share in which it holds, with an interval for as many looks as are independent: what lasts longer than from
    one look at a process to its next is seen several times."""
    share = float(holds.mean())
    order = np.argsort(process, kind="stable")
    away, same = holds[order] - share, np.diff(process[order]) == 0
    spread = float((away[:-1][same] ** 2).sum())
    alike = float((away[:-1] * away[1:])[same].sum()) / spread if spread else 0.0
    alike = min(_MOST_ALIKE, max(0.0, alike))
    return wilson(share, len(holds) * (1 - alike) / (1 + alike))


def _function(call: Call) -> str:
    """The function of a call; of an expression within it, such as a comprehension, the function around that."""
    return call.function.partition(".<locals>.<")[0]
