"""Options of `compare` that several of its scenarios read."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ..errors import StallscopeError


def given(arguments: argparse.Namespace, names: Iterable[str]) -> str:
    """Those of the options that were asked for, as they are written; empty for none."""
    default = arguments.parser.get_default
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name))


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
