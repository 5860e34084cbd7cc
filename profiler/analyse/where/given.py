"""What work on a sample is given, and what becomes of its result, as the source tells along the calls of a stack.

A data set's `__getitem__` is given an index. What follows from nothing but the object itself, module names and
constants is the same for every sample: an archive opened by `zipfile.ZipFile(self.path)`. What follows from
`index // 90` alone is shared by several samples: the clip that ninety windows are cut from. Nothing is executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ...record.stacks import Call, CallStack
from .data_flow import EACH, FRESH, SAME, Flow, Parts, follows_from, opened, roots_of
from .places import is_users
from .source import (
    OWNERS,
    Function,
    arguments_of,
    evaluated,
    function_of,
    is_within_one,
    leads_to,
    name_of,
    names_bound,
    names_in,
    names_used,
    parameters_of,
    place_at,
    statements_at,
    within_function,
)

_CUTS = re.compile(r"\w*crop\w*|narrow|index_select|take|take_along_axis", re.IGNORECASE)
"""Names of calls that take a part of what they are given."""
_ORDERS = re.compile(r"(arg)?sort(ed)?|\w*perm\w*|shuffle|topk|where|nonzero")
"""Names of calls that give an order of all there is, or places that hold something."""
_MEASURES = ("len", "shape", "size", "ndim", "dtype")
"""Of which a value tells nothing but its size or type."""
_ONE = ("int", "item", "integers", "randint", "randrange", "index", "argmax", "argmin")
"""Names of calls that give one number, unless asked for more."""


class Given(Enum):
    """From sample to sample, what work is given is"""

    SAME = "the same for all"
    SHARED = "the same for several"
    OWN = "its own for each"


def how_given(stack: CallStack) -> tuple[Given, str]:
    """How much of what the work in which a stack stands is given varies, in a call whose value is kept; and the
    expression that tells several samples' group where they share it. `Given.OWN` also where the source does not tell.

    `stack`: the part that makes one sample or batch, the outermost call first.
    """
    found: list[Parts] = []
    for level in _levels(stack):
        found.append(level.given)
        if FRESH in level.given:
            # Whatever is drawn on the way makes the calls before it others each time too.
            found = []
    if SAME in found:
        return Given.SAME, ""
    shared = next((part for parts in found if len(parts) == 1 for part in parts if part != EACH), None)
    return (Given.OWN, "") if shared is None else (Given.SHARED, shared)


@dataclass(frozen=True)
class PartUsed:
    """Where a part is taken of what work has made."""

    place: Call
    one: bool
    """One item, by a number."""


@lru_cache(maxsize=4096)
def part_used(stack: CallStack) -> PartUsed | None:
    """Where nothing but a part of what a stack's work makes is taken, which differs from sample to sample; `None` where
    the source does not tell.

    `stack`: the part that makes one sample or batch, the outermost call first.
    """
    for level in reversed(_levels(stack)):
        results = _Results(level)
        if (cut := results.cut()) is not None:
            return cut
        if not results.returned:
            return None
    return None


@dataclass(frozen=True)
class _Level:
    """A call on a stack, and the statement in which it stands."""

    call: Call
    function: Function
    statement: ast.stmt
    names: Mapping[str, Parts]
    """What each name follows from, where the statement is reached."""
    calls: list[ast.expr]
    """Of the statement, by which the next level was entered; all of it in the innermost."""

    @property
    def given(self) -> Parts:
        """Of the call that is given least. A call whose value is not kept may be there for what it does alone, and
        counts as each sample's own; so does what the source does not tell."""
        if isinstance(self.statement, ast.Expr) or not self.calls:
            return frozenset((EACH,))
        return min((follows_from(call, self.names) for call in self.calls), key=_variety)


def _variety(parts: Parts) -> int:
    return 100 if FRESH in parts else 50 if EACH in parts else len(parts)


@lru_cache(maxsize=4096)
def _levels(stack: CallStack) -> tuple[_Level, ...]:
    """Of the user's own calls, the outermost first, as far as the source tells."""
    levels: list[_Level] = []
    own = [call for call in stack if is_users(call)]
    # A comprehension is a statement's own, though a call of its own until Python 3.12.
    own = [
        call for call, inner in zip(own, [*own[1:], None], strict=False) if inner is None or not is_within_one(inner)
    ]
    given: Mapping[str, Parts] | None = None
    for call, inner in zip(own, [*own[1:], None], strict=False):
        function = function_of(call)
        statement = None if function is None else next(reversed(statements_at(call)), None)
        if function is None or statement is None:
            break
        given = {name: frozenset((EACH,)) for name in parameters_of(function)} if given is None else given
        names = Flow(function, given).until(statement)
        nodes = [node for each in evaluated(statement) for node in ast.walk(each)]
        calls: list[ast.expr] = [node for node in nodes if isinstance(node, ast.Call)]
        if inner is not None:
            calls = [node for node in calls if isinstance(node, ast.Call) and leads_to(node, inner)]
        elif _by_index(stack, call):
            calls += [node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
        levels.append(_Level(call, function, statement, names, calls))
        entered = [node for node in calls if isinstance(node, ast.Call)]
        given = None if inner is None or len(entered) != 1 else _passed_on(entered[0], inner, names)
    return tuple(levels)


def _by_index(stack: CallStack, call: Call) -> bool:
    """Whether a library is asked for something by an index in a call: rows of a table, a part of a file."""
    called = stack[stack.index(call) + 1 :]
    return bool(called) and called[0].function.endswith("__getitem__")


def _passed_on(call: ast.Call, callee: Call, names: Mapping[str, Parts]) -> Mapping[str, Parts] | None:
    """What the parameters of the called function follow from; `None`: not told."""
    called = function_of(callee)
    if called is None:
        return None
    parameters = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
    entered = isinstance(call.func, ast.Attribute) or callee.function.endswith(("__init__", "__call__"))
    bound = bool(entered and parameters[:1] and parameters[0] in OWNERS)
    given = arguments_of(call, called, bound)
    if given is None:
        return None
    found: dict[str, Parts] = {}
    if bound:
        found[parameters[0]] = follows_from(call.func, names)
        if callee.function.endswith("__init__"):
            found[opened(parameters[0])] = SAME
    return found | {name: follows_from(argument, names) for name, argument in given.items()}


class _Results:
    """What follows from the value that a level's statement makes, within its function."""

    def __init__(self, level: _Level) -> None:
        self.level = level
        self.names: set[str] = set()
        """Those that have it."""
        nodes = list(within_function(level.function))
        self.later = [node for node in nodes if getattr(node, "lineno", 0) >= level.statement.lineno]
        self.looped = {
            name
            for node in nodes
            if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension)
            for name in names_in(node.target)
        }
        self._take(level.statement)
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for node in self.later:
                if isinstance(node, ast.stmt) and any(self.carried_by(each) for each in evaluated(node)):
                    self._take(node)

    def _take(self, statement: ast.stmt) -> None:
        """What a statement binds, or changes, has the value."""
        self.names.update(names_bound(statement))
        if isinstance(statement, ast.With | ast.AsyncWith):
            kept = [item.optional_vars for item in statement.items if item.optional_vars is not None]
            self.names.update(name for target in kept for name in names_in(target))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self.names.update(roots_of(statement.value.func) if isinstance(statement.value.func, ast.Attribute) else ())
        self.names.difference_update(OWNERS)

    def carried_by(self, expression: ast.AST) -> bool:
        """Whether the value of an expression has any of it, not only its size."""
        return self._carries(expression, self.names)

    def _carries(self, expression: ast.AST, names: Collection[str], but: Collection[ast.AST] = ()) -> bool:
        """The same where these names have it, in other parts of the expression than some."""
        if expression in but:
            return False
        if expression in self.level.calls:
            return True
        if isinstance(expression, ast.Name):
            return expression.id in names
        if isinstance(expression, ast.Attribute) and expression.attr in _MEASURES:
            return False
        if isinstance(expression, ast.Call) and name_of(expression.func) in _MEASURES:
            return False
        if isinstance(expression, ast.Subscript):
            return self._carries(expression.value, names, but)
        return any(self._carries(child, names, but) for child in ast.iter_child_nodes(expression))

    @property
    def returned(self) -> bool:
        """Whether the function gives it back."""
        return self._given_back(self.names)

    def _given_back(self, names: Collection[str], but: Collection[ast.AST] = ()) -> bool:
        ends = [node for node in self.later if isinstance(node, ast.Return | ast.Yield) and node.value is not None]
        return any(self._carries(end, names, but) for end in ends)

    def cut(self) -> PartUsed | None:
        """Where a part is taken of it that can be told beforehand; `None` where all of it is given back as well."""
        names = Flow(self.level.function, self.level.names).whole()
        cuts: dict[ast.expr, bool] = {}
        for node in sorted(self.later, key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and self.carried_by(node.value):
                index: list[ast.expr] = [node.slice]
                if node.value in self.level.calls and names_used(node.slice) & self.looped:
                    # Each turn of the loop makes the whole anew.
                    cuts[node] = False
                    continue
                one = not any(isinstance(each, ast.Slice) for each in ast.walk(node.slice)) and self._is_one(node.slice)
            elif isinstance(node, ast.Call) and _CUTS.fullmatch(name_of(node.func)) and self.carried_by(node):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                index, one = [each for each in given if not self.carried_by(each)], False
            else:
                continue
            if any(self._varies(each, names) for each in index):
                cuts[node] = one
        if not cuts or self._kept_whole(list(cuts)):
            return None
        first = next(iter(cuts))
        return PartUsed(place_at(self.level.call, first.lineno), cuts[first])

    def _kept_whole(self, cuts: list[ast.expr]) -> bool:
        """Whether the function gives back what no part was taken of."""
        assigned = [node for node in self.later if isinstance(node, ast.Assign)]
        cut = [node for node in assigned if any(each in cuts for each in ast.walk(node.value))]
        return self._given_back(self.names.difference(*map(names_bound, cut)), cuts)

    def _varies(self, index: ast.expr, names: Mapping[str, Parts]) -> bool:
        """From sample to sample, in a way that is known before the whole is made, and that is no new order of all."""
        if names_used(index) & self.looped or isinstance(index, ast.Constant | ast.JoinedStr) or self.carried_by(index):
            return False
        return bool(follows_from(index, names)) and not any(_ORDERS.fullmatch(name) for name in self._calls_of(index))

    def _calls_of(self, index: ast.expr) -> list[str]:
        """The names of the calls that an index is made by, here or where its names are bound."""
        bound = [value for name in names_used(index) for value in self._bound(name)]
        return [name_of(node.func) for each in (index, *bound) for node in ast.walk(each) if isinstance(node, ast.Call)]

    def _bound(self, name: str) -> list[ast.expr]:
        """What a name is given in the function."""
        assigned = [node for node in within_function(self.level.function) if isinstance(node, ast.Assign)]
        return [node.value for node in assigned if name in names_bound(node)]

    def _is_one(self, index: ast.expr) -> bool:
        """Whether an index is one number, as far as what it was bound to tells."""
        if isinstance(index, ast.Name):
            bound = self._bound(index.id)
            return bool(bound) and all(not isinstance(each, ast.Name) and self._is_one(each) for each in bound)
        if isinstance(index, ast.BinOp):
            return isinstance(index.op, ast.Mod | ast.FloorDiv)
        return isinstance(index, ast.Call) and name_of(index.func) in _ONE and len(index.args) <= 2
