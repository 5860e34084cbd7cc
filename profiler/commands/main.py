"""`stallscope VERB …`: finds the verb, turns a user's mistake into one message."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import StallscopeError
from . import attach, compare, data, live, report, run, scenarios, tune

VERBS = (run, attach, compare, tune, report, live, data, scenarios)
USAGE_ERROR = 2
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    """The parser of all verbs."""
    top = argparse.ArgumentParser(
        prog="stallscope",
        description="Says what the accelerator of a PyTorch training waits for, and why.",
        epilog="example: stallscope compare ssd --device emulated:v100 --batch-sizes 8,16",
    )
    top.add_argument("--version", action="version", version=f"stallscope {__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS:
        sub = verbs.add_parser(
            verb.NAME,
            help=verb.HELP,
            description=verb.HELP,
            epilog=f"example: {verb.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_arguments(sub)
        sub.set_defaults(run=verb.run, parser=sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where a verb says no, 2 for a user's mistake, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        # An output that cannot show a sign shows a question mark: no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    arguments, unknown = parser().parse_known_args(argv)
    if unknown:
        # argparse would show the usage of all verbs.
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return int(arguments.run(arguments))
    except StallscopeError as error:
        print(f"stallscope: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe (`| head`) went away: not an error, and nothing more can be written.
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        print(
            f"stallscope: {error.strerror or error}{f': {error.filename}' if error.filename else ''}.", file=sys.stderr
        )
        return USAGE_ERROR
    except Exception as error:
        said = _of_own_scenario(error)
        if said is None:
            raise
        print(f"stallscope: your scenario failed: {said}", file=sys.stderr)
        return USAGE_ERROR


def _of_own_scenario(error: Exception) -> str | None:
    """A mistake in a scenario's file of the user's own; `None` of any other."""
    registry = sys.modules.get("stallscope.scenarios.registry")
    return None if registry is None else registry.own_error(error)


def _discard_output() -> None:
    """Nothing more can be written to stdout; what is buffered must not raise again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
