"""Changes to a source file at places of its syntax tree, all else left as it is, and their unified diff.

Files are edited as bytes: the syntax tree counts columns so, and line ends stay what they are.
"""

from __future__ import annotations

import ast
import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Edit:
    """Some bytes in the place of others."""

    file: str
    begin: int
    """Offset in the file, bytes."""
    end: int
    text: bytes


class FileBytes:
    """A source file as it is on disk, by lines of its syntax tree."""

    def __init__(self, file: str) -> None:
        """
        Raises:
            OSError: it cannot be read.
            ValueError: it is not UTF-8.
        """
        self.file = file
        self.content = Path(file).read_bytes()
        self.content.decode()
        self.lines = self.content.split(b"\n")
        self._begins = [0]
        for line in self.lines:
            self._begins.append(self._begins[-1] + len(line) + 1)

    def at(self, line: int, column: int) -> int:
        """Offset of a place of the syntax tree, whose lines count from 1."""
        return self._begins[line - 1] + column

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno or 0, node.end_col_offset or 0)

    def replaced(self, node: ast.expr, text: str) -> Edit:
        return Edit(self.file, *self.span(node), text.encode())

    def with_arguments(self, call: ast.Call, arguments: Mapping[str, str]) -> list[Edit]:
        """Keyword arguments at the end of a call: on lines of their own where the last argument is on one."""
        given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        said = [f"{name}={value}" for name, value in arguments.items()]
        _, end = self.span(call)
        if not given:
            return [Edit(self.file, end - 1, end - 1, ", ".join(said).encode())]
        last = max(given, key=lambda node: self.span(node)[1])
        begin, after = self._whole(last)
        comma = self._comma(after, end - 1)
        line_end = self.content.find(b"\n", after if comma is None else comma + 1)
        closes_below = line_end != -1 and line_end < end - 1
        line = self.content.rfind(b"\n", 0, begin) + 1
        indent = self.content[line:begin]
        if not closes_below or indent.strip():
            text = ", ".join(said)
            if comma is None:
                return [Edit(self.file, after, after, f", {text}".encode())]
            return [Edit(self.file, comma + 1, comma + 1, f" {text},".encode())]
        newline = b"\r\n" if self.content[line_end - 1 : line_end] == b"\r" else b"\n"
        at = line_end - (len(newline) - 1)
        text_of = [newline + indent + each.encode() for each in said]
        if comma is not None:
            return [Edit(self.file, at, at, b"".join(each + b"," for each in text_of))]
        # A comment may stand between the last argument and its line's end.
        rest = b",".join(text_of)
        if at == after:
            return [Edit(self.file, at, at, b"," + rest)]
        return [Edit(self.file, after, after, b","), Edit(self.file, at, at, rest)]

    def _whole(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        """With the parentheses or stars around an argument that its node does not count."""
        begin, end = self.span(node)
        while self.content[begin - 1 : begin] == b"*":
            begin -= 1
        return begin, end

    def _comma(self, begin: int, end: int) -> int | None:
        """A comma between the last argument and the call's end, comments left out."""
        at = begin
        while at < end:
            if self.content[at : at + 1] == b"#":
                at = self.content.find(b"\n", at)
                continue
            if self.content[at : at + 1] == b",":
                return at
            at += 1
        return None


def edited(file: FileBytes, edits: Iterable[Edit]) -> bytes:
    """
    Raises:
        SyntaxError, ValueError: what comes of it is no Python.
    """
    content = file.content
    for edit in sorted(set(edits), reverse=True):
        content = content[: edit.begin] + edit.text + content[edit.end :]
    ast.parse(content)
    return content


def unified_diff(edits: Iterable[Edit], folder: Path) -> str:
    """Of all files, as `patch -p1` and `git apply` take it in that folder.

    Raises:
        OSError, SyntaxError, ValueError: a file cannot be read, or would be no Python.
    """
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_file[edit.file].append(edit)
    said = []
    for name, mine in sorted(by_file.items()):
        file = FileBytes(name)
        path = Path(name).relative_to(folder).as_posix()
        before, after = (_lines(each) for each in (file.content, edited(file, mine)))
        lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
        said += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(said)


def _lines(content: bytes) -> list[str]:
    """With their ends; only `\\n` ends one, as for `patch`."""
    lines = content.decode().split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
