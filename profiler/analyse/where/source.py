"""What the source says of a line: whether it does the same each time it is reached, which names it uses and gives.

A data set's `__getitem__` is given an index; what follows from nothing but the object itself, module names and
constants is the same for every sample: an archive opened by `zipfile.ZipFile(self.path)`, a filter computed from
`self.rate`. The stack tells which calls led to the line, the source what was passed on at each of them. Nothing is
executed; source that is no longer what was sampled is not judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ...record.stacks import Call
from .places import is_users

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_BYTES = 2 << 20
"""Larger source files are not parsed."""
OWNERS = ("self", "cls")
_FRESH = re.compile(
    r"_*(next|read(line|lines|into|exactly|all)?|recv\w*|get(_nowait|line)?|pop(left|item)?|rand\w*|choices?|samples?"
    r"|shuffle\w*|uuid\w*|seed\w*|(time|perf_counter|monotonic|process_time)(_ns)?|now)",
    re.IGNORECASE,
)
"""Names of calls whose result may differ though nothing they are given does."""
_WITHIN_ONE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
"""Names of calls that stand within the definition around them."""
_CALLED = ("__call__", "forward")
"""Methods by which an object is something that is done to samples."""
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LEARNING = ("backward", "step", "zero_grad")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def is_invariant(stack: Sequence[Call]) -> bool:
    """Whether what a stack stands in is known to be given nothing that changes from sample to sample, in a call whose
    value is kept; false also where the source does not tell.

    `stack`: the part that makes one sample or batch, the outermost call first.
    """
    own = [call for call in stack if is_users(call)]
    inner_calls = [*own[1:], None][: len(own)]
    varying: Collection[str] | None = None
    for call, inner in zip(own, inner_calls, strict=True):
        function = _function(call)
        statement = None if function is None else _statement(function, call.line)
        if function is None or statement is None:
            return False
        changing = _Changing(function, _parameters(function) if varying is None else varying)
        calls = [node for each in _evaluated(statement) for node in ast.walk(each) if isinstance(node, ast.Call)]
        if inner is not None:
            calls = [node for node in calls if _leads_to(node, inner)]
        if not calls:
            return False
        # The value of a bare call is not kept: what it does it may do for that alone.
        if not isinstance(statement, ast.Expr) and not any(map(changing.of, calls)):
            return True
        varying = None if inner is None or len(calls) > 1 else _passed_on(calls[0], inner, changing)
    return False


def made_anew(stack: Sequence[Call]) -> str:
    """The class whose object is made within a stack only to be called: a transform that each sample makes anew. Empty
    where there is none.

    `stack`: the part that makes one sample or batch, the outermost call first.
    """
    for call in stack:
        of = _class(call) if is_users(call) and call.function.endswith("__init__") else None
        if of is not None and any(isinstance(each, Function) and each.name in _CALLED for each in of.body):
            return of.name
    return ""


def one_by_one(call: Call) -> bool:
    """Whether a call stands in a loop of its own function, or in a comprehension, so that Python goes through things
    one by one there; in a loop that trains it goes through batches. False also where the source does not tell."""
    function = _function(call)
    loops = () if function is None else (node for node in ast.walk(function) if isinstance(node, _LOOPS))
    return any(loop.lineno <= call.line <= (loop.end_lineno or loop.lineno) and not _trains(loop) for loop in loops)


def _trains(loop: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and _name_of(node.func) in _LEARNING for node in ast.walk(loop))


def statement_begin(call: Call) -> int:
    """The line that the statement of a call begins on; the call's own where the source does not tell."""
    found = _known_statement(call)
    return call.line if found is None else found.lineno


def returned(call: Call) -> Call:
    """Where the function of a call ends by giving something back; the call itself where the source does not tell."""
    source, function = _parsed(call.file), _function(call)
    if source is None or function is None:
        return call
    ends = [node for node in _within(function) if isinstance(node, ast.Return) and node.value is not None]
    return _at(call, source, max((end.lineno for end in ends), default=call.line))


def left_out(call: Call) -> Call | None:
    """Where the function of a call gives back nothing in place of a sample, or leaves such samples out of a batch;
    `None` where it is not seen to."""
    source, function = _parsed(call.file), _function(call)
    if source is None or function is None:
        return None
    nodes = sorted((node for node in _within(function) if hasattr(node, "lineno")), key=lambda node: node.lineno)
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes):
        # Where that returns, or goes on, no sample need have been made.
        return None
    for node in nodes:
        empty = isinstance(node, ast.Return) and (node.value is None or _is_none(node.value))
        if empty or (isinstance(node, ast.ListComp | ast.GeneratorExp) and any(each.ifs for each in node.generators)):
            return _at(call, source, node.lineno)
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _at(call: Call, source: _Source, line: int) -> Call:
    return replace(call, line=line, text=source.lines[line - 1].strip())


def names_of(call: Call) -> tuple[list[str], list[str]]:
    """(names that the statement of a call gives a value to, names that it uses); none where it is not known."""
    found = _known_statement(call)
    if found is None:
        return [], []
    stored = [target for binding in _bindings_in([found]) for target in binding[0]]
    used = [
        node.id
        for each in _evaluated(found)
        for node in ast.walk(each)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    return stored, used


def _known_statement(call: Call) -> ast.stmt | None:
    source = _parsed(call.file)
    if source is None or not _is_as_sampled(source, call):
        return None
    return _statement(_function(call) or source.module, call.line)


@dataclass
class _Changing:
    """Which expressions of a function may have another value at its next call."""

    function: Function
    parameters: Collection[str]
    """Those that do."""
    names: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = set(self.parameters)
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for targets, value, iterated in _bindings_in(_within(self.function)):
                if iterated or self.of(value):
                    self.names.update(targets)

    def of(self, expression: ast.AST) -> bool:
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and node.id in self.names:
                return True
            if isinstance(node, ast.Call) and _FRESH.fullmatch(_name_of(node.func)):
                return True
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
                return True
        return False


def _bindings_in(nodes: Iterable[ast.AST]) -> Iterator[tuple[list[str], ast.AST, bool]]:
    """(names, what they are bound to, whether they take one value after another)"""
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield [name for target in node.targets for name in _names(target)], node.value, False
        elif isinstance(node, ast.AugAssign):
            yield _names(node.target), node.value, True
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield _names(node.target), node.value, False
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield _names(node.target), node.iter, True
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield _names(node.optional_vars), node.context_expr, False


def _passed_on(call: ast.Call, callee: Call, changing: _Changing) -> Collection[str] | None:
    """The parameters of the called function that change; `None`: take all of them to."""
    called = _function(callee)
    if called is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    names = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
    entered = isinstance(call.func, ast.Attribute) or callee.function.endswith(("__init__", "__call__"))
    if entered and names[:1] and names[0] in OWNERS:
        names = names[1:]
    found = {name for name, argument in zip(names, call.args, strict=False) if changing.of(argument)}
    for keyword in call.keywords:
        if keyword.arg is None:
            return None
        if changing.of(keyword.value):
            found.add(keyword.arg)
    return found


def _statement(function: Function | ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement on a line."""
    found: ast.stmt | None = None
    for node in _within(function):
        covers = isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
        if isinstance(node, ast.stmt) and covers and (found is None or node.lineno >= found.lineno):
            found = node
    return found


def _evaluated(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of statements within it."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.context_expr for item in statement.items]
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def _within(function: Function | ast.Module) -> Iterator[ast.AST]:
    """All nodes of a function but those of functions and classes within it."""
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop()
        if isinstance(node, _SCOPES):
            continue
        yield node
        queue.extend(ast.iter_child_nodes(node))


def _function(call: Call) -> Function | None:
    """The definition that a call is of; `None` where the file is not to be read, or is another one by now."""
    source = _parsed(call.file)
    if source is None or not _is_as_sampled(source, call):
        return None
    name = call.function.rpartition(".")[2]
    covering = [
        node
        for node in source.functions
        if node.lineno <= call.line <= (node.end_lineno or node.lineno) and name in (node.name, *_WITHIN_ONE)
    ]
    return max(covering, key=lambda node: node.lineno, default=None)


def _class(call: Call) -> ast.ClassDef | None:
    """The class whose body a method stands in directly; `None` where the source does not tell."""
    source, function = _parsed(call.file), _function(call)
    if source is None or function is None:
        return None
    return next((each for each in source.classes if function in each.body), None)


def _is_as_sampled(source: _Source, call: Call) -> bool:
    known = call.text and 1 <= call.line <= len(source.lines)
    return bool(known and source.lines[call.line - 1].strip() == call.text)


@dataclass(frozen=True)
class _Source:
    lines: list[str]
    module: ast.Module
    functions: list[Function]
    classes: list[ast.ClassDef]


@cache
def _parsed(file: str) -> _Source | None:
    path = Path(file)
    try:
        if path.suffix != ".py" or not path.is_file() or path.stat().st_size > MOST_BYTES:
            return None
        text = path.read_text(errors="replace")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, Function)]
    return _Source(text.split("\n"), tree, functions, [node for node in nodes if isinstance(node, ast.ClassDef)])


def _parameters(function: Function) -> list[str]:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [argument.arg for argument in (given.vararg, given.kwarg) if argument is not None]
    return [name for name in names if name not in OWNERS]


def _names(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def _leads_to(call: ast.Call, callee: Call) -> bool:
    """Whether a call in the source is the one by which a function was entered, as far as names tell."""
    of, _, name = callee.function.rpartition(".")
    if name == "__init__":
        return _name_of(call.func) == of.rpartition(".")[2]
    return name in ("__call__", "__enter__") or _name_of(call.func) == name


def _name_of(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
