"""Options that were given, and are not of what was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def given(arguments: argparse.Namespace, names: Iterable[str]) -> str:
    """Those of the options that were asked for, as they are written; empty for none."""
    default = arguments.parser.get_default
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name))


def are(listed: str) -> str:
    """For what `given` listed."""
    return "are options" if "," in listed else "is an option"
