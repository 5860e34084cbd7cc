"""What the source says of a line: its statement and function, what work on a sample is given there, and what becomes of
its result.

A data set's `__getitem__` is given an index. What follows from nothing but the object itself, module names and
constants is the same for every sample: an archive opened by `zipfile.ZipFile(self.path)`. What follows from
`index // 90` alone is shared by several samples: the clip that ninety windows are cut from. A value is known by the
expressions it depends on, statement by statement. Nothing is executed; source that is no longer what was sampled is not
judged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from ...record.stacks import Call, CallStack, kept_text
from .places import is_users

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOST_BYTES = 2 << 20
"""Larger source files are not parsed."""
OWNERS = ("self", "cls")
_WITHIN_ONE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")
"""Names of calls that stand within the definition around them."""
_CALLED = ("__call__", "forward")
"""Methods by which an object is something that is done to samples."""
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LEARNING = ("backward", "step", "zero_grad")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class SourceFile:
    """A file of Python, read as text and parsed."""

    lines: list[str]
    module: ast.Module
    functions: list[Function]
    classes: list[ast.ClassDef]

    def class_of(self, function: Function) -> ast.ClassDef | None:
        """Return the class in whose body a method stands directly."""
        return next((each for each in self.classes if function in each.body), None)


@cache
def parsed(file: str) -> SourceFile | None:
    """Read a source file as it is now; `None` where it is none, too large or cannot be parsed."""
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
    return SourceFile(text.split("\n"), tree, functions, [node for node in nodes if isinstance(node, ast.ClassDef)])


def _sampled(call: Call) -> SourceFile | None:
    """Read the file of a call; `None` where it is not to be read, or the line is another one by now."""
    source = parsed(call.file)
    if source is None or not call.text or not 1 <= call.line <= len(source.lines):
        return None
    line = source.lines[call.line - 1].strip()
    return source if call.text in (line, kept_text(line)) else None


# Nodes of a function, and names in them.


def function_of(call: Call) -> Function | None:
    """Return the definition that a call is of; `None` where the source is not that which was sampled."""
    source, called = _sampled(call), call.function.rpartition(".")[2]
    covering = [
        node
        for node in (() if source is None else source.functions)
        if _covers(node, call.line) and (is_within_one(call) or called == node.name)
    ]
    return max(covering, key=lambda node: node.lineno, default=None)


@lru_cache(maxsize=8192)
def statements_at(call: Call) -> tuple[ast.stmt, ...]:
    """Return the innermost statements on the line of a call, of which there may be several; none where it is not
    known."""
    source = _sampled(call)
    nodes = within_function(None if source is None else function_of(call) or source.module)
    covering = [node for node in nodes if isinstance(node, ast.stmt) and _covers(node, call.line)]
    begin = max((node.lineno for node in covering), default=0)
    return tuple(node for node in covering if node.lineno == begin)


def _covers(node: ast.stmt | ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def within_function(function: Function | ast.Module | None) -> Iterator[ast.AST]:
    """Yield all nodes of a function but those of functions and classes within it; none of `None`."""
    queue: list[ast.AST] = [] if function is None else list(function.body)
    while queue:
        node = queue.pop()
        if isinstance(node, _SCOPES):
            continue
        yield node
        queue.extend(ast.iter_child_nodes(node))


def is_within_one(call: Call) -> bool:
    """Tell whether a call is that of a comprehension, a generator or a lambda, which stand within a function."""
    return call.function.rpartition(".")[2] in _WITHIN_ONE


def place_at(call: Call, line: int) -> Call:
    """Return another line of the function of a call; the call itself where the source does not tell."""
    source = parsed(call.file)
    return call if source is None else replace(call, line=line, text=source.lines[line - 1].strip())


def evaluated(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions of a statement, without those of statements within it."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.context_expr for item in statement.items]
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def calls_in(code: ast.AST) -> list[ast.Call]:
    """Return all calls within some code."""
    return [node for node in ast.walk(code) if isinstance(node, ast.Call)]


def bindings(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """Return what a statement gives values to, each with the expression that the value comes from."""
    if isinstance(statement, ast.Assign):
        return [(target, statement.value) for target in statement.targets]
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [(item.optional_vars, item.context_expr) for item in statement.items if item.optional_vars is not None]
    if isinstance(statement, ast.For | ast.AsyncFor):
        return [(statement.target, statement.iter)]
    if isinstance(statement, ast.AugAssign | ast.AnnAssign) and statement.value is not None:
        return [(statement.target, statement.value)]
    return []


def names_bound(statement: ast.stmt) -> list[str]:
    """Return the names that an assignment or a loop gives values to."""
    bound = [] if isinstance(statement, ast.With | ast.AsyncWith) else bindings(statement)
    return [name for target, _ in bound for name in names_in(target)]


def names_used(expression: ast.AST) -> set[str]:
    """Return the names that an expression takes the values of."""
    nodes = ast.walk(expression)
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def names_in(target: ast.AST) -> list[str]:
    """Return all names in some code."""
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def name_of(function: ast.AST) -> str:
    """Return the last name of what is called; empty where it has none."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def leads_to(call: ast.Call, callee: Call) -> bool:
    """Tell whether a call in the source is the one by which a function was entered, as far as names tell."""
    of, _, name = callee.function.rpartition(".")
    if name == "__init__":
        return name_of(call.func) == of.rpartition(".")[2]
    return name in ("__call__", "__enter__") or name_of(call.func) == name


def names_of(call: Call, inner: Call | None = None) -> tuple[set[str], set[str]]:
    """Return (names that the statement of a call gives a value to, names that it uses); none where it is not known. Of
    several statements on one line: of those that call `inner`, else of those that do not learn."""
    found = statements_at(call)
    entering = [each for each in found if inner is not None and any(leads_to(node, inner) for node in calls_in(each))]
    meant = entering or [each for each in found if not _trains(each)] or found
    used = (names_used(expression) for each in meant for expression in evaluated(each))
    return {name for each in meant for name in names_bound(each)}, set().union(*used)


def names_behind(call: Call, names: set[str]) -> set[str]:
    """Return these names of the function of a call, and all in it that their values are made of."""
    source = parsed(call.file)
    nodes = within_function(None if source is None else function_of(call) or source.module)
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    made = [(set(names_bound(each)), set().union(*map(names_used, evaluated(each)))) for each in statements]
    behind = set(names)
    while more := set().union(*(used for bound, used in made if bound & behind)) - behind:
        behind |= more
    return behind


# What a line is.


def is_given_on(call: Call, inner: Call | None) -> bool:
    """Tell whether the statement of a call gives what `inner` makes to another function right away."""
    nodes = [node for each in statements_at(call) for node in calls_in(each)]
    given = {inside for node in nodes for each in (*node.args, *node.keywords) for inside in ast.walk(each)}
    return inner is not None and any(node in given and leads_to(node, inner) for node in nodes)


def made_anew(stack: Sequence[Call]) -> str:
    """Return the class whose object is made within a stack only to be called: a transform that each sample makes anew.
    Empty where there is none.

    `stack`: the part that prepares one sample or batch, the outermost call first.
    """
    for call in stack:
        if is_users(call) and call.function.endswith("__init__"):
            source, function = parsed(call.file), function_of(call)
            of = source.class_of(function) if source is not None and function is not None else None
            if of is not None and any(isinstance(each, Function) and each.name in _CALLED for each in of.body):
                return of.name
    return ""


def loop_around(call: Call) -> tuple[int, int] | None:
    """Return (first line, last line) of the outermost loop or comprehension of its own function that a call stands in,
    so that Python goes through things one by one there. `None` without one, where the source does not tell, and in a
    loop that trains: that goes through batches."""
    loops = [node for node in within_function(function_of(call)) if isinstance(node, _LOOPS)]
    around = [loop for loop in loops if _covers(loop, call.line) and not _trains(loop)]
    return min(((loop.lineno, loop.end_lineno or loop.lineno) for loop in around), default=None)


def draws_for_evaluation(call: Call) -> bool:
    """Tell whether a call stands where data are drawn without gradients and given to something: in a `with` block of
    `no_grad` or `inference_mode`, or in a function decorated so, which learns nothing. What only moves the next
    training batch there gives it to nothing by a name of its own."""
    source, function, statements = parsed(call.file), function_of(call), statements_at(call)
    if source is None or not statements:
        return False
    blocks: list[ast.AST] = [
        node
        for node in within_function(function or source.module)
        if isinstance(node, ast.With)
        and _covers(node, call.line)
        and any(_names_no_gradients(item.context_expr) for item in node.items)
    ]
    blocks += [function] if function is not None and any(map(_names_no_gradients, function.decorator_list)) else []
    if not blocks or any(map(_trains, blocks)):
        return False
    nodes = (node for each in statements for node in ast.walk(each))
    drawn = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given = (each for block in blocks for node in calls_in(block) for each in node.args)
    return any(drawn & names_used(each) for each in given)


def _names_no_gradients(expression: ast.expr) -> bool:
    called = expression.func if isinstance(expression, ast.Call) else expression
    return name_of(called) in ("no_grad", "inference_mode")


def _trains(code: ast.AST) -> bool:
    return any(name_of(node.func) in _LEARNING for node in calls_in(code))


def returned(call: Call) -> Call:
    """Return where the function of a call ends by giving something back; the call itself where the source does not
    tell."""
    nodes = within_function(function_of(call))
    ends = [node.lineno for node in nodes if isinstance(node, ast.Return) and node.value is not None]
    return place_at(call, max(ends)) if ends else call


def left_out(call: Call) -> Call | None:
    """Return where the function of a call gives back nothing in place of a sample, or leaves such samples out of a
    batch; `None` where it is not seen to, and in a generator, which need have made no sample where it returns."""
    nodes = list(within_function(function_of(call)))
    lines = [
        node.lineno
        for node in nodes
        if (isinstance(node, ast.Return) and (node.value is None or ast.unparse(node.value) == "None"))
        or (isinstance(node, ast.ListComp | ast.GeneratorExp) and any(each.ifs for each in node.generators))
    ]
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in nodes)
    return place_at(call, min(lines)) if lines and not yields else None


# What a value follows from.

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
    """Return what the value of an expression follows from."""
    if isinstance(node, ast.Name):
        return names.get(node.id, SAME)
    parts = frozenset[str]().union(*(follows_from(child, names) for child in ast.iter_child_nodes(node)))
    if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
        return parts | {FRESH}
    shared = False
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        # A queue's `get` is asked for nothing, that of a mapping for a key.
        if _FRESH.fullmatch(name) or (name == "get" and not node.args):
            opened = isinstance(node.func, ast.Attribute) and any(
                _opened(root) in names for root in roots_of(node.func)
            )
            if not (opened and _READS.fullmatch(name)):
                return parts | {FRESH}
        shared = parts == {EACH} and _GROUPS.fullmatch(name) is not None
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv):
        # An index divided by what is the same for all samples.
        shared = follows_from(node.left, names) == {EACH} and _is_small(node.right, names)
    return frozenset((ast.unparse(node),)) if shared else parts


def _is_small(divisor: ast.expr, names: Mapping[str, Parts]) -> bool:
    if isinstance(divisor, ast.Constant):
        return isinstance(divisor.value, int) and divisor.value <= _FEWEST
    return not follows_from(divisor, names) and bool(names_in(divisor))


def _opened(name: str) -> str:
    """Return the entry by which it is known that what a name stands for was made in this function."""
    return f"opened {name}"


def roots_of(expression: ast.expr) -> list[str]:
    """Return the name that an attribute, an item or a name begins with."""
    while isinstance(expression, _MUTABLE_BY_NAME):
        expression = expression.value
    return [expression.id] if isinstance(expression, ast.Name) else []


class _Flow:
    """What the names of a function follow from where a statement is reached, with what that binds as it goes on (in a
    loop, a comprehension); where the function ends without one."""

    def __init__(self, function: Function, given: Mapping[str, Parts], until: ast.stmt | None) -> None:
        self.names: dict[str, Parts] = dict(given)
        for node in within_function(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                self.names |= dict.fromkeys(node.names, frozenset((FRESH,)))
        self._through(function.body, until)

    def _through(self, body: Sequence[ast.stmt], until: ast.stmt | None) -> bool:
        """Go through statements; tell whether the one was reached."""
        for statement in body:
            for node in (node for expression in evaluated(statement) for node in ast.walk(expression)):
                if isinstance(node, ast.NamedExpr):
                    self._bind(node.target, node.value)
                elif isinstance(node, ast.comprehension):
                    self._bind(node.target, node.iter)
            if statement is until and isinstance(statement, ast.For | ast.AsyncFor):
                self._bind_loop(statement)
            if statement is until or self._enter(statement, until):
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
        if isinstance(statement, ast.If | ast.Try | ast.TryStar | ast.Match):
            if isinstance(statement, ast.If):
                branches = [statement.body, statement.orelse]
            elif isinstance(statement, ast.Match):
                branches = [case.body for case in statement.cases]
            else:
                branches = [statement.body + statement.orelse + statement.finalbody]
                branches += [handler.body for handler in statement.handlers]
            if holds:
                return any(self._through(branch, until) for branch in branches)
            self._joined(branches)
        elif isinstance(statement, ast.AugAssign):
            self._add(names_in(statement.target), follows_from(statement.value, self.names))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            # What a call whose value is dropped was given may be in any of its arguments afterwards.
            changed = [name for each in (statement.value.func, *statement.value.args) for name in roots_of(each)]
            self._add(changed, follows_from(statement.value, self.names) - {FRESH})
        else:
            for target, value in bindings(statement):
                self._bind(target, value)
        return isinstance(statement, ast.With | ast.AsyncWith) and self._through(statement.body, until)

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

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        parts = follows_from(value, self.names)
        called = name_of(value.func) if isinstance(value, ast.Call) else ""
        if isinstance(target, _MUTABLE_BY_NAME):
            self._add(roots_of(target), parts)
        elif isinstance(target, ast.Tuple | ast.List):
            for at, element in enumerate(target.elts):
                mine = parts
                if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                    mine = follows_from(value.elts[at], self.names)
                elif called == "divmod" and len(parts) == 1 and EACH not in parts:
                    mine = frozenset((f"{ast.unparse(value)}[{at}]",))
                self.names |= dict.fromkeys(names_in(element), mine)
        else:
            for name in names_in(target):
                self.names[name] = parts
                self.names.pop(_opened(name), None)
                if _OPENS.fullmatch(called):
                    self.names[_opened(name)] = SAME

    def _add(self, changed: Sequence[str], parts: Parts) -> None:
        for name in changed:
            self.names[name] = self.names.get(name, SAME) | parts


# What work is given, and what of its result is used.

_CUTS = re.compile(r"\w*crop\w*|narrow|index_select|take|take_along_axis", re.IGNORECASE)
"""Names of calls that take a part of what they are given."""
_ORDERS = re.compile(r"(arg)?sort(ed)?|\w*perm\w*|shuffle|topk|where|nonzero")
"""Names of calls that give an order of all there is, or places that hold something."""
_MEASURES = ("len", "shape", "size", "ndim", "dtype")
"""Calls and attributes that reveal only a value's size or type."""
_ONE = ("int", "item", "integers", "randint", "randrange", "index", "argmax", "argmin")
"""Names of calls that give one number, unless asked for more."""


def how_given(stack: CallStack) -> str:
    """Tell how the input of a stack's work varies from sample to sample, by the call that is given least and whose
    value is kept: empty where it is the same for all, the expression that several samples share, else `EACH`. `EACH`
    also where the source does not tell.

    `stack`: the part that prepares one sample or batch, the outermost call first.
    """
    found: list[Parts] = []
    for level in _levels(stack):
        # Whatever is drawn on the way makes the calls before it others each time too.
        found = [] if FRESH in level.given else [*found, level.given]
    if SAME in found:
        return ""
    return next((part for parts in found if len(parts) == 1 for part in parts if part != EACH), EACH)


@lru_cache(maxsize=4096)
def part_used(stack: CallStack) -> tuple[Call, bool] | None:
    """Return where nothing but a part of what a stack's work makes is taken, which differs from sample to sample, and
    whether that is one item, by a number; `None` where the source does not tell.

    `stack`: the part that prepares one sample or batch, the outermost call first.
    """
    for level in reversed(_levels(stack)):
        results = _Results(level)
        if (cut := results.cut()) is not None or not results.returned():
            return cut
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
    """The statement's expressions by which the next level was entered; all calls in the innermost."""

    @property
    def given(self) -> Parts:
        """What the call that is given least follows from. A call whose value is not kept may be there for what it does
        alone, and counts as each sample's own; so does what the source does not tell."""
        if isinstance(self.statement, ast.Expr) or not self.calls:
            return frozenset((EACH,))
        found = (follows_from(call, self.names) for call in self.calls)
        return min(found, key=lambda parts: (FRESH in parts, EACH in parts, len(parts)))


@lru_cache(maxsize=4096)
def _levels(stack: CallStack) -> tuple[_Level, ...]:
    """Return the user's own calls, the outermost first, as far as the source tells."""
    levels: list[_Level] = []
    own = [call for call in stack if is_users(call)]
    # A comprehension is a statement's own, though a call of its own until Python 3.12.
    own = [
        call for call, inner in zip(own, [*own[1:], None], strict=False) if inner is None or not is_within_one(inner)
    ]
    given: Mapping[str, Parts] | None = None
    for call, inner in zip(own, [*own[1:], None], strict=False):
        function, statement = function_of(call), next(reversed(statements_at(call)), None)
        if function is None or statement is None:
            break
        if given is None:
            arguments = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
            given = {name: frozenset((EACH,)) for name in arguments if name not in OWNERS}
        names = _Flow(function, given, statement).names
        expressions = evaluated(statement)
        entered = [node for each in expressions for node in calls_in(each) if inner is None or leads_to(node, inner)]
        calls: list[ast.expr] = [*entered]
        called = stack[stack.index(call) + 1 :]
        if inner is None and called and called[0].function.endswith("__getitem__"):
            # A library is asked for something by an index: rows of a table, a part of a file.
            nodes = (node for each in expressions for node in ast.walk(each))
            calls += [node for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
        levels.append(_Level(call, function, statement, names, calls))
        given = None if inner is None or len(entered) != 1 else _passed_on(entered[0], inner, names)
    return tuple(levels)


def _passed_on(call: ast.Call, callee: Call, names: Mapping[str, Parts]) -> Mapping[str, Parts] | None:
    """Return what the parameters of the called function follow from; `None` where the source does not tell, as where an
    argument is starred."""
    called = function_of(callee)
    hidden = any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords)
    if called is None or hidden:
        return None
    parameters = [argument.arg for argument in (*called.args.posonlyargs, *called.args.args)]
    made = callee.function.endswith("__init__")
    found: dict[str, Parts] = {}
    entered = isinstance(call.func, ast.Attribute) or made or callee.function.endswith("__call__")
    if entered and parameters[:1] and parameters[0] in OWNERS:
        # The first is given by the call itself.
        owner = parameters.pop(0)
        found = {owner: follows_from(call.func, names)} | ({_opened(owner): SAME} if made else {})
    given = dict(zip(parameters, call.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
    return found | {name: follows_from(argument, names) for name, argument in given.items()}


class _Results:
    """What follows from the value that a level's statement makes, within its function."""

    def __init__(self, level: _Level) -> None:
        self.level = level
        self.names: set[str] = set()
        """Those that have it."""
        nodes = list(within_function(level.function))
        self.later = [node for node in nodes if getattr(node, "lineno", 0) >= level.statement.lineno]
        self.assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        loops = (node for node in nodes if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension))
        self.looped = {name for loop in loops for name in names_in(loop.target)}
        self._take(level.statement)
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for node in self.later:
                if isinstance(node, ast.stmt) and any(self.carries(each) for each in evaluated(node)):
                    self._take(node)

    def _take(self, statement: ast.stmt) -> None:
        """Note that what a statement binds, or changes, has the value."""
        self.names.update(name for target, _ in bindings(statement) for name in names_in(target))
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self.names.update(roots_of(statement.value.func) if isinstance(statement.value.func, ast.Attribute) else ())
        self.names.difference_update(OWNERS)

    def carries(self, expression: ast.AST, names: Collection[str] | None = None, but: Collection[ast.AST] = ()) -> bool:
        """Tell whether the value of an expression has any of it, not only its size, where these names have it (`None`:
        those that do), in other parts of the expression than some."""
        if expression in but:
            return False
        if expression in self.level.calls:
            return True
        if isinstance(expression, ast.Name):
            return expression.id in (self.names if names is None else names)
        measured = expression.func if isinstance(expression, ast.Call) else expression
        if isinstance(expression, ast.Call | ast.Attribute) and name_of(measured) in _MEASURES:
            return False
        inner = [expression.value] if isinstance(expression, ast.Subscript) else ast.iter_child_nodes(expression)
        return any(self.carries(child, names, but) for child in inner)

    def returned(self, names: Collection[str] | None = None, but: Collection[ast.AST] = ()) -> bool:
        """Tell whether the function gives it back; arguments as those of `carries`."""
        ends = [node for node in self.later if isinstance(node, ast.Return | ast.Yield) and node.value is not None]
        return any(self.carries(end, names, but) for end in ends)

    def cut(self) -> tuple[Call, bool] | None:
        """Return where a part is taken of it that can be told beforehand, and whether that is one item; `None` where
        all of it is given back as well."""
        names = _Flow(self.level.function, self.level.names, None).names
        cuts: dict[ast.AST, tuple[int, bool]] = {}
        for node in sorted(self.later, key=lambda node: getattr(node, "lineno", 0)):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and self.carries(node.value):
                if node.value in self.level.calls and names_used(node.slice) & self.looped:
                    # Each turn of the loop makes the whole anew.
                    cuts[node] = node.lineno, False
                    continue
                index: list[ast.expr] = [node.slice]
                one = not any(isinstance(each, ast.Slice) for each in ast.walk(node.slice)) and self._is_one(node.slice)
            elif isinstance(node, ast.Call) and _CUTS.fullmatch(name_of(node.func)) and self.carries(node):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                index, one = [each for each in given if not self.carries(each)], False
            else:
                continue
            if any(self._varies(each, names) for each in index):
                cuts[node] = node.lineno, one
        # What no part was taken of may be given back as well.
        cut = [node for node in self.assigned if any(each in cuts for each in ast.walk(node.value))]
        if not cuts or self.returned(self.names.difference(*map(names_bound, cut)), cuts):
            return None
        line, one = next(iter(cuts.values()))
        return place_at(self.level.call, line), one

    def _varies(self, index: ast.expr, names: Mapping[str, Parts]) -> bool:
        """Tell whether an index varies from sample to sample, in a way that is known before the whole is made, and
        that is no new order of all."""
        if names_used(index) & self.looped or isinstance(index, ast.Constant | ast.JoinedStr) or self.carries(index):
            return False
        made_by = (index, *(value for name in names_used(index) for value in self._bound(name)))
        calls = (name_of(node.func) for each in made_by for node in calls_in(each))
        return bool(follows_from(index, names)) and not any(map(_ORDERS.fullmatch, calls))

    def _bound(self, name: str) -> list[ast.expr]:
        """Return what a name is given in the function."""
        return [node.value for node in self.assigned if name in names_bound(node)]

    def _is_one(self, index: ast.expr) -> bool:
        """Tell whether an index is one number, as far as what it was bound to tells."""
        if isinstance(index, ast.Name):
            bound = self._bound(index.id)
            return bool(bound) and all(not isinstance(each, ast.Name) and self._is_one(each) for each in bound)
        if isinstance(index, ast.BinOp):
            return isinstance(index.op, ast.Mod | ast.FloorDiv)
        return isinstance(index, ast.Call) and name_of(index.func) in _ONE and len(index.args) <= 2
