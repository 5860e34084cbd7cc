"""The code that a recorded command ran, as run.json names it: a revision of git, and whether that is all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

CODE = "code"
"""The key of run.json."""
SHOWN = 10
"""Signs of a revision that are shown: enough for git to find it."""
_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Code:
    revision: str
    """The full hash."""
    branch: str | None
    """`None`: on none."""
    changed: bool | None
    """Whether files that git tracks differed from the revision, or the script is none of them; `None`: not known."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self | None:
        """What run.json says; `None` where that is nothing, or no revision."""
        told = info.get(CODE)
        if not isinstance(told, Mapping):
            return None
        revision, branch, changed = (told.get(name) for name in ("revision", "branch", "changed"))
        if not isinstance(revision, str) or not _REVISION.fullmatch(revision):
            return None
        return cls(
            revision,
            branch if isinstance(branch, str) and branch else None,
            changed if isinstance(changed, bool) else None,
        )

    @property
    def short(self) -> str:
        return self.revision[:SHOWN]

    def __str__(self) -> str:
        return self.short + {True: " + changes", False: "", None: " (changes unknown)"}[self.changed]
