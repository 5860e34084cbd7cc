"""Lines of code, as people know them."""

from __future__ import annotations

import re

from ...analyse.where.places import Where
from ...record.stacks import Call
from .figures import counted, share

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
    return f"{share(where.share, 0)} of {where.time}{thread}{within}; {counted(where.samples, 'look')}"


def in_a_line(where: Where) -> str:
    """All of it."""
    code = f": {where.code}" if where.code else ""
    return f"at {line_of(where)}{code} ({spent(where)})"
