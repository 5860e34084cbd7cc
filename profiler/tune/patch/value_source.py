"""Where the value of an argument comes from: a literal in the program's source, or an option of its command line.

An expression is followed as a reader would follow it: a name to the one statement that binds it, a parameter to the
call that gives it (along the recorded stack, else the only call there is), an attribute to the object's class, its
constructor's arguments or the option of that name. What has several sources is not followed. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...analyse.where.places import is_users
from ...analyse.where.source import (
    OWNERS,
    Function,
    SourceFile,
    arguments_of,
    function_of,
    is_within_one,
    leads_to,
    name_of,
    parameters_of,
    parsed,
    within_function,
)
from ...record.stacks import Call, CallStack
from .bindings import bindings, changed, default, is_own, items_of
from .command_options import Option, command_option, declared

MOST_FOLLOWED = 16
"""Steps from an argument to its source."""
MOST_FILES = 60
"""Of the program that are read in search of options and classes."""
_CONVERTS = ("int", "bool")


@dataclass(frozen=True)
class Literal:
    """A value that stands in the source."""

    file: str
    node: ast.expr
    value: Any


@dataclass(frozen=True)
class Elsewhere:
    """An expression that could not be followed any further."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Scope:
    """Where names of an expression are looked up."""

    file: str
    source: SourceFile
    function: Function | None
    """`None`: the module."""
    depth: int | None = None
    """Of the function's call on the stack; `None` where it is not known to be there."""

    @property
    def body(self) -> Function | ast.Module:
        return self.function or self.source.module

    @property
    def module(self) -> Scope:
        return Scope(self.file, self.source, None)


_At = tuple[ast.expr, Scope]


class ProgramSource:
    """The user's own files that a stack goes through, and what those import."""

    def __init__(self, stack: CallStack) -> None:
        calls: list[Call] = []
        for call in stack:
            if is_within_one(call) and calls:
                # A comprehension is a statement's own, though a call of its own until Python 3.12.
                calls[-1] = replace(calls[-1], line=call.line, text=call.text)
            elif is_users(call):
                calls.append(call)
        self.calls: tuple[Call, ...] = tuple(calls)

    def scope(self, depth: int) -> Scope | None:
        """Of a call on the stack, by its place among the user's own; `None` where the source does not tell."""
        call = self.calls[depth]
        source, function = parsed(call.file), function_of(call)
        if source is None or (function is None and not call.function.endswith("<module>")):
            return None
        return Scope(call.file, source, function, depth)

    def found(self, expression: ast.expr, scope: Scope) -> Literal | Option | Elsewhere:
        """The source of an expression's value."""
        node, at = self._followed(expression, scope, MOST_FOLLOWED)
        if isinstance(node, ast.Constant):
            return Literal(at.file, node, node.value)
        option = self._option(node, at)
        return option or Elsewhere(at.file, node.lineno, ast.unparse(node))

    @cached_property
    def _depths(self) -> dict[Function | None, int]:
        """Of functions on the stack, that of the innermost call."""
        scopes = ((depth, self.scope(depth)) for depth in range(len(self.calls)))
        return {at.function: depth for depth, at in scopes if at is not None and at.function is not None}

    @cached_property
    def _files(self) -> dict[str, SourceFile]:
        """By path: those of the stack, and modules beside them that they import."""
        files: dict[str, SourceFile] = {}
        queue = list(dict.fromkeys(call.file for call in self.calls))
        while queue and len(files) < MOST_FILES:
            file = queue.pop(0)
            source = None if file in files else parsed(file)
            if source is not None:
                files[file] = source
                nodes = ast.walk(source.module)
                queue += [path for node in nodes for path in self._imported(node, file)]
        return files

    def _imported(self, node: ast.AST, file: str) -> Iterator[str]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from self._module(alias.name, file, 0)
        elif isinstance(node, ast.ImportFrom):
            yield from self._module(node.module or "", file, node.level)
            for alias in node.names:
                yield from self._module(f"{node.module or ''}.{alias.name}".strip("."), file, node.level)

    def _module(self, name: str, file: str, level: int) -> Iterator[str]:
        """The file of a module of the program's own, if there is one."""
        parts = [part for part in name.split(".") if part]
        if level:
            folders = [Path(file).parents[level - 1]]
        else:
            folders = [Path(file).parent, *(Path(call.file).parent for call in self.calls[:2])]
        for folder in dict.fromkeys(folders):
            stem = folder.joinpath(*parts)
            for path in (stem.with_suffix(".py") if parts else folder / "__init__.py", stem / "__init__.py"):
                if path.is_file():
                    yield str(path)
                    return

    def _followed(self, node: ast.expr, scope: Scope, left: int) -> _At:
        """The expression that another one takes its value from, as far as that is known."""
        if left == 0:
            return node, scope
        found: _At | None = None
        if isinstance(node, ast.Name):
            found = self._bound(node.id, scope)
        elif isinstance(node, ast.Attribute):
            found = self._attribute(node, scope, left - 1)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found = self._item(node.value, node.slice.value, scope, left - 1)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            if node.args and isinstance(node.args[0], ast.Constant):
                found = self._item(node.func.value, node.args[0].value, scope, left - 1)
        elif isinstance(node, ast.Call) and name_of(node.func) in _CONVERTS and len(node.args) == 1:
            found = node.args[0], scope
        return (node, scope) if found is None else self._followed(*found, left - 1)

    def _bound(self, name: str, scope: Scope) -> _At | None:
        """By the only statement that binds it, or the call that gives it."""
        if scope.function is not None:
            bound = list(bindings(scope.function, name))
            if len(bound) == 1 and bound[0] is not None:
                return bound[0], scope
            if not bound and name in parameters_of(scope.function):
                return self._given(name, scope)
            if bound:
                return None
            scope = scope.module
        bound = list(bindings(scope.source.module, name))
        if len(bound) == 1 and bound[0] is not None:
            return bound[0], scope
        return None if bound else self._import_of(name, scope)

    def _import_of(self, name: str, scope: Scope) -> _At | None:
        """A name that another file of the program gives."""
        for node in ast.walk(scope.source.module):
            if not isinstance(node, ast.ImportFrom):
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    for file in self._module(node.module or "", scope.file, node.level):
                        if (source := parsed(file)) is not None:
                            return self._bound(alias.name, Scope(file, source, None))
        return None

    def _given(self, parameter: str, scope: Scope) -> _At | None:
        """What a call gives to a parameter: the argument, or its default."""
        function = scope.function
        assert function is not None
        if command_option(function, parameter) is not None:
            return None
        of = scope.source.class_of(function)
        calls = self._calls_of(self._name(function, scope), scope)
        if len(calls) > 1:
            return None
        for call, at in calls:
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            given = arguments_of(call, function, of is not None and names[:1] == [OWNERS[0]])
            if given is None:
                return self.argument(call, parameter, at)
            if parameter in given:
                return given[parameter], at
        otherwise = default(function, parameter)
        return None if otherwise is None else (otherwise, scope.module)

    def _name(self, function: Function, scope: Scope) -> str:
        """By which a function is called."""
        of = scope.source.class_of(function)
        return of.name if of is not None and function.name == "__init__" else function.name

    def _calls_of(self, name: str, scope: Scope) -> list[tuple[ast.Call, Scope]]:
        """The call on the stack by which a function was entered, else all that the source has of that name."""
        if scope.depth:
            caller = self.scope(scope.depth - 1)
            line = self.calls[scope.depth - 1].line
            if caller is not None:
                nodes = [node for node in calls_at(caller.source, line) if leads_to(node, self.calls[scope.depth])]
                if nodes:
                    return [(node, caller) for node in nodes]
        return list(self._all_calls(name))

    def _all_calls(self, name: str) -> Iterator[tuple[ast.Call, Scope]]:
        for file, source in self._files.items():
            for function in (None, *source.functions):
                scope = Scope(file, source, function, self._depths.get(function))
                for node in within_function(scope.body):
                    if isinstance(node, ast.Call) and name_of(node.func) == name:
                        yield node, scope

    def argument(self, call: ast.Call, name: str, scope: Scope) -> _At | None:
        """Of a call, that is given by its name or by a dictionary that is unpacked there; `None` where it has none, or
        that is not known."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value, scope
        stars = [keyword.value for keyword in call.keywords if keyword.arg is None]
        found = (self._item(each, name, scope, MOST_FOLLOWED) for each in stars)
        return next((each for each in found if each is not None), None)

    def passing_on(self, call: ast.Call, scope: Scope) -> tuple[ast.Call, Scope] | None:
        """The call whose named arguments another one passes on, in a function with `**kwargs`: the only such call."""
        function = scope.function
        rest = None if function is None else function.args.kwarg
        if function is None or rest is None:
            return None
        if not any(k.arg is None and isinstance(k.value, ast.Name) and k.value.id == rest.arg for k in call.keywords):
            return None
        calls = self._calls_of(self._name(function, scope), scope)
        return calls[0] if len(calls) == 1 else None

    def keys(self, dictionary: ast.expr, scope: Scope) -> set[str] | None:
        """All keys of a dictionary that stands in the source and is not added to; `None` where that is not known."""
        node, at = self._followed(dictionary, scope, MOST_FOLLOWED)
        if items_of(node) is None or (isinstance(dictionary, ast.Name) and changed(dictionary.id, at.source)):
            return None
        return {key for key in items_of(node) or {} if isinstance(key, str)}

    def _item(self, of: ast.expr, key: Any, scope: Scope, left: int) -> _At | None:
        if isinstance(of, ast.Name) and changed(of.id, scope.source):
            return None
        node, at = self._followed(of, scope, left)
        items = items_of(node)
        if items is not None and key in items:
            return items[key], at
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope, left: int) -> _At | None:
        of = node.value
        if isinstance(of, ast.Name) and of.id in OWNERS and scope.function is not None:
            own = scope.source.class_of(scope.function)
            return None if own is None else self._of_class(own, node.attr, scope)
        if isinstance(of, ast.Name) and (found := self._of_module(of.id, node.attr, scope)) is not None:
            return found
        if self._is_set_from_outside(node.attr):
            return None
        made, at = self._followed(of, scope, left)
        if isinstance(made, ast.Call):
            given = next((keyword.value for keyword in made.keywords if keyword.arg == node.attr), None)
            if given is not None:
                return given, at
        name = name_of(made.func if isinstance(made, ast.Call) else made)
        for file, source in self._files.items():
            for each in source.classes:
                if each.name == name:
                    return self._of_class(each, node.attr, Scope(file, source, None))
        return None

    def _is_set_from_outside(self, attribute: str) -> bool:
        """Whether the program sets an attribute of this name of any object but the one whose method it is."""
        return any(
            isinstance(node, ast.Attribute)
            and node.attr == attribute
            and not isinstance(node.ctx, ast.Load)
            and not is_own(node, attribute)
            for source in self._files.values()
            for node in ast.walk(source.module)
        )

    def _of_module(self, name: str, attribute: str, scope: Scope) -> _At | None:
        for each in ast.walk(scope.source.module):
            if isinstance(each, ast.Import | ast.ImportFrom):
                for alias in each.names:
                    if (alias.asname or alias.name) != name:
                        continue
                    inside = f"{each.module or ''}.{alias.name}".strip(".") if isinstance(each, ast.ImportFrom) else ""
                    level = each.level if isinstance(each, ast.ImportFrom) else 0
                    for file in self._module(inside or alias.name, scope.file, level):
                        if (source := parsed(file)) is not None:
                            return self._bound(attribute, Scope(file, source, None))
        return None

    def _of_class(self, own: ast.ClassDef, attribute: str, scope: Scope) -> _At | None:
        """What the one statement sets that gives objects of a class this attribute, or that stands in its body."""
        set_to: list[_At] = []
        for method in (each for each in own.body if isinstance(each, Function)):
            at = Scope(scope.file, scope.source, method, self._depths.get(method))
            assigned = [node for node in within_function(method) if isinstance(node, ast.Assign)]
            set_to += [(node.value, at) for node in assigned if any(is_own(each, attribute) for each in node.targets)]
        if set_to:
            return set_to[0] if len(set_to) == 1 else None
        calls = [call for call, _ in self._all_calls(own.name)]
        given = [(call, at) for call, at in self._all_calls(own.name) if attribute in {k.arg for k in call.keywords}]
        if given:
            keyword = next(each for each in given[0][0].keywords if each.arg == attribute)
            return (keyword.value, given[0][1]) if len(calls) == 1 else None
        values = list(bindings(own, attribute))
        return (values[0], scope.module) if len(values) == 1 and values[0] is not None else None

    def _option(self, node: ast.expr, scope: Scope) -> Option | None:
        """The option of the command line that an expression reads."""
        name: Any = None
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name = node.slice.value
        elif isinstance(node, ast.Name) and scope.function is not None:
            flags = command_option(scope.function, node.id)
            return None if flags is None else Option(scope.file, flags)
        found = [
            option
            for file, source in self._files.items()
            for call in ast.walk(source.module)
            if isinstance(call, ast.Call) and (option := declared(call, file)) is not None and option[0] == name
        ]
        return found[0][1] if len(found) == 1 else None


def calls_at(source: SourceFile, line: int) -> list[ast.Call]:
    """Calls that a line is part of, the innermost first."""
    covering = [
        node
        for node in ast.walk(source.module)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return sorted(covering, key=lambda node: (-node.lineno, node.end_lineno or 0, -node.col_offset))
