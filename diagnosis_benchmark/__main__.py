"""`whyidle-bench PART`: measures, and prints tables in Markdown."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from whyidle.commands import options
from whyidle.errors import WhyidleError

from .rivals import compare_tools
from .tables import batch_sizes, faults, promises, user_code

PARTS = {
    "faults": faults,
    "batch-sizes": batch_sizes,
    "rivals": compare_tools,
    "user-code": user_code,
    "promises": promises,
}


def parser() -> argparse.ArgumentParser:
    """The parser of all parts; each puts what only it takes beside what all take."""
    top = argparse.ArgumentParser(
        prog="whyidle-bench",
        description="How often a diagnosis is right about trainings whose cause is known: whyidle's, and other tools'.",
        epilog="example: whyidle-bench faults --quick",
    )
    parts = top.add_subparsers(dest="part", metavar="PART", required=True)
    for name, part in PARTS.items():
        sub = parts.add_parser(
            name,
            help=part.HELP,
            description=part.__doc__,
            epilog=f"example: whyidle-bench {name} {part.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        part.add_arguments(sub)
        sub.add_argument("--quick", action="store_true", help=part.QUICK)
        sub.add_argument("--seed", type=int, default=0, help="of the order in which runs take turns (default: 0)")
        where = sub.add_mutually_exclusive_group()
        where.add_argument("--out", type=Path, metavar="FOLDER", help="keep all runs here (default: they are removed)")
        where.add_argument(
            "--from", type=Path, dest="recorded", metavar="FOLDER", help="run nothing: the tables of what --out kept"
        )
        sub.set_defaults(run=part.run, parser=sub)
    return top


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, 1 where nothing could be measured, 2 for a user's mistake, 130 after Ctrl-C."""
    # As Ctrl-C does, so that what a run has started is ended with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parser().parse_args(words)
    try:
        if getattr(arguments, "json", None) is not None:
            options.require_folder(str(arguments.json))
        return arguments.run(arguments) or 0
    except KeyboardInterrupt:
        return 130
    except WhyidleError as error:
        print(f"whyidle-bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
