"""What a loop that draws its batches by functions of its own spends its time on, from looks at its stack.

No fetch is seen there, so the clocks of a step cannot tell computing from making batches. The stack can: below the
function with the loop each look stands in one of its statements. What the model computes, learns and steps shows by the
functions of torch; a statement that gives a value to a name which the model's call uses makes batches; one that calls
the model between long intervals, or without gradients, evaluates.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.stacks import Call, CallStack
from ..shares import MOSTLY, NEARLY_ALL
from ..statistics import Estimate, wilson
from .looks import Looks
from .places import Where, is_users, places
from .source import names_of, statement_begin
from .stage_shares import Stages, stages_by_hand

LEAST_LOOKS = 30
LONG_STEP = 3.0
"""Times the median step from which one holds something that is no step."""
COMPUTING, MAKING, EVALUATING, OTHER = "computing", "making batches", "evaluating", "other work"

_BACKWARD = re.compile(r"/torch/(_tensor\.py:backward|autograd/)")
_OPTIMIZER = re.compile(r"/torch/(optim/|amp/grad_scaler\.py|nn/utils/clip_grad\.py)")
_FORWARD = re.compile(r"/torch/nn/modules/module\.py:|/torch/_dynamo/eval_frame\.py:")
_COMPUTES = re.compile(f"{_BACKWARD.pattern}|{_OPTIMIZER.pattern}|{_FORWARD.pattern}")
_NO_GRADIENT = re.compile(r"/torch/utils/_contextlib\.py:|/torch/autograd/grad_mode\.py:")
_TEXTS = (
    (re.compile(r"\.backward\("), _BACKWARD),
    (re.compile(r"\.step\(|\.zero_grad\(|clip_grad"), _OPTIMIZER),
)


@dataclass(frozen=True)
class OwnLoop:
    """The time of a loop without a loader, as looks at the thread that trains divide it; shares of them, 0..1."""

    looks: int
    shares: dict[str, Estimate]
    """By COMPUTING, MAKING, EVALUATING and OTHER, each with its 95 % interval; they sum to one."""
    lines: dict[str, tuple[Where, ...]]
    """The lines in which each of them was seen most."""
    grows: str = ""
    """Which of them takes most of what the later half of the steps takes longer; empty where none does."""
    stages: Stages | None = None
    """What MAKING consists of; `None` of too few looks."""


@dataclass
class _Branch:
    """What a statement of the function with the loop calls, and the looks that stand in it."""

    call: Call
    """Where the statement stands."""
    begin: int
    """The line that the statement begins on."""
    stacks: list[tuple[CallStack, int]]
    steps: list[int]
    """Of each look, in which step it fell."""


def own_loop_of(looks: Looks, steps: Records) -> OwnLoop | None:
    """`looks`: at the thread that trains, within the window whose steps these are. `None` where they are too few, or
    show no loop of the user's."""
    numbers = looks.records["stack"].tolist()
    stacks = [looks.table.stack(number) for number in numbers]
    seen = [place for place, stack in enumerate(stacks) if stack]
    depth = _depth_of_loop([stacks[place] for place in seen])
    if depth is None or len(seen) < LEAST_LOOKS:
        return None
    of_step = np.searchsorted(steps["fetch_begin_ns"], looks.records["t_ns"], side="right") - 1
    branches = _branches([stacks[place] for place in seen], of_step[seen].tolist(), depth)
    long = _long_steps(steps)
    computing = [each for each in branches if any(_shows(each, depth, what) for what in (_FORWARD, _COMPUTES))]
    evaluating = [each for each in computing if _evaluates(each, depth, long)]
    training = [each for each in computing if each not in evaluating]
    feeding = _feeding([each.call for each in training])
    kinds: dict[str, list[_Branch]] = defaultdict(list)
    for each in branches:
        kinds[_kind(each, depth, evaluating, training, feeding)].append(each)
    whole = len(seen)
    making = {stack for each in kinds[MAKING] for stack, _ in each.stacks}
    return OwnLoop(
        whole,
        {kind: _estimate(kinds[kind], whole) for kind in (COMPUTING, MAKING, EVALUATING, OTHER)},
        {
            # Of an evaluation the line that begins it: within it stands what computes in training as well.
            kind: places(
                [(stack[: depth + 1] if kind == EVALUATING else stack, n) for each in mine for stack, n in each.stacks],
                f"the time of {kind}",
            )
            for kind, mine in kinds.items()
        },
        _grows(kinds, steps),
        stages_by_hand(looks.where(lambda stack: stack in making), f"the time of {MAKING}", depth),
    )


def _grows(kinds: Mapping[str, Sequence[_Branch]], steps: Records) -> str:
    """The work that takes most more in the later half of the steps than in the earlier; empty where none does. A half's
    time is divided as the looks at it are: how often was looked need not be the same in both."""
    middle = len(steps) // 2
    begins = steps["fetch_begin_ns"]
    halves = ((0, begins[middle] - begins[0]), (1, steps["step_end_ns"][-1] - begins[middle]))
    counts = {
        kind: np.bincount([step >= middle for each in mine for step in each.steps], minlength=2)
        for kind, mine in kinds.items()
    }
    seen = sum(counts.values(), np.zeros(2, int))
    if not seen.all():
        return ""
    times = {kind: [count[half] / seen[half] * time_ns for half, time_ns in halves] for kind, count in counts.items()}
    most = max(times, key=lambda kind: times[kind][1] - times[kind][0])
    return most if times[most][1] > times[most][0] else ""


def _kind(
    each: _Branch,
    depth: int,
    evaluating: Sequence[_Branch],
    training: Sequence[_Branch],
    feeding: frozenset[str],
) -> str:
    if each in evaluating:
        return EVALUATING
    if each in training or any(_shows(each, depth, what) for what in (_BACKWARD, _OPTIMIZER, _COMPUTES)):
        return COMPUTING
    # What else is called in the statement that calls the model gives it what it is called with.
    beside = each.begin in {other.begin for other in training}
    return MAKING if beside or feeding & set(names_of(each.call)[0]) else OTHER


def _depth_of_loop(stacks: Sequence[CallStack]) -> int | None:
    """The depth of the innermost of the user's functions that nearly all looks stand in."""
    depth, found, left = 0, None, list(stacks)
    while left:
        common, count = Counter((s[depth].file, s[depth].function) for s in left if len(s) > depth).most_common(1)[0]
        if count < NEARLY_ALL * len(stacks):
            return found
        left = [s for s in left if len(s) > depth and (s[depth].file, s[depth].function) == common]
        if is_users(left[0][depth]):
            found = depth
        depth += 1
        if all(len(s) <= depth for s in left):
            return found
    return found


def _branches(stacks: Sequence[CallStack], steps: Sequence[int], depth: int) -> list[_Branch]:
    found: dict[tuple[int, str, str], _Branch] = {}
    for stack, step in zip(stacks, steps, strict=True):
        if len(stack) <= depth:
            continue
        begin = statement_begin(stack[depth])
        inner = stack[depth + 1] if len(stack) > depth + 1 else Call("")
        each = found.setdefault((begin, inner.file, inner.function), _Branch(stack[depth], begin, [], []))
        each.stacks.append((stack, 1))
        each.steps.append(step)
    return list(found.values())


def _shows(each: _Branch, depth: int, what: re.Pattern[str]) -> bool:
    """Whether most looks at a statement stand in such a function, or its text says so."""
    hits = sum(
        count
        for stack, count in each.stacks
        if any(what.search(f"{call.file}:{call.function.rpartition('.')[2]}") for call in stack[depth + 1 :])
    )
    if hits >= MOSTLY * len(each.steps):
        return True
    return any(shown is what and text.search(each.call.text) for text, shown in _TEXTS)


def _long_steps(steps: Records) -> frozenset[int]:
    begins = steps["fetch_begin_ns"]
    lengths = np.diff(begins, append=steps["step_end_ns"][-1])
    return frozenset(np.flatnonzero(lengths > LONG_STEP * np.median(lengths)).tolist())


def _evaluates(each: _Branch, depth: int, long: frozenset[int]) -> bool:
    in_long = sum(step in long for step in each.steps)
    return in_long >= NEARLY_ALL * len(each.steps) or _shows(each, depth, _NO_GRADIENT)


def _feeding(training: Sequence[Call]) -> frozenset[str]:
    """The names that the model's call is given."""
    return frozenset(name for call in training for name in names_of(call)[1])


def _estimate(mine: Sequence[_Branch], whole: int) -> Estimate:
    """With an interval for as many independent looks as there were different steps: those of one step go together."""
    count = sum(len(each.steps) for each in mine)
    apart = len({step for each in mine for step in each.steps})
    independent = whole * (apart / count) if count else whole
    return wilson(count / whole, max(1.0, independent))
