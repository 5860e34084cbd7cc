"""Published logs of trainings: one CSV file each, one line an epoch.

A folder's place says on which machine (`cpu-pip/cpu8`), a file's name which training (`mnist_mlp_tensorflow.csv`).
Columns: `epoch` (from 0), `elapsed` (seconds, validation included), and, where known, `loss`, `acc`, `val_loss` and
`val_acc`.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError

FRAMEWORK = "_tensorflow"
"""What the study's file names end in."""

_KNOWN = {"epoch", "elapsed", "loss", "acc", "val_loss", "val_acc"}


@dataclass(frozen=True)
class LoggedEpoch:
    """One line of a log. `None`: not logged."""

    seconds: float
    loss: float | None
    """Loss on the training data."""
    accuracy: float | None
    """Accuracy on held-out data, 0..1."""


@dataclass(frozen=True)
class EpochLog:
    """The log of one training on one machine."""

    test: str
    """Name of the training."""
    machine: str
    """Its folder's path, from the folder that was named on."""
    epochs: tuple[LoggedEpoch, ...]


@dataclass(frozen=True)
class EpochLogs:
    """What a folder holds of them."""

    logs: tuple[EpochLog, ...]
    problems: tuple[str, ...]
    """What is bad, cut off or missing, a sentence each. A log named here is left out."""


def read(folder: Path) -> EpochLogs:
    """All logs in a folder and those below it.

    Raises:
        DataError: there is none that can be used.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} to read logs from.")
    files = sorted(folder.rglob("*.csv"), key=_natural)
    if not files:
        raise DataError(f"{folder} holds no logs: a log is a CSV file with columns epoch and elapsed.")
    logs, problems = [], []
    there = [(file.stem.removesuffix(FRAMEWORK), _machine(file, folder)) for file in files]
    for file, (test, machine) in zip(files, there, strict=True):
        try:
            logs.append(EpochLog(test, machine, _epochs(file)))
        except DataError as error:
            problems.append(str(error))
    if not logs:
        raise DataError(f"no log in {folder} can be used. The first: {problems[0]}")
    kept, cut = _without_cut(logs)
    return EpochLogs(kept, (*problems, *cut, *_missing(there)))


def _machine(file: Path, folder: Path) -> str:
    """The folder from the named one on; of a log right in that one, its own name."""
    below = file.parent.relative_to(folder)
    return str(below) if below.parts else folder.resolve().name


def _natural(file: Path) -> list[tuple[int, str]]:
    """Order in which `cpu8` comes before `cpu16`."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.split(r"(\d+)", str(file))]


def _epochs(file: Path) -> tuple[LoggedEpoch, ...]:
    """The epochs of one file.

    Raises:
        DataError: it is not such a log, or ends in the midst of a line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise DataError(f"{file} is not a log of epochs: {error}.") from error
    head = rows[0] if rows else []
    if not {"epoch", "elapsed"} <= set(head) or not set(head) <= _KNOWN:
        raise DataError(f"{file} is not a log of epochs: its first line is {','.join(head)!r}.")
    if not text.endswith("\n"):
        raise DataError(f"{file} is cut off: its last line does not end.")
    if len(rows) < 2:
        raise DataError(f"{file} has no epoch.")
    return tuple(_epoch(file, number, head, row) for number, row in enumerate(rows[1:]))


def _epoch(file: Path, number: int, head: list[str], row: list[str]) -> LoggedEpoch:
    if len(row) != len(head):
        raise DataError(f"{file}, line {number + 2}: {len(row)} values for {len(head)} columns.")
    values = dict(zip(head, row, strict=True))
    known = {key: _number(file, number, key, value) for key, value in values.items() if value}
    if known.get("epoch") != number:
        raise DataError(f"{file}, line {number + 2}: epoch is {values['epoch']!r}, but should be {number}.")
    if known.get("elapsed", 0) <= 0:
        raise DataError(f"{file}, line {number + 2}: elapsed is {values['elapsed']!r}, not a time.")
    return LoggedEpoch(known["elapsed"], known.get("loss"), known.get("val_acc"))


def _number(file: Path, number: int, key: str, value: str) -> float:
    try:
        result = float(value)
    except ValueError:
        result = math.nan
    if not math.isfinite(result):
        raise DataError(f"{file}, line {number + 2}: {key} is {value!r}, not a number.")
    return result


def _without_cut(logs: list[EpochLog]) -> tuple[tuple[EpochLog, ...], list[str]]:
    """(logs with as many epochs as the longest of the same training, what is said of the others)."""
    longest: dict[str, int] = {}
    for log in logs:
        longest[log.test] = max(longest.get(log.test, 0), len(log.epochs))
    kept = tuple(log for log in logs if len(log.epochs) == longest[log.test])
    said = [
        f"{log.test} on {log.machine} is cut off: {len(log.epochs)} epochs of {longest[log.test]}."
        for log in logs
        if log not in kept
    ]
    return kept, said


def _missing(there: Sequence[tuple[str, str]]) -> list[str]:
    """Trainings that ran on some machines only."""
    tests, machines = sorted({test for test, _ in there}), sorted({machine for _, machine in there})
    return [f"no log of {test} on {machine}." for test in tests for machine in machines if (test, machine) not in there]
