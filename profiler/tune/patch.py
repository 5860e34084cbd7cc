"""A change of a loader's settings as a change of the program: a diff of the call that makes the loader, the command
line where a value is an option, and what is left to be set by hand."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

from ..analyse.where.places import is_users
from ..analyse.where.source import SourceFile, function_of, is_within_one, name_of, parsed
from ..errors import WhyidleError
from ..record.run import Run
from ..record.schema import EVENT, EventKind
from ..record.secret import line_without_secrets
from ..record.stacks import Call, CallStack, read_stacks
from ..record.tuning import LoaderSettings

LOADER = "Loader"
"""What the name of a call that makes a loader has in it."""
POSITIONS = {"num_workers": 5, "pin_memory": 7}
"""Places of arguments that torch's DataLoader also takes without their names."""
OF_WORKERS = {"prefetch_factor": None, "persistent_workers": False}
"""What these have to be without workers."""


@dataclass(frozen=True)
class Patch:
    """How a program comes to have other settings. All empty where the call that makes the loader was not found."""

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


class _NotFound(Exception):
    """Why the call that makes the loader cannot be edited, as a sentence."""


def require_new(path: Path | None) -> None:
    """
    Raises:
        WhyidleError: a patch could not be written there, or something is there already.
    """
    if path is None:
        return
    if path.exists():
        raise WhyidleError(f"--patch {path} exists already. Name a new file, or move this one away.")
    if not path.absolute().parent.is_dir():
        raise WhyidleError(f"--patch {path}: there is no folder {path.absolute().parent}. Make it, or name another.")


def write_patch(patch: Patch | None, path: Path) -> str:
    """Write a patch and tell what was done, as a sentence.

    Raises:
        WhyidleError: it cannot be written.
    """
    if patch is None:
        return f"No patch was written to {path}: there is nothing to change."
    if not patch.diff:
        other = "the command line changes, not the source" if patch.command else "the source could not be edited"
        return f"No patch was written to {path}: {other}."
    try:
        with path.open("x", newline="") as file:
            file.write(patch.diff)
    except OSError as error:
        raise WhyidleError(f"--patch {path} cannot be written: {error.strerror}.") from error
    return f"The patch is in {path}. To apply it: patch -p1 -d {patch.folder} < {path}"


def loader_made(run: Run) -> CallStack:
    """The calls in which the program made the loader that trains; none where that was not seen."""
    events = run.records(EVENT, run.leading_writer())
    stacks = events["value"][events["what"] == EventKind.LOADER_MADE]
    return read_stacks(run.folder).stack(int(stacks[-1])) if len(stacks) else ()


def patch_of(
    made: CallStack, before: LoaderSettings, after: LoaderSettings, command: Sequence[str], folder: Path
) -> Patch:
    """Make the patch; never raises, whatever the source is.

    Args:
        made: the calls in which the loader was made, the outermost first.
        command: that started the program.
        folder: in which it was started.
    """
    try:
        return _changed(_loader_call(made), before, after, command, folder.resolve())
    except _NotFound as why:
        listed = ", ".join(f"{name}={value!r}" for name, value in before.changed_to(after).items())
        return Patch(by_hand=(f"{why} Set there: {listed}.",))


@dataclass(frozen=True)
class _LoaderCall:
    """The innermost call of the program's own that makes the loader."""

    node: ast.Call
    source: SourceFile
    stack: tuple[Call, ...]
    """The program's own calls, the outermost first; the last one makes the loader."""

    def place(self, node: ast.expr) -> str:
        return f"{Path(self.stack[-1].file).name}:{node.lineno}"

    def argument(self, name: str) -> ast.expr | None:
        """Find the expression that gives an argument; `None` where the call does not say it."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        position, given = POSITIONS.get(name), self.node.args
        if position is None or any(isinstance(each, ast.Starred) for each in given):
            return None
        return given[position] if position < len(given) else None


def _loader_call(made: CallStack) -> _LoaderCall:
    """Find the call. Raises _NotFound where there is none to be edited."""
    stack: list[Call] = []
    for call in made:
        if is_within_one(call) and stack:
            # A comprehension is a statement's own, though a call of its own until Python 3.12.
            stack[-1] = replace(stack[-1], line=call.line, text=call.text)
        elif is_users(call):
            stack.append(call)
    if not stack:
        raise _NotFound("whyidle did not see where the program makes its loader.")
    call = stack[-1]
    place, source, function = f"{call.file}:{call.line}", parsed(call.file), function_of(call)
    if source is None or (function is None and not call.function.endswith("<module>")):
        raise _NotFound(f"The source at {place} cannot be read, or has changed since.")
    imports = [each for each in ast.walk(source.module) if isinstance(each, ast.ImportFrom)]
    names = {alias.asname: alias.name for each in imports for alias in each.names}
    nodes = [
        node
        for node in ast.walk(source.module)
        if isinstance(node, ast.Call)
        and node.lineno <= call.line <= (node.end_lineno or node.lineno)
        and LOADER in names.get(name_of(node.func), name_of(node.func))
    ]
    if not nodes:
        raise _NotFound(f"No call at {place} makes a loader: a library makes it there.")
    line = max(node.lineno for node in nodes)
    innermost = [node for node in nodes if node.lineno == line]
    if len(innermost) > 1:
        raise _NotFound(f"Several loaders are made at {place}.")
    return _LoaderCall(innermost[0], source, tuple(stack))


def _changed(
    call: _LoaderCall, before: LoaderSettings, after: LoaderSettings, started: Sequence[str], folder: Path
) -> Patch:
    """Make the change up. Raises _NotFound where the file cannot be read or edited."""
    command, edits, by_hand = list(started), list[tuple[ast.expr, str]](), list[str]()
    wanted = before.changed_to(after)
    if not after.num_workers:
        wanted |= {name: value for name, value in OF_WORKERS.items() if call.argument(name) is not None}
    added = {}
    for name, value in wanted.items():
        given, ran = call.argument(name), getattr(before, name)
        if given is None:
            added[name] = value
        elif isinstance(given, ast.Constant):
            applies = before.num_workers or name in POSITIONS
            if applies and given.value not in (ran, value, None):
                says = f"{call.place(given)} says {name}={given.value!r}"
                by_hand.append(f"{says} where {ran!r} ran: set it to {value!r}.")
            elif given.value != value:
                edits.append((given, repr(value)))
        elif (flags := _option(given, call, command)) and not isinstance(value, bool):
            command = _with_option(command, flags, str(value))
        else:
            comes = f"{name} comes from `{ast.unparse(given)}` ({call.place(given)})"
            by_hand.append(f"{comes}, {ran!r} in this run: set it to {value!r}.")
    # An argument with a star may hold any other.
    stars = [each.value for each in call.node.args if isinstance(each, ast.Starred)]
    stars += [each.value for each in call.node.keywords if each.arg is None]
    if added and stars:
        words = f"{call.place(call.node)} unpacks `{ast.unparse(stars[0])}`"
        by_hand += [f"{words}: set {name}={value!r} there." for name, value in added.items()]
        added = {}
    arguments = _for_no_workers(added, call.argument("num_workers"))
    patch = Patch(command=() if command == list(started) else tuple(command), by_hand=tuple(by_hand))
    if not edits and not arguments:
        return patch
    file = Path(call.stack[-1].file)
    root = folder if file.is_relative_to(folder) else file.parent
    try:
        content = file.read_bytes()
        edited = _edited(content, edits, call.node, arguments)
        ast.parse(edited)
        diff = _unified_diff(content, edited, file.relative_to(root).as_posix())
    except (OSError, SyntaxError, ValueError) as error:
        raise _NotFound(f"{call.place(call.node)} could not be edited ({error}).") from None
    return replace(patch, diff=diff, folder=str(root))


def _for_no_workers(added: Mapping[str, Any], workers: ast.expr | None) -> list[str]:
    """Arguments to add to a call. Where its number of workers is no literal, they hold for none too."""
    said = {name: repr(value) for name, value in added.items()}
    if workers is not None and not isinstance(workers, ast.Constant):
        text = ast.unparse(workers)
        text = text if isinstance(workers, ast.Name | ast.Attribute | ast.Subscript) else f"({text})"
        if said.get("persistent_workers") == "True":
            said["persistent_workers"] = f"{text} > 0"
        if "prefetch_factor" in said:
            said["prefetch_factor"] = f"{said['prefetch_factor']} if {text} > 0 else None"
    return [f"{name}={value}" for name, value in said.items()]


def _edited(
    content: bytes, edits: Iterable[tuple[ast.expr | ast.keyword, str]], call: ast.Call, added: Sequence[str]
) -> bytes:
    """The file with other texts in the place of expressions, and with arguments behind the last one of a call. Bytes,
    as the syntax tree counts columns so, and line ends stay what they are."""
    begins = [0]
    for line in content.split(b"\n"):
        begins.append(begins[-1] + len(line) + 1)

    def end_of(node: ast.expr | ast.keyword) -> int:
        return begins[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    places = [(begins[node.lineno - 1] + node.col_offset, end_of(node), text) for node, text in edits]
    if added:
        ends = [*map(end_of, call.args), *map(end_of, call.keywords)]
        at = max(ends, default=end_of(call) - 1)
        places.append((at, at, ("" if not ends else ", ") + ", ".join(added)))
    for begin, end, text in sorted(places, reverse=True):
        content = content[:begin] + text.encode() + content[end:]
    return content


def _unified_diff(before: bytes, after: bytes, path: str) -> str:
    """As `patch -p1` and `git apply` take it."""
    old, new = ([line.decode() for line in BytesIO(content)] for content in (before, after))
    diff = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in diff)


def _with_option(words: list[str], flags: Sequence[str], value: str) -> list[str]:
    """Give the command with an option of these flags (`-j`, `--workers`) set to a value."""
    for at, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in flags and equals:
            return [*words[:at], f"{name}={value}", *words[at + 1 :]]
        if name in flags:
            return [*words[:at], name, value, *words[at + 2 :]]
    # Of two the later holds: one that was written otherwise (`-j4`) may stay.
    return [*words, next((flag for flag in flags if flag.startswith("--")), flags[0]), value]


def _option(given: ast.expr, call: _LoaderCall, command: Sequence[str]) -> list[str]:
    """Find the flags of the option that an expression reads: by an attribute or item of its name that one of the files
    on the stack declares (argparse), or by a parameter that a decorator gives (click). Empty where it reads none, and
    where the program is not what the command names."""
    programs = {Path(word).name for word in command if word.endswith(".py")}
    if Path(call.stack[0].file).name not in programs and "-m" not in command:
        return []
    if isinstance(given, ast.Name):
        function = function_of(call.stack[-1])
        nodes: list[ast.AST] = [] if function is None else list(function.decorator_list)
        name, declares = given.id, "option"
    elif isinstance(given, ast.Attribute | ast.Subscript):
        sources = [parsed(file) for file in dict.fromkeys(each.file for each in call.stack)]
        nodes = [node for source in sources if source is not None for node in ast.walk(source.module)]
        item = given.slice if isinstance(given, ast.Subscript) else None
        name = given.attr if isinstance(given, ast.Attribute) else str(getattr(item, "value", ""))
        declares = "add_argument"
    else:
        return []
    calls = [node for node in nodes if isinstance(node, ast.Call) and name_of(node.func) == declares]
    found = [flags for each in calls if (flags := _declared(each, name))]
    return found[0] if len(found) == 1 else []


def _declared(call: ast.Call, name: str) -> list[str]:
    """Read the flags of the option that a call declares, if its value has this name."""
    words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    flags = [word for word in words if word.startswith("-")]
    dest = next((keyword.value for keyword in call.keywords if keyword.arg == "dest"), None)
    named = {dest.value} if isinstance(dest, ast.Constant) else {word for word in words if word not in flags}
    return flags if name in (named or {flag.lstrip("-").replace("-", "_") for flag in flags}) else []
