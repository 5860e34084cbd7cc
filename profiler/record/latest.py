"""Which recording is the newest on this machine, so that a second terminal can find it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_dir

from .files import replacing


def _pointer() -> Path:
    return Path(user_state_dir("whyidle")) / "latest"


def note_latest(folder: Path) -> None:
    """Remember a run folder as the newest. Where that cannot be written nothing is lost but the convenience."""
    # RuntimeError: there is no home.
    with suppress(OSError, RuntimeError):
        pointer = _pointer()
        pointer.parent.mkdir(parents=True, exist_ok=True)
        with replacing(pointer) as file:
            file.write(os.fsencode(folder.resolve()))


def latest() -> Path | None:
    """Find the newest run folder, if it still exists."""
    folder = noted()
    with suppress(OSError):
        if folder is not None and folder.is_dir():
            return folder
    return None


def noted() -> Path | None:
    """Find the newest run folder, though it may be gone by now."""
    with suppress(OSError, ValueError, RuntimeError):
        return Path(os.fsdecode(_pointer().read_bytes()))
    return None
