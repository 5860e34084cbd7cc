"""The folder of a tuning, read back."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RecordError, WhyidleError
from ..record.run import open_run
from ..report.contract import tuning as tune_json
from ..tune.search.state import RECORDING, TUNE_JSON, State
from ..tune.search.state import load as load_state
from ..tune.search.tuning import Tuning


@dataclass(frozen=True)
class Kept:
    """What a folder tells of its tuning."""

    tuning: Tuning
    json: dict[str, Any]
    """As `tune --json` wrote it."""
    notices: tuple[str, ...]
    """What was said of the data before anything was started."""
    environment: tuple[tuple[str, str], ...] = ()
    """(what, value): the command, when it began, and the host."""


def load(folder: Path) -> Kept:
    """
    Raises:
        RecordError: it cannot be read.
        WhyidleError: it has no result yet.
    """
    state = load_state(folder)
    if state.result is None:
        blocks = len(state.history)
        raise WhyidleError(
            f"{folder} holds a tuning without a result: it still runs, or it was cut short after {blocks} "
            f"block{'s' * (blocks != 1)}. `whyidle tune --resume {folder}` goes on with it."
        )
    try:
        notices = tuple(map(str, state.asked.get("notices") or ()))
        return Kept(tune_json.read(state.result), state.result, notices, tuple(_environment(folder, state)))
    except RecordError as error:
        raise RecordError(f"{folder / TUNE_JSON}: {error}") from error


def _environment(folder: Path, state: State) -> Iterator[tuple[str, str]]:
    """What is known of it: its first stretch may be gone, and an older one may tell less."""
    try:
        info = open_run(folder / RECORDING).info
    except WhyidleError:
        info = {}
    command, host, device = state.asked.get("command"), info.get("host") or {}, info.get("device") or {}
    told = {
        "command": shlex.join(map(str, command)) if isinstance(command, list) else "",
        "began": state.began,
        "device": device.get("title"),
        "host": ", ".join(str(host[name]) for name in ("name", "machine") if host.get(name)),
        "CPUs of the machine": host.get("cpus"),
        "Python": info.get("python"),
        "torch": info.get("torch"),
        "whyidle": info.get("whyidle"),
    }
    yield from ((what, str(value)) for what, value in told.items() if value not in (None, ""))
