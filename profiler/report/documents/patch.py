"""A change of the program, as it is shown: the diff, the command to run, and what is left to be done by hand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ...tune.patch import Patch
from ..document import Block, CodeChange, Paragraph


def patched(patch: Patch) -> Iterator[Block]:
    """Indented as the parts under a heading are."""
    if patch.diff:
        yield CodeChange(tuple(patch.diff.splitlines()))
        yield Paragraph(f"Nothing was changed: `patch -p1` in {patch.folder} takes this.", 1)
    if patch.command:
        said = "Then run it so" if patch.diff else "No source changes: run it so"
        yield Paragraph(f"{said}: {shlex.join(patch.command)}", 1)
    for sentence in patch.by_hand:
        yield Paragraph(f"By hand: {sentence}", 1)
