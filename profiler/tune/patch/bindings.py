"""What names of a function, module or class are bound to, as far as the source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from ...analyse.where.source import OWNERS, Function, SourceFile, name_of, within_function


def bindings(body: Function | ast.Module | ast.ClassDef, name: str) -> Iterator[ast.expr | None]:
    """What statements of a function, module or class bind a name to; `None` where that is no expression by itself."""
    nodes = within_function(body) if not isinstance(body, ast.ClassDef) else iter(body.body)
    for node in nodes:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            yield node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            if node.value is not None:
                yield node.value
        elif isinstance(node, ast.Name) and node.id == name and _is_bound_otherwise(body, node):
            yield None


def _is_bound_otherwise(body: Function | ast.Module | ast.ClassDef, name: ast.Name) -> bool:
    """Whether a name is bound, and not as the whole target of an assignment."""
    if isinstance(name.ctx, ast.Load) or isinstance(body, ast.ClassDef):
        return False
    for node in within_function(body):
        if isinstance(node, ast.Assign) and name in node.targets:
            return False
        if isinstance(node, ast.AnnAssign) and node.target is name:
            return False
    return True


def items_of(node: ast.expr) -> dict[Any, ast.expr] | None:
    """Of a dictionary that stands in the source: `{…}` or `dict(…)`."""
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
    if not isinstance(node, ast.Call) or name_of(node.func) != "dict" or node.args:
        return None
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    return None if None in given else given


def changed(name: str, source: SourceFile) -> bool:
    """Whether a dictionary of this name is added to: by an item, or by `update`."""
    for node in ast.walk(source.module):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_name(node.value, name):
            return True
        if (
            isinstance(node, ast.Attribute)
            and node.attr in ("update", "setdefault", "pop")
            and _is_name(node.value, name)
        ):
            return True
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_own(target: ast.expr, attribute: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == attribute
        and isinstance(target.value, ast.Name)
        and target.value.id in OWNERS
    )


def default(function: Function, parameter: str) -> ast.expr | None:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    with_default = positional[len(positional) - len(given.defaults) :]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(zip(with_default, given.defaults, strict=True))
    pairs += zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return next((value for argument, value in pairs if argument.arg == parameter), None)
