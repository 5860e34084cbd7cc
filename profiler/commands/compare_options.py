"""The options of `compare`: which of them each kind of comparison takes, and what is asked for with them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from ..errors import WhyidleError
from ..matrix.experiment import Request
from . import compare_runs, cost_options, options, plot

RUNS, LOGS, TRAININGS = "runs", "logs", "trainings"
"""The kinds of comparisons: of runs and logs that are there, and of trainings that are started."""

_PRINTED = {"json", "no_live", "full"}
_PAGE_AND_PICTURES = {"html", *plot.NAMES}


@dataclass(frozen=True)
class Taken:
    """The options that one kind of comparison takes, by their names among the arguments."""

    names: set[str]
    others_are: str
    """What the other options belong to, for the message that refuses one; `{what}` is what is compared."""


TAKEN: Mapping[str, Taken] = {
    TRAININGS: Taken(
        {field.name for field in fields(Request)} - {"scenario"} | _PRINTED | _PAGE_AND_PICTURES | cost_options.NAMES,
        "another kind of comparison than {what}.",
    ),
    LOGS: Taken({"logs", "relative_to", "target", "prices"} | _PRINTED, "trainings: --logs starts none. Leave it out."),
    RUNS: Taken(
        _PAGE_AND_PICTURES | _PRINTED,
        "trainings that `compare` starts; these runs are already recorded. Leave it out.",
    ),
}
_NO_OPTIONS = {"verb", "run", "parser", "what"}
"""Among the arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "whyidle compare [options] SCENARIO\n       whyidle compare [--json FILE] [--plot FILE] [--html FILE] RUN RUN …"
    )
    parser.add_argument(
        "what",
        nargs="+",
        metavar="SCENARIO|RUN",
        help="name of a scenario (`whyidle scenarios` lists them), or folders of two or more recorded runs",
    )
    parser.add_argument("--experiment", metavar="NAME", help="experiment of the scenario (default: its first)")
    parser.add_argument("--as-published", action="store_true", help="use the study's own sizes, however long they take")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of data (default: the scenario's own)")
    parser.add_argument(
        "--device",
        type=options.names,
        default=("auto",),
        metavar="A,B",
        help="devices: auto, cpu, cuda, emulated:NAME (default: auto)",
    )
    parser.add_argument(
        "--net", type=options.names, metavar="A,B", help="nets (default: the experiment's; on the CPU a small one)"
    )
    parser.add_argument("--pipelines", type=options.names, metavar="A,B", help="loaders (default: the experiment's)")
    parser.add_argument("--batch-sizes", type=_counts, metavar="N,N", help="per rank (default: the experiment's)")
    parser.add_argument("--feed", type=_feeds, metavar="A,B", help="real, synthetic (always one batch), loader-only")
    parser.add_argument(
        "--store", type=options.names, metavar="A,B", help="how samples are stored, where there is a choice"
    )
    parser.add_argument("--ranks", type=_counts, metavar="N,N", help="processes that train together, one device each")
    parser.add_argument(
        "--interconnect", type=options.names, metavar="A,B", help="link over which emulated ranks exchange gradients"
    )
    parser.add_argument("--threads", type=_counts, metavar="N,N", help="CPU threads of the computation")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument("--epochs", type=options.count, metavar="N", help="passes over the data per run")
    stop.add_argument("--iterations", type=options.count, metavar="N", help="batches per run, whatever their size")
    parser.add_argument("--repeats", type=options.count, metavar="N", help="runs per cell (default: the experiment's)")
    parser.add_argument(
        "--budget", type=options.seconds, metavar="SECONDS", help="start only runs that still fit into this time"
    )
    parser.add_argument(
        "--first", type=options.names, metavar="A,B", help="loaders that run all their rounds before the others"
    )
    parser.add_argument("--workers", type=options.count, metavar="N", help="a loader (default: the CPUs of this job)")
    parser.add_argument(
        "--prefetch", type=options.count, default=2, metavar="N", help="batches ahead per worker (default: 2)"
    )
    parser.add_argument("--limit", type=options.count, metavar="N", help="use only N samples")
    parser.add_argument("--no-augment", action="store_true", help="only decode and resize")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="of order and augmentation (default: 0)")
    parser.add_argument(
        "--roofline",
        action=argparse.BooleanOptionalAction,
        help="measure between rounds how fast this machine could prepare samples (default: with several loaders)",
    )
    options.add_full(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    plot.add_arguments(parser)
    plot.add_page_argument(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the runs (default: runs/…)")
    parser.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")
    cost_options.add_arguments(parser, logs=True)


def kind_of(arguments: argparse.Namespace) -> str:
    """Which of `TAKEN` the command is."""
    if compare_runs.are_runs(arguments.what):
        return RUNS
    return LOGS if arguments.logs else TRAININGS


def require_taken(arguments: argparse.Namespace, kind: str) -> None:
    """
    Raises:
        WhyidleError: an option that this kind of comparison does not take was given.
    """
    taken = TAKEN[kind]
    if others := options.given(arguments, (n for n in vars(arguments) if n not in taken.names | _NO_OPTIONS)):
        raise WhyidleError(f"{others} {options.are(others)} of {taken.others_are.format(what=arguments.what[0])}")


def of_trainings(arguments: argparse.Namespace) -> Request:
    names = [field.name for field in fields(Request) if field.name != "scenario"]
    return Request(scenario=arguments.what[0], **{name: getattr(arguments, name) for name in names})


def _feeds(text: str) -> tuple[str, ...]:
    from whyidle.scenarios.variant import FEEDS

    named = options.names(text)
    if unknown := [name for name in named if name not in FEEDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(FEEDS)}")
    return named


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(options.count(part) for part in text.split(",")))
