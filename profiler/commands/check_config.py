"""What `whyidle check` holds a run to: `[tool.whyidle.check]` of a `pyproject.toml`, and flags, which win."""

from __future__ import annotations

import argparse
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, ValidationError, convert

from ..analyse.causes.table import CODES, FAMILIES
from ..analyse.diff.limits import SEVERITIES, Limits
from ..errors import WhyidleError
from .options import meant

PYPROJECT = "pyproject.toml"
TABLE = "[tool.whyidle.check]"

PERCENTAGES = {
    "max-stall": "exposed wait: the device idles for input, copies, synchronising calls or other work of the loop",
    "max-input": "its part that waits for the loader",
    "max-copy": "its part that waits for copies",
    "max-sync": "its part that waits for synchronising calls",
    "max-host": "its part that waits for other work of the training loop",
    "max-boundary": "time outside the steps: validation, checkpoints",
    "max-regression": "throughput lost against --against; a result that noise leaves unclear fails",
    "min-utilisation": "the device's utilisation counter",
    "min-busy": "time in which the device computes",
    "min-au": "accelerator utilisation as MLPerf Storage counts it",
    "max-overhead": "time in whyidle's own hooks",
}
NUMBERS = {
    "min-samples-per-s": "samples per second",
    "max-dropped": "records that could not be stored",
    "min-steps": "steps after the warm-up (default: 30; fewer support no verdict)",
}
SWITCHES = {
    "allow-missing": "pass limits on what was not measured (they fail otherwise)",
    "allow-short": "pass a run with too few steps, or without a verdict",
    "allow-unfinished": "pass a run that has not ended, failed, or lacks a rank of its job",
    "allow-noisy": "pass a regression when noise leaves unclear whether it keeps the limit",
}
_PERCENTAGE = Annotated[float, Meta(ge=0, le=100)]
_NUMBER = Annotated[float, Meta(ge=0, le=1e18)]
_RUNS = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]
KEYS: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(PERCENTAGES, (_PERCENTAGE, "is not a number from 0 to 100")),
    **dict.fromkeys(NUMBERS, (_NUMBER, "is not a number of 0 or more")),
    "forbid": (list[str], "is not a list of causes"),
    "max-severity": (Literal["none", "minor", "major"], f"is not one of {', '.join(SEVERITIES[:-1])}"),
    "against": (_RUNS, "names no run"),
    "noise": (Annotated[float, Meta(gt=0, lt=100)], "is not a percentage above 0 and below 100, such as 1.5"),
    **dict.fromkeys(SWITCHES, (bool, "is neither true nor false")),
}
"""Key → (type of its value, what is said of any other)."""


@dataclass(frozen=True)
class Asked:
    limits: Limits
    against: tuple[Path, ...]
    noise: float | None
    allow_missing: bool
    allow_short: bool
    allow_unfinished: bool
    allow_noisy: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, each of which is a key of the table as well."""
    for key, meaning in PERCENTAGES.items():
        parser.add_argument(f"--{key}", metavar="PCT", type=float, help=meaning)
    for key, meaning in NUMBERS.items():
        parser.add_argument(f"--{key}", metavar="N", type=float, help=meaning)
    parser.add_argument(
        "--max-severity", metavar="WORD", help=f"worst severity of a cause: {', '.join(SEVERITIES[:-1])}"
    )
    parser.add_argument("--forbid", metavar="CAUSES", help="causes that must not occur, such as input.serial,copy")
    parser.add_argument(
        "--against",
        metavar="RUN",
        action="append",
        help="run to compare with (give it again for repeats), or a report saved by `whyidle report --json`",
    )
    parser.add_argument(
        "--noise",
        metavar="PCT",
        type=float,
        help="how much runs of one setting differ on this machine, if you know it",
    )
    for key, meaning in SWITCHES.items():
        parser.add_argument(f"--{key}", action="store_true", default=None, help=meaning)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help=f"limits (default: the nearest {PYPROJECT} above this folder)"
    )


def asked(arguments: argparse.Namespace) -> Asked:
    """Flags over the table.

    Raises:
        WhyidleError: something asked makes no sense, or nothing is asked.
    """
    file = arguments.config or _nearest()
    table = {} if file is None else _table(file, required=arguments.config is not None)
    given = {key: value for key in KEYS if (value := getattr(arguments, key.replace("-", "_"))) is not None}
    where = {key: f"--{key}" if key in given else f"{key} in {file}" for key in (*table, *given)}
    values = {key.replace("-", "_"): _value(key, value, where[key]) for key, value in (table | given).items()}
    folder = Path() if file is None or "against" in given else file.parent
    against = tuple(folder / run for run in values.pop("against", ()))
    if bool(against) != ("max_regression" in values):
        there, missing = ("--against", "--max-regression PCT") if against else ("--max-regression", "--against RUN")
        raise WhyidleError(f"{there} needs {missing}: how much slower may a run be, and than which?")
    noise = values.pop("noise", None)
    switches = {name: values.pop(name, False) for name in (key.replace("-", "_") for key in SWITCHES)}
    limits = Limits(**values)
    if not limits.asked:
        raise WhyidleError(
            "nothing to check: no limit is set. Set one, as in `whyidle check RUN --max-stall 10`, or write it into "
            f"{PYPROJECT}:\n  {TABLE}\n  max-stall = 10"
        )
    return Asked(limits, against, None if noise is None else noise / 100, **switches)


def _value(key: str, value: Any, where: str) -> Any:
    type_, otherwise = KEYS[key]
    if isinstance(value, str) and key in ("forbid", "against"):
        value = value.split(",") if key == "forbid" else [value]
    try:
        found = convert(value, type_)
    except ValidationError:
        found = math.nan
    if found != found:  # NaN is within every limit.
        raise WhyidleError(f"{where}: {value!r} {otherwise}.")
    return _causes(found, where) if key == "forbid" else found


def _nearest() -> Path | None:
    here = Path.cwd()
    return next((folder / PYPROJECT for folder in (here, *here.parents) if (folder / PYPROJECT).is_file()), None)


def _table(file: Path, required: bool) -> dict[str, Any]:
    try:
        content: Any = tomllib.loads(file.read_text())
    except OSError as error:
        raise WhyidleError(f"cannot read {file}: {error.strerror}. Name another file with --config.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WhyidleError(f"{file} is not TOML: {error}.") from error
    for name in ("tool", "whyidle", "check"):
        content = content.get(name) if isinstance(content, dict) else None
        if content is None:
            if required:
                raise WhyidleError(f"{file} has no {TABLE}. Add it, or leave --config out.")
            return {}
    if not isinstance(content, dict):
        raise WhyidleError(f"{TABLE} in {file} is not a table.")
    strange = [key for key in content if key not in KEYS]
    if strange:
        raise WhyidleError(
            f"{TABLE} in {file}: {', '.join(map(repr, strange))} {'is' if len(strange) == 1 else 'are'} not known. "
            f"Known: {', '.join(KEYS)}."
        )
    return dict(content)


def _causes(words: list[str], where: str) -> tuple[str, ...]:
    """Causes, or families of them such as `input`."""
    causes = tuple(word.strip() for word in words if word.strip())
    if not causes:
        raise WhyidleError(f"{where}: it names no cause. Name one, such as input.serial, or a family, such as input.")
    strange = [cause for cause in causes if cause not in CODES and cause not in FAMILIES]
    if strange:
        raise WhyidleError(
            f"{where}: {', '.join(strange)} {'is' if len(strange) == 1 else 'are'} not known."
            f"{''.join(meant(cause, (*FAMILIES, *CODES)) for cause in strange)} Known: "
            f"{', '.join((*FAMILIES, *CODES))}."
        )
    return causes
