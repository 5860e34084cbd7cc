"""py-spy's output in speedscope's format: JSON, so that no name of a function, file or process can tear it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...record.attached import Frame, Stack, Thread

_NAME = re.compile(r'Process (\d+) Thread (0x[0-9a-fA-F]+|\d+)(?: "(.*)")?\s*\Z', re.DOTALL)
MOST_TEXT = 300
"""Characters kept of a name or a line."""

TextOf = Callable[[int, str, int], str]
"""(process id, file, line) → the source line."""


def read_output(path: Path, text_of: TextOf) -> list[Thread] | None:
    """The threads of one output of py-spy; `None` where it is missing, empty or torn."""
    try:
        return parse(json.loads(path.read_bytes()), text_of)
    except (OSError, ValueError, RecursionError):
        return None


def parse(content: Any, text_of: TextOf) -> list[Thread] | None:
    """The same of what was read. What makes no sense within it is left out."""
    try:
        shared, profiles = content["shared"]["frames"], content["profiles"]
        frames = [_frame(each) for each in shared]
    except (LookupError, TypeError):
        return None
    if not isinstance(profiles, list):
        return None
    threads = []
    for profile in profiles:
        thread = _thread(profile, frames, text_of)
        if thread is not None and thread.stacks:
            threads.append(thread)
    return threads


def merge(into: dict[tuple[int, int], Thread], threads: list[Thread]) -> None:
    """Add threads to those seen before. A thread is known by its process and its own id."""
    for thread in threads:
        known = into.setdefault((thread.pid, thread.tid), Thread(thread.pid, thread.tid, thread.name))
        known.stacks.update(thread.stacks)


def _thread(profile: Any, frames: list[Frame | None], text_of: TextOf) -> Thread | None:
    if not isinstance(profile, dict) or not isinstance(profile.get("samples"), list):
        return None
    found = _NAME.match(str(profile.get("name")))
    if found is None:
        return None
    pid, tid, name = int(found[1]), int(found[2], 0), (found[3] or "")[:MOST_TEXT]
    raw: Counter[tuple[int, ...]] = Counter()
    for sample in profile["samples"]:
        if isinstance(sample, list) and all(isinstance(i, int) and 0 <= i < len(frames) for i in sample):
            raw[tuple(sample)] += 1
    stacks: Counter[Stack] = Counter()
    for places, count in raw.items():
        # Frames without a file are py-spy's headings: "process 12: …", "thread (12): …".
        stack = [frame for place in places if (frame := frames[place]) is not None]
        if stack:
            leaf = stack[-1]
            text = text_of(pid, leaf.file, leaf.line)[:MOST_TEXT]
            stacks[(*stack[:-1], Frame(leaf.name, leaf.file, leaf.line, text))] += count
    return Thread(pid, tid, name, stacks)


def _frame(content: Any) -> Frame | None:
    if not isinstance(content, dict) or not content.get("file"):
        return None
    line = content.get("line")
    return Frame(
        str(content.get("name", ""))[:MOST_TEXT],
        str(content["file"])[:4096],
        line if isinstance(line, int) and 0 <= line < 2**31 else 0,
    )
