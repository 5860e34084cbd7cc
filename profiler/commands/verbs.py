"""The verbs of the command line. Each is a module of this folder, imported when it is asked for: what all of them need
takes longer to import than most of them take.

A module of a verb has `add_arguments(parser)` and `run(arguments)`, which gives the exit code.
"""

from __future__ import annotations

import importlib
import signal
from dataclasses import dataclass
from typing import Any

_HANDLED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGWINCH", "SIGCONT")
"""What `run` passes on, or acts on."""


@dataclass(frozen=True)
class Verb:
    """What is said of a verb without its module."""

    help: str
    example: str


VERBS = {
    "run": Verb(
        "Records a training command, unchanged, and says what it waited for.",
        "whyidle run -- python train.py --epochs 3",
    ),
    "attach": Verb(
        "Observes a training that is already running and says what it waits for.",
        "whyidle attach 12345 --duration 60",
    ),
    "compare": Verb(
        "Trains a scenario with each loader and batch size, and explains the table.\n"
        "Given two or more recorded runs, it compares those: one training at several batch sizes, for example.",
        "whyidle compare ssd --device emulated:v100 --batch-sizes 8,16 --data data/voc",
    ),
    "roofline": Verb(
        "Measures how many samples per second this machine could prepare.\n"
        "Each part of loading runs alone, on one core and on all, with a scenario's data, a folder of JPEG files, or "
        "the files that a recorded run read.",
        "whyidle roofline data/photos --size 224",
    ),
    "tune": Verb(
        "Finds loader settings for a training and proves the gain by trial.",
        "whyidle tune --budget 90 -- python train.py",
    ),
    "report": Verb(
        "Shows what a recorded run waited for (no RUN: the newest).",
        "whyidle report runs/train-20260101-120000",
    ),
    "diff": Verb(
        "Explains the difference in speed between two recorded runs.",
        "whyidle diff runs/before runs/after",
    ),
    "check": Verb(
        "Checks a recorded run against limits, for CI: exit code 0 if it keeps them all, else 1.",
        "whyidle check runs/ci --max-stall 10 --max-regression 5 --against runs/main",
    ),
    "live": Verb(
        "Shows a recording in progress (no RUN: the newest, and those that follow).",
        "whyidle live",
    ),
    "data": Verb(
        "Downloads or composes the data of a scenario, or checks data you have.",
        "whyidle data ssd --out data/voc --images 400",
    ),
    "scenarios": Verb("Lists scenarios and devices.", "whyidle scenarios --json"),
    "doctor": Verb(
        "Says what can be measured on this machine, what cannot, and how to change that.",
        "whyidle doctor",
    ),
}
"""In the order in which they are listed."""


def module_of(name: str) -> Any:
    """The module of a verb, imported."""
    # Threads that libraries start when they are imported take no signal: all are for the main thread.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.Signals[each] for each in _HANDLED})
    try:
        return importlib.import_module(f".{name}", __package__)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
