"""The file that `--patch` names."""

from __future__ import annotations

from pathlib import Path

from ...errors import WhyidleError
from .patch import Patch


def require_new(path: Path | None) -> None:
    """
    Raises:
        WhyidleError: a patch could not be written there, or something is there already.
    """
    if path is None:
        return
    if path.exists():
        raise WhyidleError(f"--patch {path} exists. Name a new file, or move that one away.")
    if not path.absolute().parent.is_dir():
        raise WhyidleError(f"--patch {path}: there is no folder {path.absolute().parent}. Make it, or name another.")


def write_patch(patch: Patch | None, path: Path) -> str:
    """What is to be said of it, as a sentence.

    Raises:
        WhyidleError: it cannot be written.
    """
    if patch is None:
        return f"No patch was written to {path}: there is nothing to change."
    if not patch.diff:
        other = "the change is one of the command line" if patch.command else "the source could not be edited"
        return f"No patch was written to {path}: {other}."
    try:
        with path.open("x", newline="") as file:
            file.write(patch.diff)
    except OSError as error:
        raise WhyidleError(f"--patch {path} cannot be written: {error.strerror}.") from error
    return f"The patch is in {path}. To apply it: patch -p1 -d {patch.folder} < {path}"
