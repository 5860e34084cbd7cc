"""What records point to by number: stacks in `stacks.jsonl`; in `names.tsv` names of transforms and of files of slow
samples.

A number is computed from what it stands for, so that processes which never meet agree on it. Lines are only appended,
each with a single write: one that is torn is left out.

A stack is the number of its innermost call; each call names the one that it was made from, so that what stacks share
is written once. The lines of source are kept as they were when they were seen. All of it comes from another program's
memory and files: it is read as data, leniently.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .files import MOST_DIGITS, add_lines, open_recorded, plain, read_lines
from .schema import NOT_MEASURED
from .secret import LEFT_OUT, line_without_secrets

NAMES = "names.tsv"
LONGEST_NAME = 300
"""Characters; of longer names the end is kept, which tells paths apart."""
MOST_NAME_BYTES = 2 << 20
"""No names are added to a file this large."""
STACKS = "stacks.jsonl"
MOST_BYTES = 16 << 20
"""No calls are added to a file this large."""
MOST_TEXT = 300
"""Characters kept of a function's name or a line of source."""
MOST_PATH = 4096
MOST_AT_A_LOOK = 256 << 10
"""Bytes that a follower reads at a look: about 1500 calls."""
MOST_DEPTH = 512
"""Calls of a stack that are read: a damaged file may go in circles."""


def _number_of(text: bytes) -> int:
    """Compute the number that stands for a text: 63 bits, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


class Names:
    """Appends names, each once. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: set[int] = set()

    def number(self, text: str) -> int:
        """Give the number of a name, which is in the file from now on; `NOT_MEASURED` where that is not possible."""
        line = " ".join(plain(text).split())
        if len(line) > LONGEST_NAME:
            line = "…" + line[1 - LONGEST_NAME :]
        with contextlib.suppress(UnicodeError):
            number = _number_of(line.encode())
            if number in self._said or add_lines(
                self._folder, NAMES, f"{number}\t{line}\n", MOST_NAME_BYTES, once=True
            ):
                self._said.add(number)
                return number
        return NOT_MEASURED


def read_names(folder: Path) -> dict[int, str]:
    """Read all names of a run folder by number; lines that are none are left out. Raises as `open_recorded` does."""
    names = {}
    for line in read_lines(folder / NAMES):
        number, tab, text = line.partition(b"\t")
        if tab and number.isdigit() and len(number) <= MOST_DIGITS:
            names[int(number)] = plain(text.decode(errors="replace"))
    return names


@dataclass(frozen=True, slots=True)
class Call:
    """One function of a stack, where it stood."""

    function: str
    """With its class, or the function it is defined in, where the interpreter tells: `Shards.__getitem__`."""
    file: str = ""
    line: int = 0
    """0 where it is not known."""
    text: str = ""
    """The line of source; empty where it was not looked up, or not to be kept."""


CallStack = tuple[Call, ...]
"""The outermost call first."""


class StackNames:
    """Appends calls, each once. Never raises."""

    def __init__(self, folder: Path, source: Callable[[str, int], str] | None = None) -> None:
        """`source`: (file, line) → the line of source, empty where there is none to be had; `None`: none is kept."""
        self._folder = folder
        self._source = source
        self._said: dict[tuple[int, str, str, int], int] = {}

    def number(self, stack: Sequence[Call]) -> int:
        """Give the number of a stack, which is in the file from now on; `NOT_MEASURED` where that is not possible."""
        at, lines, fresh = 0, [], []
        for call in stack:
            key = at, call.file, call.function, call.line
            known = self._said.get(key)
            if known is None:
                known = _number_of("\0".join(map(str, key)).encode(errors="surrogateescape"))
                fresh.append((key, known))
                line = {"call": known, "from": at, "function": plain(call.function)[:MOST_TEXT]}
                line |= {"file": plain(call.file)[:MOST_PATH], "line": call.line}
                text = call.text or (self._source(call.file, call.line) if self._source is not None else "")
                lines.append(json.dumps(line | ({"text": kept_text(text)} if text else {})) + "\n")
            at = known
        if lines and not add_lines(self._folder, STACKS, "".join(lines), MOST_BYTES):
            return NOT_MEASURED
        self._said.update(fresh)
        return at if stack else NOT_MEASURED


def kept_text(line: str) -> str:
    """Cut a line of source to what is kept of it."""
    # What is cut off must not be half of a key, which none would know by then.
    return str(plain(line_without_secrets(line[: 4 * MOST_TEXT])))[:MOST_TEXT]


def left_out_of(folder: Path, commands: Iterable[object]) -> int:
    """Count the values that were left out of a recording: of its lines of source and of these forms of its command."""
    calls = _calls(line for line in read_lines(folder / STACKS) if LEFT_OUT.encode() in line)
    lines = {(call.file, call.line): call.text.count(LEFT_OUT) for _, call in calls.values()}
    return sum(lines.values()) + max((str(each).count(LEFT_OUT) for each in commands), default=0)


class StackTable:
    """The stacks of a run folder by number. `look` reads on: of a run that goes on, what is new."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STACKS
        self._read = 0
        """Bytes of whole lines."""
        self._calls: dict[int, tuple[int, Call]] = {}
        """Number → the number of the call it was made from (0: none), and the call."""
        self._stacks: dict[int, CallStack] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def look(self, most: int = MOST_AT_A_LOOK) -> None:
        """Read on, so many bytes at most: a reader that comes late has all of it after a few looks. Raises as
        `open_recorded` does."""
        with contextlib.suppress(OSError), os.fdopen(open_recorded(self._path), "rb") as file:
            file.seek(self._read)
            *lines, rest = file.read(most).split(b"\n")
            self._calls |= _calls(lines)
            # A line is written whole; one that is as long as all that is read is none.
            self._read = file.tell() - (len(rest) if len(rest) < most else 0)

    def stack(self, number: int) -> CallStack:
        """Find a stack by its number; empty where it stands for none."""
        found = self._stacks.get(number)
        if found is None:
            stack: list[Call] = []
            at = number
            while at in self._calls and len(stack) < MOST_DEPTH:
                at, call = self._calls[at]
                stack.append(call)
            found = tuple(reversed(stack))
            if at == 0:
                # The file may still tell of any other.
                self._stacks[number] = found
        return found


def read_stacks(folder: Path) -> StackTable:
    """Read all stacks of a run folder; lines that are none are left out. Raises as `open_recorded` does."""
    table = StackTable(folder)
    table.look(-1)
    return table


def _calls(lines: Iterable[bytes]) -> dict[int, tuple[int, Call]]:
    """Number → the number of the call it was made from, and the call; lines that are none are left out."""
    calls = {}
    for line in lines:
        with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
            told = {"text": ""} | json.loads(line)
            function, file, text = (plain(str(told[name])) for name in ("function", "file", "text"))
            calls[int(told["call"])] = int(told["from"]), Call(function, file, int(told["line"]), text)
    return calls
