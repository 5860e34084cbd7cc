"""A change of a loader's settings as a change of the program: a diff of the call that makes the loader, the command
line where a value is an option, and what is left to be set by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonpath
from pathlib import Path
from typing import Any

from ...analyse.where.source import name_of
from ...record.run import Run
from ...record.schema import EVENT, EventKind
from ...record.secret import line_without_secrets
from ...record.stacks import CallStack, read_stacks
from ...record.tuning import LoaderSettings
from .command_options import Option, with_option
from .edits import Edit, FileBytes, unified_diff
from .value_source import Literal, ProgramSource, Scope, calls_at

LOADER = "Loader"
"""What the name of a call that makes a loader has in it."""
POSITIONS = {"num_workers": 5, "pin_memory": 7}
"""Places of arguments that torch's DataLoader also takes without their names."""
OF_WORKERS = {"prefetch_factor": None, "persistent_workers": False}
"""What these have to be without workers."""


@dataclass(frozen=True)
class Patch:
    """How a program comes to have other settings. All empty where nothing could be told."""

    diff: str = ""
    """Unified; empty where no file is to be changed."""
    folder: str = ""
    """In which `patch -p1` applies it."""
    command: tuple[str, ...] = ()
    """To be run instead, where a value is an option of the command line; empty otherwise."""
    by_hand: tuple[str, ...] = ()
    """What could not be edited, a sentence each."""

    def kept(self) -> Patch:
        """As it may be recorded."""
        return replace(self, diff=line_without_secrets(self.diff))


class NotFound(Exception):
    """Why the call that makes the loader cannot be edited, as a sentence."""


def loader_made(run: Run) -> CallStack:
    """The calls in which the program made the loader that trains; none where that was not seen."""
    events = run.records(EVENT, run.leading_writer())
    told = events["value"][events["what"] == EventKind.LOADER_MADE]
    return read_stacks(run.folder).stack(int(told[-1])) if len(told) else ()


def patch_of(
    made: CallStack, before: LoaderSettings, after: LoaderSettings, command: Sequence[str], folder: Path
) -> Patch:
    """Never raises for what stands in the source.

    Args:
        made: the calls in which the loader was made, the outermost first.
        command: that started the program.
        folder: in which it was started.
    """
    program = ProgramSource(made)
    try:
        chain = list(_loader_calls(program))
        writing = _Writing(program, chain, before, after, command)
        writing.all()
    except NotFound as told:
        return Patch(by_hand=(f"{told} Set there: {_listed(before.changed_to(after))}.",))
    files = {edit.file for edit in writing.edits}
    root = folder.resolve()
    if any(not Path(file).is_relative_to(root) for file in files):
        root = Path(commonpath([str(Path(file).parent) for file in files]))
    try:
        diff = unified_diff(writing.edits, root)
    except (OSError, SyntaxError, ValueError) as error:
        said = f"{_place(chain[0])} could not be edited ({error})."
        return Patch(by_hand=(f"{said} Set there: {_listed(before.changed_to(after))}.",))
    ran = tuple(writing.command) if writing.command != list(command) else ()
    return Patch(diff, str(root) if diff else "", ran, tuple(writing.by_hand))


@dataclass(frozen=True)
class _LoaderCall:
    """A call that makes a loader, or that passes its arguments on to one."""

    node: ast.Call
    scope: Scope
    is_loader: bool
    """Whether it is the loader's own, whose arguments may go without names."""


def _place(of: _LoaderCall) -> str:
    return f"{of.scope.file.rpartition('/')[2]}:{of.node.lineno}"


def _loader_calls(program: ProgramSource) -> Iterator[_LoaderCall]:
    """The call that makes the loader, then those whose named arguments it passes on.

    Raises:
        NotFound: there is none to be edited.
    """
    if not program.calls:
        raise NotFound("Where the program makes its loader was not seen.")
    depth = len(program.calls) - 1
    place = f"{program.calls[depth].file}:{program.calls[depth].line}"
    scope = program.scope(depth)
    if scope is None:
        raise NotFound(f"The source at {place} cannot be read, or is another one by now.")
    line = program.calls[depth].line
    nodes = [node for node in calls_at(scope.source, line) if _makes_loader(node, scope)]
    if not nodes:
        raise NotFound(f"No call at {place} is seen to make a loader: a library makes it there.")
    if len([node for node in nodes if node.lineno == nodes[0].lineno]) > 1:
        raise NotFound(f"Several loaders are made at {place}.")
    node = nodes[0]
    is_loader = not _is_super(node)
    yield _LoaderCall(node, scope, is_loader)
    while (passed := program.passing_on(node, scope)) is not None:
        node, scope = passed
        yield _LoaderCall(node, scope, False)


def _makes_loader(node: ast.Call, scope: Scope) -> bool:
    if _is_super(node):
        own = None if scope.function is None else scope.source.class_of(scope.function)
        return own is not None and any(LOADER in name_of(base) for base in own.bases)
    name = name_of(node.func)
    for each in ast.walk(scope.source.module):
        if isinstance(each, ast.ImportFrom):
            name = next((alias.name for alias in each.names if alias.asname == name), name)
    return LOADER in name


def _is_super(node: ast.Call) -> bool:
    """Whether it is `super().__init__(…)`."""
    of = node.func
    return (
        isinstance(of, ast.Attribute)
        and of.attr == "__init__"
        and isinstance(of.value, ast.Call)
        and name_of(of.value.func) == "super"
    )


@dataclass
class _Writing:
    """One change, while it is made up."""

    program: ProgramSource
    chain: list[_LoaderCall]
    before: LoaderSettings
    after: LoaderSettings
    started: Sequence[str]
    edits: list[Edit] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    _files: dict[str, FileBytes] = field(default_factory=dict)

    def all(self) -> None:
        """
        Raises:
            NotFound: a file cannot be read, or is another one by now.
        """
        self.command = list(self.started)
        added: dict[str, str] = {}
        wanted = self.before.changed_to(self.after)
        if not self.after.num_workers:
            wanted |= {name: value for name, value in OF_WORKERS.items() if self._argument(name) is not None}
        for name, value in wanted.items():
            given = self._argument(name)
            if given is not None:
                self._set(name, value, *given)
            elif not self._hidden(name, value):
                added[name] = repr(value)
        if added:
            self._add(added)

    def _argument(self, name: str) -> tuple[ast.expr, Scope] | None:
        """The expression that gives an argument; `None` where the calls do not say it."""
        for call in self.chain:
            position = POSITIONS.get(name)
            arguments = call.node.args
            placed = call.is_loader and position is not None and not any(isinstance(a, ast.Starred) for a in arguments)
            if placed and position is not None and position < len(arguments):
                return arguments[position], call.scope
            if (found := self.program.argument(call.node, name, call.scope)) is not None:
                return found
        return None

    def _hidden(self, name: str, value: Any) -> bool:
        """Whether an argument may be in an unpacked dictionary whose keys are not known; that is said then."""
        last = self.chain[-1]
        for keyword in last.node.keywords:
            if keyword.arg is None and self.program.keys(keyword.value, last.scope) is None:
                unpacked = ast.unparse(keyword.value)
                self.by_hand.append(f"{_place(last)} unpacks `{unpacked}`: set {name}={value!r} there.")
                return True
        return False

    def _set(self, name: str, value: Any, expression: ast.expr, scope: Scope) -> None:
        found = self.program.found(expression, scope)
        if isinstance(found, Literal):
            recorded = getattr(self.before, name)
            applies = self.before.num_workers or name in POSITIONS
            if found.value == value:
                return
            if applies and found.value != recorded and found.value is not None:
                where = f"{found.file.rpartition('/')[2]}:{found.node.lineno}"
                self.by_hand.append(f"{where} says {name}={found.value!r} where {recorded!r} ran: set it to {value!r}.")
                return
            self.edits.append(self._file(found.file).replaced(found.node, repr(value)))
        elif isinstance(found, Option) and self._by_option(found, value):
            return
        else:
            place, text = (
                (f"{found.file.rpartition('/')[2]}:{found.line}", found.text)
                if not isinstance(found, Option)
                else (found.file.rpartition("/")[2], found.flags[-1])
            )
            self.by_hand.append(f"{name} comes from `{text}` ({place}): set it to {value!r}.")

    def _by_option(self, option: Option, value: Any) -> bool:
        """Whether the command could be given it."""
        started = self.program.calls[0].file
        words = {Path(word).name for word in self.started if word.endswith(".py")}
        if Path(started).name not in words and "-m" not in self.started:
            return False
        said = value if isinstance(value, bool) and option.action != "store" else str(value)
        words_after = with_option(self.command, option, said)
        if words_after is None:
            return False
        self.command = words_after
        return True

    def _add(self, arguments: Mapping[str, str]) -> None:
        """Arguments that no call says yet. Where the number of workers is no literal, they hold for none too."""
        last = self.chain[-1]
        said = dict(arguments)
        workers = self._argument("num_workers")
        if workers is not None and workers[1] is last.scope and not isinstance(workers[0], ast.Constant):
            text = ast.unparse(workers[0])
            text = text if isinstance(workers[0], ast.Name | ast.Attribute | ast.Subscript) else f"({text})"
            if said.get("persistent_workers") == "True":
                said["persistent_workers"] = f"{text} > 0"
            if "prefetch_factor" in said:
                said["prefetch_factor"] = f"{said['prefetch_factor']} if {text} > 0 else None"
        self.edits += self._file(last.scope.file).with_arguments(last.node, said)

    def _file(self, name: str) -> FileBytes:
        if name not in self._files:
            try:
                self._files[name] = FileBytes(name)
            except (OSError, ValueError) as error:
                raise NotFound(f"{name} cannot be edited ({error}).") from None
        return self._files[name]


def _listed(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
