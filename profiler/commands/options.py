"""Options and their mistakes, as several commands read and say them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import WhyidleError
from ..record.files import plain
from ..record.latest import latest, noted


def newest() -> Path:
    """The run folder that was begun last on this machine; said on stderr, since it may be anyone's.

    Raises:
        WhyidleError: there is none.
    """
    folder = latest()
    if folder is None:
        raise nothing_newest("")
    print(f"whyidle: the newest recording: {plain(str(folder))}", file=sys.stderr)
    return folder


def nothing_newest(or_else: str) -> WhyidleError:
    """That no recording is the newest; `or_else`: what else could be done, with its comma."""
    gone = noted()
    if gone is not None:
        return WhyidleError(
            f"the newest recording, {gone}, is not there any more. Name the folder of another{or_else}."
        )
    return WhyidleError(
        "no recording was made on this machine yet. Start one with `whyidle run -- python train.py`, or name its "
        f"folder{or_else}."
    )


def add_full(parser: argparse.ArgumentParser) -> None:
    """`--full`, of commands whose words fit one screen without it."""
    parser.add_argument("--full", action="store_true", help="print everything, not only one screen")


def refuse_given(arguments: argparse.Namespace, names: Iterable[str], whose: str) -> None:
    """Refuse options that are of no use here.

    Raises:
        WhyidleError: some of `names` were asked for, which are options of `whose`.
    """
    default = arguments.parser.get_default
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name)]
    if given:
        are = "are options" if len(given) > 1 else "is an option"
        raise WhyidleError(f"{', '.join(given)} {are} of {whose}. Leave it out.")


def number(
    what: str, least: float, most: float, make: Callable[[str], float] = float, above: bool = False
) -> Callable[[str], Any]:
    """Give an argparse `type`: a number from `least`, or `above` it, to `most`. `what`: said of any other text."""

    def read(text: str) -> float:
        try:
            value = make(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (above and value == least):
            raise argparse.ArgumentTypeError(f"{text!r} {what}")
        return value

    return read


count = number("is not a whole number from 1 on", 1, math.inf, int)
seconds = number("is not a number of seconds above 0", 0, sys.float_info.max, above=True)


def names(text: str) -> tuple[str, ...]:
    """`A,B`, each once, as argparse's `type`."""
    return tuple(dict.fromkeys(name for name in text.split(",") if name))


def meant(given: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    """` Did you mean …?` of what is nearest to a misspelt name; empty where nothing is near."""
    near = get_close_matches(given, list(known), n=1, cutoff=cutoff)
    return f" Did you mean {near[0]}?" if near else ""


def require_folder(file: str | None, made: Path | None = None, option: str = "--json") -> None:
    """The file for the result must have a folder now, not only when the runs are over; `made` will be there.

    Raises:
        WhyidleError: it has none.
    """
    if file in (None, "-"):
        return
    parent = Path(str(file)).absolute().parent
    if Path(str(file)).is_dir():
        raise WhyidleError(f"{option} {file} is a folder. Name a file{', or - for stdout' * (option == '--json')}.")
    if not parent.is_dir() and (made is None or parent != made.absolute()):
        raise WhyidleError(f"{option} {file}: there is no folder {parent}. Make it, or name another.")
