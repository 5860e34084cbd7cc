"""What work on a sample is given, and what becomes of its result, as the source tells along the calls of a stack.

A data set's `__getitem__` is given an index. What follows from nothing but the object itself, module names and
constants is the same for every sample: an archive opened by `zipfile.ZipFile(self.path)`. What follows from
`index // 90` alone is shared by several samples: the clip that ninety windows are cut from. Nothing is executed.

What the names of a function follow from: nothing, what several samples share, each sample, or chance. A value is
known by the expressions it depends on, statement by statement; the source is read, not executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ...record.stacks import Call, CallStack
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

Parts = frozenset[str]
"""What a value depends on: nothing (it is always the same); expressions that several samples share; `EACH`, `FRESH`."""
SAME: Parts = frozenset()
EACH = "each sample"
FRESH = "each time"
"""Random, or read on from where another call stopped."""
_FRESH = re.compile(
    r"_*(next|read(line|lines|into|exactly|all)?|recv\w*|get_?(nowait|line)|pop(left|item)?|rand\w*|choices?|samples?"
    r"|shuffle\w*|uuid\w*|seed\w*|(time|perf_counter|monotonic|process_time)(_ns)?|now|integers|permut\w*"
    r"|(standard_)?normal|uniform|gauss|multinomial|bernoulli|poisson|exponential)",
    re.IGNORECASE,
)
"""Names of calls whose result may differ though nothing they are given does."""
_READS = re.compile(r"read\w*")
_OPENS = re.compile(r"\w*open|[A-Z]\w*")
"""Names of calls that make a new file or reader: what it reads follows from what it was made with."""
_GROUPS = re.compile(r"bisect\w*|searchsorted|digitize|divmod")
"""Names of calls that, given an index, tell which group it is in."""
_FEWEST = 1000
"""A constant that an index is divided by leaves this many values at most, else it need not be shared."""
_MUTABLE_BY_NAME = (ast.Subscript, ast.Attribute)


def follows_from(node: ast.AST, names: Mapping[str, Parts]) -> Parts:
    """What the value of an expression follows from."""
    if isinstance(node, ast.Name):
        return names.get(node.id, SAME)
    parts = frozenset[str]().union(*(follows_from(child, names) for child in ast.iter_child_nodes(node)))
    if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
        return parts | {FRESH}
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        # A queue's `get` is asked for nothing, that of a mapping for a key.
        fresh = _FRESH.fullmatch(name) or (name == "get" and not node.args)
        if fresh and not _reads_its_own(node, names):
            return parts | {FRESH}
        if _GROUPS.fullmatch(name) and parts == {EACH}:
            return frozenset((ast.unparse(node),))
    if isinstance(node, ast.BinOp) and _divides(node, names):
        return frozenset((ast.unparse(node),))
    return parts


def _divides(node: ast.BinOp, names: Mapping[str, Parts]) -> bool:
    """Whether an index is divided by what is the same for all samples, so that several have the same of it."""
    divided = isinstance(node.op, ast.Mod | ast.FloorDiv) and follows_from(node.left, names) == {EACH}
    return divided and _is_small(node.right, names)


def _is_small(divisor: ast.expr, names: Mapping[str, Parts]) -> bool:
    if isinstance(divisor, ast.Constant):
        return isinstance(divisor.value, int) and divisor.value <= _FEWEST
    return not follows_from(divisor, names) and any(isinstance(node, ast.Name) for node in ast.walk(divisor))


def _reads_its_own(call: ast.Call, names: Mapping[str, Parts]) -> bool:
    """Whether a call reads from what was opened in the same function."""
    if not isinstance(call.func, ast.Attribute) or not _READS.fullmatch(name_of(call.func)):
        return False
    return any(opened(name) in names for name in roots_of(call.func))


def opened(name: str) -> str:
    """The entry by which it is known that what a name stands for was made in this function."""
    return f"opened {name}"


class Flow:
    """What the names of a function follow from, statement by statement."""

    def __init__(self, function: Function, given: Mapping[str, Parts]) -> None:
        self.function = function
        self.names: dict[str, Parts] = dict(given)
        for node in within_function(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.names |= dict.fromkeys(node.names, frozenset((FRESH,)))

    def until(self, statement: ast.stmt) -> Mapping[str, Parts]:
        """Where a statement is reached, with what it binds as it goes on (in a loop, a comprehension)."""
        self._through(self.function.body, statement)
        for expression in evaluated(statement):
            self._bind_within(expression)
        if isinstance(statement, ast.For | ast.AsyncFor):
            self._bind_loop(statement)
        return self.names

    def whole(self) -> Mapping[str, Parts]:
        """Where the function ends."""
        self._through(self.function.body, None)
        return self.names

    def _through(self, body: Sequence[ast.stmt], until: ast.stmt | None) -> bool:
        """Whether the statement was reached."""
        for statement in body:
            if statement is until:
                return True
            for expression in evaluated(statement):
                self._bind_within(expression)
            if self._enter(statement, until):
                return True
        return False

    def _enter(self, statement: ast.stmt, until: ast.stmt | None) -> bool:
        holds = until is not None and any(node is until for node in ast.walk(statement))
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            for _ in range(2):
                if not isinstance(statement, ast.While):
                    self._bind_loop(statement)
                self._joined([statement.body])
            return holds and (self._through(statement.body, until) or self._through(statement.orelse, until))
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, item.context_expr)
            return self._through(statement.body, until)
        if isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.Match):
            branches = _branches(statement)
            if holds:
                return any(self._through(branch, until) for branch in branches)
            self._joined(branches)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._bind(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self._bind(statement.target, statement.value)
        elif isinstance(statement, ast.AugAssign):
            self._add(names_in(statement.target), follows_from(statement.value, self.names))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            # What a call whose value is dropped was given may be in any of its arguments afterwards.
            changed = [name for each in (statement.value.func, *statement.value.args) for name in roots_of(each)]
            self._add(changed, follows_from(statement.value, self.names) - {FRESH})
        return False

    def _joined(self, branches: Sequence[Sequence[ast.stmt]]) -> None:
        before, found = dict(self.names), dict(self.names)
        for branch in branches:
            self.names = dict(before)
            self._through(branch, None)
            for name, parts in self.names.items():
                found[name] = found.get(name, SAME) | parts
        self.names = found

    def _bind_loop(self, loop: ast.For | ast.AsyncFor) -> None:
        self._bind(loop.target, loop.iter)
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(loop)):
            # Each turn makes another sample.
            self._add(names_in(loop.target), frozenset((FRESH,)))

    def _bind_within(self, expression: ast.expr) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.NamedExpr):
                self._bind(node.target, node.value)
            elif isinstance(node, ast.comprehension):
                self._bind(node.target, node.iter)

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        parts = follows_from(value, self.names)
        if isinstance(target, _MUTABLE_BY_NAME):
            self._add(roots_of(target), parts)
            return
        if isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for at, element in enumerate(target.elts):
                self._bind_part(element, value, at, parts if values is None else follows_from(values[at], self.names))
            return
        for name in names_in(target):
            self.names[name] = parts
            self.names.pop(opened(name), None)
            if isinstance(value, ast.Call) and _OPENS.fullmatch(name_of(value.func)):
                self.names[opened(name)] = SAME

    def _bind_part(self, element: ast.expr, value: ast.expr, at: int, parts: Parts) -> None:
        if isinstance(value, ast.Call) and name_of(value.func) == "divmod" and len(parts) == 1 and EACH not in parts:
            parts = frozenset((f"{ast.unparse(value)}[{at}]",))
        for name in names_in(element):
            self.names[name] = parts

    def _add(self, changed: Sequence[str], parts: Parts) -> None:
        for name in changed:
            self.names[name] = self.names.get(name, SAME) | parts


def _branches(statement: ast.If | ast.Try | ast.TryStar | ast.Match) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    if isinstance(statement, ast.Match):
        return [case.body for case in statement.cases]
    handlers = [handler.body for handler in statement.handlers]
    return [statement.body + statement.orelse + statement.finalbody, *handlers]


def roots_of(expression: ast.expr) -> list[str]:
    """The name that an attribute, an item or a name begins with."""
    while isinstance(expression, _MUTABLE_BY_NAME):
        expression = expression.value
    return [expression.id] if isinstance(expression, ast.Name) else []


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

    `stack`: the part that prepares one sample or batch, the outermost call first.
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

    `stack`: the part that prepares one sample or batch, the outermost call first.
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
