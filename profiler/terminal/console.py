"""How commands write: to a terminal, to a pipe, with or without colour."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from ..errors import WhyidleError
from ..record.files import no_commands, write_text
from ..record.run import refuse_recorded
from ..report.contract.encode import Content, builtins
from ..report.document import Document
from ..report.export.files import STDOUT, opened
from ..report.render import print_document

PLAIN_WIDTH = 100
"""Where the output is not a terminal."""
LITERAL: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
"""What is printed was recorded, or is a path: `[red]` and `:smile:` in it are just that."""


def console(stderr: bool = False) -> Console:
    """Colours and width of the terminal; plain text of a fixed width otherwise."""
    probe = Console(stderr=stderr, **LITERAL)
    return probe if probe.is_terminal else Console(stderr=stderr, width=PLAIN_WIDTH, soft_wrap=False, **LITERAL)


def doing(what: str = "reading") -> AbstractContextManager[object]:
    """Say on a terminal what goes on within the block, which may take seconds."""
    target = console(stderr=True)
    return target.status(what, spinner="line") if target.file.isatty() else nullcontext()


def show(draw: Callable[[Console], None], target: Console) -> None:
    """Let `draw` print, with nothing that a CI service would take for a command to it. Into a pipe or file without the
    blanks that fill a terminal's lines."""
    with target.capture() as captured:
        draw(target)
    text = no_commands(captured.get())
    if not target.is_terminal:
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    target.file.write(text)
    target.file.flush()


def show_document(document: Document, target: Console, full: bool = True) -> None:
    """Print it in words, as `show` does; all of it or the short version."""
    show(partial(print_document, document, full=full), target)


def shown_again(folder: Path, full: bool) -> str:
    """How to see more of what was recorded into a folder, in a line."""
    more = f"{folder} {'' if full else '[--full] '}[--format html]"
    return f"Recorded in {folder}. More: whyidle report {more}. After a change: whyidle diff {folder} NEW"


def show_in(output: str | None, document: Document, full: bool = True) -> None:
    """As `show_document`, into a file that is named; none, or `-`, is the terminal.

    Raises:
        WhyidleError: it cannot be written.
    """
    if output in (None, STDOUT):
        show_document(document, console(), full)
        return
    with opened(output) as file:
        show_document(document, Console(file=file, width=PLAIN_WIDTH, **LITERAL), full)


def show_result(
    document: Callable[[], Document], content: Callable[[], Content], json_file: str | None, full: bool = True
) -> None:
    """Print a result, and write its JSON where that was asked for (`-`: instead)."""
    if json_file != "-":
        show_document(document(), console(), full)
    if json_file:
        write_json(content(), json_file)


def write_json(content: Content, target: str) -> None:
    """To a file, or to stdout for `-`."""
    with opened(target) as file:
        file.write(json_text(content) + "\n")


def write_file(
    text: str, target: Path, with_option: str = "", only: tuple[str, bytes] | None = None, named: bool = True
) -> None:
    """Into a file, at once; through a link only where the user has `named` it. `with_option` says how another is named,
    such as ` with -o`; `only` is as `refuse_recorded` takes it.

    Raises:
        WhyidleError: it cannot be written; a file that was there before still is.
    """
    try:
        refuse_recorded(target, only, with_option)
        write_text(target, text, named)
    except OSError as error:
        raise WhyidleError(f"cannot write {target}: {error.strerror}. Name another file{with_option}.") from error


def json_text(content: Content) -> str:
    return json.dumps(builtins(content), indent=1, allow_nan=False)
