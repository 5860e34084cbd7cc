"""Lines of code, as people know them.

A command in a line: short where nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...analyse.where.places import Where, is_users
from ...analyse.where.stages import OTHER, Stages
from ...record.stacks import Call
from .figures import counted, share, speedup

LONGEST = 90


def command_line(parts: Any) -> str:
    """Programs without their folders; a script's folder goes where the line would be too long, arguments last."""
    if not isinstance(parts, list) or not parts:
        return "run"
    words = [str(part) for part in parts]
    words = [_name(word) if n == 0 or "/bin/" in word else word for n, word in enumerate(words)]
    if len(" ".join(words)) > LONGEST:
        words = [_name(word) if word.endswith(".py") else word for word in words]
    line = " ".join(words)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _name(path: str) -> str:
    return path.rpartition("/")[2] or path


_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(.+)")
_NOTEBOOK = re.compile(r".*/ipykernel_\d+/\d+\.py")


def short_file(file: str) -> str:
    """A path as people know it: from the package on, else its last two parts; a notebook's cell as such."""
    if _NOTEBOOK.fullmatch(file):
        return "a notebook's cell"
    found = _PACKAGE.fullmatch(file)
    return found[1] if found else "/".join(file.rsplit("/", 2)[-2:])


def line_of(at: Where | Call) -> str:
    """`data.py:27 in Shards.__getitem__`."""
    named = at.function if at.function and not at.function.startswith("<") else ""
    return f"{short_file(at.file)}:{at.line}" + (f" in {named}" if named else "")


def spent(where: Where) -> str:
    """What share of which time a line took, and where within."""
    if where.share is None:
        return where.time
    within = f", in {where.calls}" if where.calls else ""
    thread = f" of {where.thread}" if where.thread else ""
    gained = "" if where.without is None else f"; without it {speedup(where.without)}"
    return f"{share(where.share, 0)} of {where.time}{thread}{within}; {counted(where.samples, 'stack sample')}{gained}"


def stage_rows(stages: Stages) -> Iterator[tuple[str, str, str, str]]:
    """(stage, its share, the interval of that, how it was seen) a stage."""
    for part in stages.parts:
        looks = counted(part.looks, "stack sample")
        percents = f"({100 * part.share.low:.0f} to {100 * part.share.high:.0f})"
        called = f"in {part.calls}" if part.calls else ""
        at = "" if part.at is None or not is_users(part.at) else f"{part.at.file.rpartition('/')[2]}:{part.at.line}"
        where = " ".join(filter(None, (at, called)))
        yield part.words, share(part.share.value, 0), percents, f"{looks}{where and f'; {where}'}"


def in_lines(where: Sequence[Where], stages: Stages | None) -> list[str]:
    """All of these lines of code, and of the stages those that are told, a line each."""
    said = []
    for each in where:
        code = f": {each.code}" if each.code else ""
        said.append(f"at {line_of(each)}{code} ({spent(each)})")
    if stages is not None:
        told = (f"{part.words} {share(part.share.value, 0)}" for part in stages.parts if part.stage != OTHER)
        said.append(f"of {stages.time}: {', '.join(told)}")
    return said
