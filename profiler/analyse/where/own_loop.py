"""What a loop that draws its batches by functions of its own spends its time on, from looks at its stack.

No fetch is seen there, so the clocks of a step cannot tell computing from making batches. The stack can: each look
stands in a statement of the innermost function in which the program learns as well, be that the user's loop or a
library's. What torch computes shows by its functions; a statement that gives a value to what the model's call is given
makes batches; one that is named so, and calls the model between long intervals or without gradients, evaluates. What
none of this tells is other work: a statement is of no kind as a whole because most looks at it are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...record.reader import Records
from ...record.stacks import Call, CallStack
from ..shares import MOSTLY, NEARLY_ALL
from ..statistics import Estimate, wilson
from .looks import Looks
from .places import Where, is_users, places
from .source import is_given_on, names_behind, names_of, statements_at
from .stages import Stages, place, stages_by_hand

LEAST_LOOKS = 30
LONG_STEP = 3.0
"""Times the median step from which one holds something that is no step."""
COMPUTING, MAKING, EVALUATING, OTHER = "computing", "preparing batches", "evaluating", "other work"

_LEARNS = re.compile(
    r"/torch/(_tensor\.py:backward|autograd/(?!grad_mode|function)|optim/|amp/grad_scaler\.py|nn/utils/clip_grad\.py)"
)
_CALLS_MODEL = re.compile(r"/torch/nn/modules/module\.py:|/torch/_dynamo/eval_frame\.py:")
_COMPUTES = re.compile(f"{_LEARNS.pattern}|{_CALLS_MODEL.pattern}")
_NO_GRADIENT = re.compile(r"/torch/utils/_contextlib\.py:|/torch/autograd/grad_mode\.py:")
_OF_TORCH = re.compile(r"/torch/(?!utils/data/|multiprocessing/|distributed/)")
_NAMED_EVALUATION = re.compile(
    r"(?<![a-z])(eval(uat(e|ion|or))?|val(id(at(e|ion|or))?)?|test(ing)?|estimate|accuracy|metrics?)(?![a-z])", re.I
)


@dataclass(frozen=True)
class OwnLoop:
    """The time of a loop without a loader, as looks at the thread that trains divide it; shares of them, 0..1."""

    looks: int
    shares: dict[str, Estimate]
    """By COMPUTING, MAKING, EVALUATING and OTHER, each with its 95 % interval; they sum to one."""
    lines: dict[str, tuple[Where, ...]]
    """The lines in which each of them was seen most."""
    stages: Stages | None = None
    """What MAKING consists of; `None` of too few looks."""


@dataclass(frozen=True)
class _Look:
    stack: CallStack
    step: int
    """In which it fell."""
    depth: int
    """Of the loop's function, in which it stands in some statement."""
    computes: int | None
    """The depth of the outermost call by which torch computes; `None` without one."""

    @property
    def here(self) -> Call:
        return self.stack[self.depth]

    @property
    def inner(self) -> Call | None:
        """What the statement calls; `None` in C code."""
        return self.stack[self.depth + 1] if len(self.stack) > self.depth + 1 else None

    def shows(self, what: re.Pattern[str]) -> bool:
        return any(what.search(place(call)) for call in self.stack[self.depth + 1 :])

    @property
    def named_evaluation(self) -> bool:
        """Whether the statement, or a function on the way to the model's call, says that it evaluates."""
        way = self.stack[self.depth + 1 : self.computes]
        return any(map(_NAMED_EVALUATION.search, (self.here.text, *(call.function for call in way))))


def own_loop_of(looks: Looks, steps: Records) -> OwnLoop | None:
    """`looks`: at the thread that trains, within the window whose steps these are. `None` where they are too few, or
    show no loop."""
    numbers = looks.records["stack"].tolist()
    stacks = {number: stack for number in set(numbers) if (stack := looks.table.stack(number))}
    whole = sum(number in stacks for number in numbers)
    if not (in_loop := _loop_parts(stacks)) or whole < LEAST_LOOKS:
        return None
    of_step = (np.searchsorted(steps["fetch_begin_ns"], looks.records["t_ns"], side="right") - 1).tolist()
    seen = [_Look(stacks[n], step, *in_loop[n]) for n, step in zip(numbers, of_step, strict=True) if n in stacks]
    lengths = np.diff(steps["fetch_begin_ns"], append=steps["step_end_ns"][-1])
    kinds = _kinds(seen, frozenset(np.flatnonzero(lengths > LONG_STEP * np.median(lengths)).tolist()))
    making = {look.stack: look.stack[look.depth :] for look in kinds[MAKING]}
    return OwnLoop(
        whole,
        {kind: _estimate(kinds[kind], whole) for kind in (COMPUTING, MAKING, EVALUATING, OTHER)},
        {kind: places(_shown(kind, mine), f"the time of {kind}") for kind, mine in kinds.items()},
        stages_by_hand(looks.where(making.__contains__), f"the time of {MAKING}", making),
    )


def _loop_parts(stacks: Mapping[int, CallStack]) -> dict[int, tuple[int, int | None]]:
    """By the number of a stack: the depth of the loop's function in it, the innermost in which was learnt as well (or
    computed, where no look saw learning), and that of the outermost call by which torch computes. Empty of no loop."""
    computes = {
        n: next((d for d, c in enumerate(stack) if _COMPUTES.search(place(c))), None) for n, stack in stacks.items()
    }

    def functions_in_which(shows: re.Pattern[str]) -> set[tuple[int, str, str]]:
        ways = (stacks[n][:inner] for n, inner in computes.items() if inner and shows.search(place(stacks[n][inner])))
        return {(depth, call.file, call.function) for way in ways for depth, call in enumerate(way)}

    functions = functions_in_which(_LEARNS) or functions_in_which(_COMPUTES)
    parts = {}
    for n, stack in stacks.items() if functions else ():
        apart = (depth for depth, call in enumerate(stack) if (depth, call.file, call.function) not in functions)
        parts[n] = max(0, next(apart, len(stack)) - 1), computes[n]
    return parts


def _kinds(seen: Sequence[_Look], long: frozenset[int]) -> dict[str, list[_Look]]:
    """The looks by what they show: by the statement of the loop that they stand in, where that is of one kind, else by
    themselves."""
    branches: dict[Hashable, list[_Look]] = defaultdict(list)
    for look in seen:
        calls = look.inner and (look.inner.file, look.inner.function)
        branches[look.here.file, statements_at(look.here) or look.here.line, calls].append(look)
    # What is gone through between long intervals, or without gradients, and is no step's.
    rare = {
        key: (
            sum(look.step in long for look in mine) >= NEARLY_ALL * len(mine)
            or _most(look.shows(_NO_GRADIENT) for look in mine)
        )
        and not any(look.shows(_LEARNS) for look in mine)
        for key, mine in branches.items()
    }
    computes = {key: _most(look.computes is not None for look in mine) for key, mine in branches.items()}
    training = {key for key in branches if computes[key] and not rare[key]}
    trains = [look for key in training for look in branches[key]]
    # Where the model's call is too short to be seen, what is learnt from tells it.
    feeding = _feeding([look for look in trains if look.shows(_CALLS_MODEL)] or trains)
    passed = {statements_at(call) for look in trains for call in look.stack[: look.computes]}
    callers = {(call.file, call.line) for look in trains if look.computes for call in (look.stack[look.computes - 1],)}
    kinds: dict[str, list[_Look]] = defaultdict(list)
    for key, mine in branches.items():
        here, inner = mine[0].here, mine[0].inner
        given = statements_at(here) in passed and is_given_on(here, inner)
        if rare[key] and any(look.computes for look in mine):
            # What asks the model for anything else, as gathering does, is not known, and cannot be done ahead.
            kinds[EVALUATING if _most(look.named_evaluation for look in mine) else OTHER] += mine
        elif key not in training and (given or feeding[here.file, here.function] & names_of(here, inner)[0]):
            kinds[MAKING] += mine
        else:
            beside = key in training or (here.file, here.line) in callers
            for look in mine:
                last = look.stack[-1]
                at_call = (last.file, last.line) in callers and len(statements_at(last)) < 2
                at_call = at_call or (beside and bool(_OF_TORCH.search(last.file)))
                shown = not rare[key] and (look.computes is not None or at_call)
                kinds[COMPUTING if shown else OTHER].append(look)
    return kinds


def _most(holds: Iterable[bool]) -> bool:
    return float(np.mean(list(holds))) >= MOSTLY


def _feeding(training: Iterable[_Look]) -> dict[tuple[str, str], set[str]]:
    """By file and function: the names that the model's call is given there, and those that they are made of."""
    entered = {pair for look in training for pair in pairwise(look.stack[: (look.computes or 0) + 1])}
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call, inner in entered:
        found[call.file, call.function] |= names_behind(call, names_of(call, inner)[1])
    return found


def _shown(kind: str, mine: Sequence[_Look]) -> Iterator[tuple[CallStack, int]]:
    """What the lines of a kind are told from: of an evaluation the statement that begins it, since within it stands
    what computes in training as well; of work in a library's loop the function that nearly all of it is in."""
    foreign = [look.stack for look in mine if not any(map(is_users, look.stack[look.depth :]))]
    ways = Counter((depth, call.file, call.function) for stack in foreign for depth, call in enumerate(stack))
    common = max((depth for (depth, *_), count in ways.items() if count >= NEARLY_ALL * len(foreign)), default=0)
    for look in mine:
        users = any(map(is_users, look.stack[look.depth :]))
        begin = 0 if users else min(max(look.depth, common), len(look.stack) - 1)
        yield look.stack[: look.depth + 1] if kind == EVALUATING else look.stack[begin:], 1


def _estimate(mine: Sequence[_Look], whole: int) -> Estimate:
    """With an interval for as many independent looks as there were different steps: those of one step go together."""
    apart = len({look.step for look in mine})
    independent = whole * (apart / len(mine)) if mine else whole
    return wilson(len(mine) / whole, max(1.0, independent))
