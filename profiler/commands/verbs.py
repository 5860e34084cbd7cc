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

    name: str
    help: str
    example: str


VERBS = (
    Verb(
        "run",
        "Runs a training command unchanged, records it, and says what it waited for.",
        "whyidle run -- python train.py --epochs 3",
    ),
    Verb(
        "attach",
        "Observes a training that already runs, from outside, and says what it waits for.",
        "whyidle attach 12345 --duration 60",
    ),
    Verb(
        "compare",
        "Trains a scenario with each loader at each batch size, and explains the table.\n"
        "Named two or more recorded runs, it compares those: the same training at different batch sizes, say.",
        "whyidle compare ssd --device emulated:v100 --batch-sizes 8,16 --data data/voc",
    ),
    Verb(
        "roofline",
        "Measures how many samples a second this machine could make: each part of loading them alone, on one core\n"
        "and on all of them at once. Of a scenario's data, of a folder with JPEG files, or of those a recorded run "
        "read.",
        "whyidle roofline data/photos --size 224",
    ),
    Verb(
        "tune",
        "Finds loader settings for a training, and proves the gain by trial.",
        "whyidle tune --budget 90 -- python train.py",
    ),
    Verb(
        "report",
        "Shows what a recorded run waited for (no RUN: the newest on this machine).",
        "whyidle report runs/train-20260101-120000",
    ),
    Verb(
        "diff",
        "Explains the difference between two recorded runs by cause.",
        "whyidle diff runs/before runs/after",
    ),
    Verb(
        "check",
        "Holds a recorded run to limits, for CI: exit code 0 when it keeps them all, else 1.",
        "whyidle check runs/ci --max-stall 10 --max-regression 5 --against runs/main",
    ),
    Verb(
        "live",
        "Shows a recording in progress (no RUN: the newest on this machine, and the next ones after it), or plays one.",
        "whyidle live",
    ),
    Verb(
        "data",
        "Fetches or makes the data of a scenario, or checks data that are there.",
        "whyidle data ssd --out data/voc --images 400",
    ),
    Verb(
        "scenarios",
        "Lists the scenarios and the devices they run on.",
        "whyidle scenarios --json",
    ),
    Verb(
        "doctor",
        "Says what can be measured on this machine and what cannot, why, and how to change that.",
        "whyidle doctor",
    ),
)


def module_of(name: str) -> Any:
    """The module of a verb, imported."""
    # Threads that libraries start when they are imported take no signal: all are for the main thread.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.Signals[each] for each in _HANDLED})
    try:
        return importlib.import_module(f".{name}", __package__)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def example_of(name: str) -> str:
    """How a verb is used, for a message about how it was not."""
    return next(verb.example for verb in VERBS if verb.name == name)
