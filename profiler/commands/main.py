"""`whyidle VERB …`: finds the verb, turns a user's mistake into one message."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..errors import WhyidleError
from ..record.files import no_commands, one_line
from .options import meant
from .verbs import VERBS, module_of

ENDS_WITH_COMMAND = ("run", "tune")
"""Verbs that take a command after `--`."""
USAGE_ERROR = 2
INTERRUPTED = 130
READ = ("report", "diff", "check", "live")
"""Verbs that do nothing but read recordings."""
_PACKAGE = f"{Path(__file__).parents[1]}/"
DEBUG = "WHYIDLE_DEBUG"
"""Environment variable: set, what a recording makes raise shows where."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """With what may have been meant, where a verb is misspelt: argparse lists all."""
        given = re.match(r"argument VERB: invalid choice: '(.*?)'", message)
        if given is not None:
            message = f"unknown verb {given[1]!r}.{meant(given[1], VERBS, 0.6)}"
            message += f" Verbs: {', '.join(VERBS)}"
        super().error(_said(message))


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all verbs. `only`: the one whose options will be asked for; `None`: all of them may be."""
    top = _Parser(
        prog="whyidle",
        description="Says what the accelerator of a PyTorch training waits for, and why.",
        epilog="example: whyidle run -- python train.py",
    )
    top.add_argument("--version", action="version", version=f"whyidle {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=verb.help,
            description=verb.help,
            epilog=f"example: {verb.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if only not in (None, name):
            continue
        module = module_of(name)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run, parser=sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where a verb says no, 2 for a user's mistake, 130 after Ctrl-C."""
    if sys.stdout is None:
        # Closed by who started us (`>&-`).
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # An output that cannot show a sign shows a question mark: no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        verbs = (f"  {n:10} {verb.help.partition(chr(10))[0]}\n{'':13}{verb.example}\n" for n, verb in VERBS.items())
        print(f"{parser('').description}\n\n{''.join(verbs)}\n`whyidle VERB --help` explains a verb.")
        return 0
    # What stands before the verb is an option without a value.
    verb = next((word for word in words if not word.startswith("-")), "")
    if words[:1] == ["run"]:
        words[1:] = module_of("run").spelled_out(words[1:])
    arguments, unknown = parser(verb).parse_known_args(words)
    if unknown:
        # argparse would show the usage of all verbs.
        known = [option for action in arguments.parser._actions for option in action.option_strings]
        near = "".join(meant(option.partition("=")[0], known) for option in unknown if option.startswith("--"))
        near += " Options of the training go after --." if arguments.verb in ENDS_WITH_COMMAND else ""
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}{near and '.'}{near}")
    if arguments.verb in READ and not sys.warnoptions:
        # What numpy thinks of damaged figures is nothing that a user can do anything about.
        warnings.simplefilter("ignore")
    try:
        return int(arguments.run(arguments))
    except WhyidleError as error:
        print(f"whyidle: {_said(error)}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (`| head`) went away: not an error, and nothing more can be written.
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        named = f": {error.filename}" if error.filename else ""
        print(f"whyidle: {_said(f'{error.strerror or error}{named}')}.", file=sys.stderr)
        return USAGE_ERROR
    except Exception as error:
        registry = sys.modules.get("whyidle.scenarios.registry")
        own = None if registry is None else registry.own_error(error)
        said = _of_a_recording(error, arguments, words) if own is None else f"your scenario failed: {own}"
        if said is None:
            raise
        print(f"whyidle: {_said(said)}", file=sys.stderr)
        return USAGE_ERROR


def _said(message: object) -> str:
    """With nothing that acts on a terminal, or on a CI service that reads logs. A name of the user's may hold a line
    break; those of ours begin an indented line."""
    return no_commands(one_line(str(message)))


def _of_a_recording(error: Exception, arguments: argparse.Namespace, words: Sequence[str]) -> str | None:
    """That recordings are damaged, which a command read; `None` of one that reads none, or to show where it failed."""
    from ..record.run import is_recording

    folders = [word for word in words if is_recording(word) and word != getattr(arguments, "output", None)]
    reads = arguments.verb in READ or (arguments.verb in ("compare", "roofline") and folders)
    if not reads or DEBUG in os.environ:
        return None
    *_, at = (frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_PACKAGE))
    return (
        f"{' or '.join(folders) or 'the recording'} is damaged ({type(error).__name__}: {error!s:.200}, at "
        f"{at.filename.removeprefix(_PACKAGE)}:{at.lineno}). If it is as whyidle wrote it, that is a defect of "
        f"whyidle's: {DEBUG}=1 shows more."
    )


def _discard_output() -> None:
    """Nothing more can be written to stdout; what is buffered must not raise again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
