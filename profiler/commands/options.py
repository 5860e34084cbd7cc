"""Options of `compare` that several of its scenarios read."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ..errors import StallscopeError


def given(arguments: argparse.Namespace, names: Iterable[str]) -> str:
    """Those of the options that were asked for, as they are written; empty for none."""
    default = arguments.parser.get_default
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name))


def count(text: str) -> int:
    """A number of things, as argparse's `type`."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def cases(asked: str | None) -> tuple[str, ...]:
    """The names in `--cases A,B`; none where it was not given.

    Raises:
        StallscopeError: it was given, and names none.
    """
    named = tuple(filter(None, (each.strip() for each in (asked or "").split(","))))
    if asked is not None and not named:
        raise StallscopeError(
            f"--cases {asked!r} names no case. `stallscope scenarios --json` names them all; without --cases all of "
            "them run."
        )
    return named


def are(listed: str) -> str:
    """For what `given` listed."""
    return "are options" if "," in listed else "is an option"


def require_folder(json_file: str | None, made: Path | None = None) -> None:
    """The file for the result must have a folder now, not only when the runs are over; `made` will be there.

    Raises:
        StallscopeError: it has none.
    """
    if json_file in (None, "-"):
        return
    parent = Path(str(json_file)).absolute().parent
    if Path(str(json_file)).is_dir():
        raise StallscopeError(f"--json {json_file} is a folder. Name a file, or - for stdout.")
    if not parent.is_dir() and (made is None or parent != made.absolute()):
        raise StallscopeError(f"--json {json_file}: there is no folder {parent}. Make it, or name another.")
