"""What the names of a function follow from: nothing, what several samples share, each sample, or chance.

A value is known by the expressions it depends on, statement by statement; the source is read, not executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from .source import Function, evaluated, name_of, names_in, within_function

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
