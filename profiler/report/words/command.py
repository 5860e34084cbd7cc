"""A command in a line: short where nothing is lost."""

from __future__ import annotations

from typing import Any

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
