"""What the source says of a line: its function and statement, which names that uses and gives.

Nothing is executed; source that is no longer what was sampled is not judged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

from ...record.stacks import Call, kept_text
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


def made_anew(stack: Sequence[Call]) -> str:
    """The class whose object is made within a stack only to be called: a transform that each sample makes anew. Empty
    where there is none.

    `stack`: the part that prepares one sample or batch, the outermost call first.
    """
    for call in stack:
        of = _class(call) if is_users(call) and call.function.endswith("__init__") else None
        if of is not None and any(isinstance(each, Function) and each.name in _CALLED for each in of.body):
            return of.name
    return ""


def loop_around(call: Call) -> tuple[int, int] | None:
    """(first line, last line) of the outermost loop or comprehension of its own function that a call stands in, so that
    Python goes through things one by one there. `None` without one, where the source does not tell, and in a loop that
    trains: that goes through batches."""
    function = function_of(call)
    loops = [node for node in within_function(function) if isinstance(node, _LOOPS)] if function is not None else []
    spans = [(loop.lineno, loop.end_lineno or loop.lineno) for loop in loops if not _trains(loop)]
    return min((span for span in spans if span[0] <= call.line <= span[1]), default=None)


def draws_for_evaluation(call: Call) -> bool:
    """Whether a call stands where data are drawn without gradients and given to something: in a `with` block of
    `no_grad` or `inference_mode`, or in a function decorated so, which learns nothing. What only moves the next
    training batch there gives it to nothing by a name of its own."""
    source, function = parsed(call.file), function_of(call)
    if source is None or not (statements := statements_at(call)):
        return False
    blocks: list[ast.AST] = [
        node
        for node in within_function(function or source.module)
        if isinstance(node, ast.With)
        and node.lineno <= call.line <= (node.end_lineno or node.lineno)
        and any(_names_no_gradients(item.context_expr) for item in node.items)
    ]
    blocks += [function] if function is not None and any(map(_names_no_gradients, function.decorator_list)) else []
    if not blocks or any(map(_trains, blocks)):
        return False
    nodes = (node for each in statements for node in ast.walk(each))
    drawn = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given = (each for block in blocks for node in ast.walk(block) if isinstance(node, ast.Call) for each in node.args)
    return any(drawn & names_used(each) for each in given)


def _names_no_gradients(expression: ast.expr) -> bool:
    called = expression.func if isinstance(expression, ast.Call) else expression
    return name_of(called) in ("no_grad", "inference_mode")


def _trains(code: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and name_of(node.func) in _LEARNING for node in ast.walk(code))


def returned(call: Call) -> Call:
    """Where the function of a call ends by giving something back; the call itself where the source does not tell."""
    source, function = parsed(call.file), function_of(call)
    if source is None or function is None:
        return call
    ends = [node for node in within_function(function) if isinstance(node, ast.Return) and node.value is not None]
    return _at(call, source, max((end.lineno for end in ends), default=call.line))


def left_out(call: Call) -> Call | None:
    """Where the function of a call gives back nothing in place of a sample, or leaves such samples out of a batch;
    `None` where it is not seen to."""
    source, function = parsed(call.file), function_of(call)
    if source is None or function is None:
        return None
    nodes = sorted(
        (node for node in within_function(function) if hasattr(node, "lineno")), key=lambda node: node.lineno
    )
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


def _at(call: Call, source: SourceFile, line: int) -> Call:
    return replace(call, line=line, text=source.lines[line - 1].strip())


def place_at(call: Call, line: int) -> Call:
    """Another line of the function of a call; the call itself where the source does not tell."""
    source = parsed(call.file)
    return call if source is None else _at(call, source, line)


def names_of(call: Call, inner: Call | None = None) -> tuple[set[str], set[str]]:
    """(names that the statement of a call gives a value to, names that it uses); none where it is not known. Of several
    statements on one line: of those that call `inner`, else of those that do not learn."""
    found = statements_at(call)
    calls = {each: [node for node in ast.walk(each) if isinstance(node, ast.Call)] for each in found}
    entering = [each for each in found if inner is not None and any(leads_to(call, inner) for call in calls[each])]
    meant = entering or [each for each in found if not _trains(each)] or found
    used = (names_used(expression) for each in meant for expression in evaluated(each))
    return {name for each in meant for name in names_bound(each)}, set().union(*used)


def is_given_on(call: Call, inner: Call | None) -> bool:
    """Whether the statement of a call gives what `inner` makes to another function right away."""
    nodes = [node for each in statements_at(call) for node in ast.walk(each) if isinstance(node, ast.Call)]
    given = {inside for node in nodes for each in (*node.args, *node.keywords) for inside in ast.walk(each)}
    return inner is not None and any(node in given and leads_to(node, inner) for node in nodes)


def names_behind(call: Call, names: set[str]) -> set[str]:
    """These names of the function of a call, and all in it that their values are made of."""
    source = parsed(call.file)
    body = function_of(call) or (None if source is None else source.module)
    statements = [] if body is None else [each for each in within_function(body) if isinstance(each, ast.stmt)]
    made = [(set(names_bound(each)), set().union(*map(names_used, evaluated(each)))) for each in statements]
    behind = set(names)
    while more := set().union(*(used for bound, used in made if bound & behind)) - behind:
        behind |= more
    return behind


@lru_cache(maxsize=8192)
def statements_at(call: Call) -> tuple[ast.stmt, ...]:
    """The innermost statements on the line of a call, of which there may be several; none where it is not known."""
    source = parsed(call.file)
    if source is None or not _is_as_sampled(source, call):
        return ()
    covering = [
        node
        for node in within_function(function_of(call) or source.module)
        if isinstance(node, ast.stmt) and node.lineno <= call.line <= (node.end_lineno or node.lineno)
    ]
    begin = max((node.lineno for node in covering), default=0)
    return tuple(node for node in covering if node.lineno == begin)


def names_bound(statement: ast.stmt) -> list[str]:
    """That an assignment or a loop gives values to."""
    if isinstance(statement, ast.Assign):
        return [name for target in statement.targets for name in names_in(target)]
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return []
    if isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        return names_in(statement.target)
    return []


def names_used(expression: ast.AST) -> set[str]:
    """That an expression takes the values of."""
    nodes = ast.walk(expression)
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def evaluated(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of statements within it."""
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.context_expr for item in statement.items]
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def within_function(function: Function | ast.Module) -> Iterator[ast.AST]:
    """All nodes of a function but those of functions and classes within it."""
    queue: list[ast.AST] = list(function.body)
    while queue:
        node = queue.pop()
        if isinstance(node, _SCOPES):
            continue
        yield node
        queue.extend(ast.iter_child_nodes(node))


def function_of(call: Call) -> Function | None:
    """The definition that a call is of; `None` where the file is not to be read, or is another one by now."""
    source = parsed(call.file)
    if source is None or not _is_as_sampled(source, call):
        return None
    called = call.function.rpartition(".")[2]
    covering = [
        node
        for node in source.functions
        if node.lineno <= call.line <= (node.end_lineno or node.lineno) and (is_within_one(call) or called == node.name)
    ]
    return max(covering, key=lambda node: node.lineno, default=None)


def is_within_one(call: Call) -> bool:
    """Whether a call is that of a comprehension, a generator or a lambda, which stand within a function."""
    return call.function.rpartition(".")[2] in _WITHIN_ONE


def _class(call: Call) -> ast.ClassDef | None:
    """The class whose body a method stands in directly; `None` where the source does not tell."""
    source, function = parsed(call.file), function_of(call)
    return None if source is None or function is None else source.class_of(function)


def _is_as_sampled(source: SourceFile, call: Call) -> bool:
    known = call.text and 1 <= call.line <= len(source.lines)
    return bool(known and call.text in ((line := source.lines[call.line - 1].strip()), kept_text(line)))


@dataclass(frozen=True)
class SourceFile:
    """A file of Python, read as text and parsed."""

    lines: list[str]
    module: ast.Module
    functions: list[Function]
    classes: list[ast.ClassDef]

    def class_of(self, function: Function) -> ast.ClassDef | None:
        """In whose body a method stands directly."""
        return next((each for each in self.classes if function in each.body), None)


@cache
def parsed(file: str) -> SourceFile | None:
    """A source file as it is now; `None` where it is none, too large or cannot be parsed."""
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


def parameters_of(function: Function) -> list[str]:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [argument.arg for argument in (given.vararg, given.kwarg) if argument is not None]
    return [name for name in names if name not in OWNERS]


def arguments_of(call: ast.Call, function: Function, entered: bool) -> dict[str, ast.expr] | None:
    """What a call in the source gives to the parameters of a function, the defaults left out; `None` where a starred
    argument hides that. `entered`: the first parameter is given by the call itself, as `self` is."""
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return None
    parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    given = dict(zip(parameters[entered:], call.args, strict=False))
    return given | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}


def names_in(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


def leads_to(call: ast.Call, callee: Call) -> bool:
    """Whether a call in the source is the one by which a function was entered, as far as names tell."""
    of, _, name = callee.function.rpartition(".")
    if name == "__init__":
        return name_of(call.func) == of.rpartition(".")[2]
    return name in ("__call__", "__enter__") or name_of(call.func) == name


def name_of(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
