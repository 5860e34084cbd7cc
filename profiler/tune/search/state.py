"""A tuning in its folder: `tune.json`, written anew after every block, from which it can be resumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import RecordError
from ...record.files import read_json, write_json
from .history import Entry

FORMAT = "whyidle-tuning"
VERSION = 1
TUNE_JSON = "tune.json"
RECORDING = "first-stretch"
"""Run folder, within the tuning's."""


@dataclass
class State:
    """What is kept of a tuning."""

    asked: dict[str, Any]
    """What is tuned, as the command was given it."""
    began: str
    options: dict[str, Any] = field(default_factory=dict)
    """What else it was given that holds for later sittings too."""
    ready: dict[str, Any] | None = None
    """What the training said of itself when it was taken over."""
    history: list[Entry] = field(default_factory=list)
    steps: int = 0
    starts: int = 0
    seconds: float = 0.0
    """From begin to end of each sitting, summed up."""
    sittings: int = 0
    """Begun so far."""
    result: dict[str, Any] | None = None
    """As `tune --json` writes it, once there is one."""

    def save(self, folder: Path) -> None:
        """
        Raises:
            RecordError: the folder cannot be written.
        """
        content = {"format": FORMAT, "version": VERSION} | asdict(self)
        try:
            write_json(folder / TUNE_JSON, content | {"history": [entry.to_json() for entry in self.history]})
        except OSError as error:
            raise RecordError(f"cannot write {folder}: {error.strerror}.") from error


def is_tuning(folder: Path) -> bool:
    """Whether the folder holds a tuning (of any version)."""
    return (folder / TUNE_JSON).is_file()


def load(folder: Path) -> State:
    """
    Raises:
        RecordError: no tuning there, not readable, or of an unknown version.
    """
    path = folder / TUNE_JSON
    if not path.is_file():
        raise RecordError(f"{folder} holds no tuning: it has no {TUNE_JSON}. Name a folder that `whyidle tune` wrote.")
    try:
        content = read_json(path)
        if content.pop("format") != FORMAT:
            raise ValueError("another format")
        version = content.pop("version")
        if version != VERSION:
            raise RecordError(f"{path} has version {version}; this whyidle reads version {VERSION}.")
        history = [Entry.from_json(each) for each in content.pop("history")]
        return State(**content, history=history)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} is not a readable tuning: {error}.") from error
