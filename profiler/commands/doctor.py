"""`whyidle doctor`: what can be measured on this machine and what cannot, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..report.documents.checks import doctor_document
from ..terminal.console import doing, show_result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="where recordings go (runs)")
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def run(arguments: argparse.Namespace) -> int:
    from ..capture.probes import look

    with doing("checking"):
        found = look(arguments.out)
    told = {"format": "whyidle-doctor", "version": 1, "checks": found}
    show_result(lambda: doctor_document(found), lambda: told, "-" if arguments.json else None)
    return 0
