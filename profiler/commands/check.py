"""`whyidle check RUN`: whether a run keeps its limits, for CI: exit code 0, or 1.

What a run is held to: `[tool.whyidle.check]` of a `pyproject.toml`, and flags, which win. CI servers get JUnit XML, a
test case a check, and the workflow commands that GitHub shows beside it.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.etree import ElementTree

from msgspec import Meta, ValidationError, convert

from ..analyse.causes.diagnosis import CODES, FAMILIES
from ..analyse.diff.check import REGRESSION, SEVERITIES, Asked, LimitCheck, checks_of
from ..analyse.diff.difference import EMULATED
from ..analyse.diff.sides import analysed, folders_of
from ..errors import WhyidleError
from ..record.files import read_json
from ..report.documents.checks import check_document, limit_row
from ..report.render import markdown
from ..terminal.console import console, doing, json_text, show_document, write_file
from .options import meant
from .verbs import VERBS

FAILED = 1
PYPROJECT = "pyproject.toml"
TABLE = "[tool.whyidle.check]"

_PERCENT: tuple[Any, str, dict[str, Any]] = (
    Annotated[float, Meta(ge=0, le=100)],
    "is not a number from 0 to 100",
    {"metavar": "PCT", "type": float},
)
_NUMBER = (Annotated[float, Meta(ge=0, le=1e18)], "is not a number of 0 or more", {"metavar": "N", "type": float})
_SWITCH = (bool, "is neither true nor false", {"action": "store_true", "default": None})
_SEVERITY = (Literal["none", "minor", "major"], f"is not one of {', '.join(SEVERITIES[:-1])}", {"metavar": "WORD"})
_CAUSES = (list[str], "is not a list of causes", {"metavar": "CAUSES"})
_RUNS = (
    Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)],
    "names no run",
    {"metavar": "RUN", "action": "append"},
)
_NOISE = (
    Annotated[float, Meta(gt=0, lt=100)],
    "is not a percentage above 0 and below 100, such as 1.5",
    {"metavar": "PCT", "type": float},
)
KEYS = {
    "max-stall": (
        _PERCENT,
        "exposed wait: the device idles for input, copies, synchronising calls or other work of the loop",
    ),
    "max-input": (_PERCENT, "its part that waits for the loader"),
    "max-copy": (_PERCENT, "its part that waits for copies"),
    "max-sync": (_PERCENT, "its part that waits for synchronising calls"),
    "max-host": (_PERCENT, "its part that waits for other work of the training loop"),
    "max-boundary": (_PERCENT, "time outside the steps: validation, checkpoints"),
    "max-regression": (
        _PERCENT,
        "throughput lost against --against; a result that noise leaves unclear fails",
    ),
    "min-utilisation": (_PERCENT, "the device's utilisation counter"),
    "min-busy": (_PERCENT, "time in which the device computes"),
    "min-au": (_PERCENT, "accelerator utilisation as MLPerf Storage counts it"),
    "max-overhead": (_PERCENT, "time in whyidle's own hooks"),
    "min-samples-per-s": (_NUMBER, "samples per second"),
    "max-dropped": (_NUMBER, "records that could not be stored"),
    "min-steps": (_NUMBER, "steps after the warm-up (default: 30; fewer support no verdict)"),
    "max-severity": (_SEVERITY, f"worst severity of a cause: {', '.join(SEVERITIES[:-1])}"),
    "forbid": (_CAUSES, "causes that must not occur, such as input.serial,copy"),
    "against": (
        _RUNS,
        "run to compare with (give it again for repeats), or a report saved by `whyidle report --json`",
    ),
    "noise": (_NOISE, "how much runs of one setting differ on this machine, if you know it"),
    "allow-missing": (_SWITCH, "pass limits on what was not measured (they fail otherwise)"),
    "allow-short": (_SWITCH, "pass a run with too few steps, or without a verdict"),
    "allow-unfinished": (_SWITCH, "pass a run that has not ended, failed, or lacks a rank of its job"),
    "allow-noisy": (_SWITCH, "pass a regression when noise leaves unclear whether it keeps the limit"),
}
"""Key of the table, which is a flag as well → (type of its value, what is said of any other, how argparse reads the
flag), and what it means."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run. With several repeats of it, limits apply to the "
        "one of median throughput, and a regression counts all of them",
    )
    for key, ((_, _, reads), meaning) in KEYS.items():
        parser.add_argument(f"--{key}", help=meaning, **reads)
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help=f"limits (default: the nearest {PYPROJECT} above this folder)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (whyidle-check version 1)")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML")
    parser.add_argument(
        "--github",
        action="store_true",
        default=os.environ.get("GITHUB_ACTIONS") == "true",
        help="print annotations for GitHub, and append a table to $GITHUB_STEP_SUMMARY (default: if GITHUB_ACTIONS "
        "is true)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the runs, and write everything that was asked for, files first."""
    if not arguments.run_folders:
        raise WhyidleError(
            f"name the run to check: `{VERBS['check'].example}`. The newest recording of this machine may be another "
            "job's, so it is not taken by itself."
        )
    asked = _asked(arguments)
    # Any of them may hold no step: it keeps no limit then, which is not the user's mistake.
    with doing():
        runs = {folder: analysed(folder) for folder in folders_of(arguments.run_folders)}
    folder, found = checks_of(runs, asked, _report(asked.against))
    name, info = str(folder), runs[folder].info
    device = info.get("device") or {}
    emulated = str(device.get("title") or EMULATED) if device.get("kind") == EMULATED else None
    if arguments.junit is not None:
        about = {
            "device": device.get("title") or device.get("name"),
            "device kind": device.get("kind"),
            "host": (info.get("host") or {}).get("name"),
            "torch": info.get("torch"),
            "python": info.get("python"),
            "started": info.get("started_at"),
            "whyidle": info.get("whyidle"),
            "emulated": emulated,
        }
        properties = {key: str(value) for key, value in about.items() if value is not None}
        write_file(junit_xml(name, found, properties), arguments.junit, only=JUNITS)
    document = check_document(name, emulated, found)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if arguments.github and summary:
        try:
            with Path(summary).open("a", encoding="utf-8") as target:
                target.write(markdown(document) + "\n")
        except OSError as error:
            raise WhyidleError(f"cannot write {summary}: {error.strerror}. Name another file.") from error
    if arguments.json:
        passed = all(each.holds for each in found)
        head = {"format": "whyidle-check", "version": 1, "run": name, "passed": passed}
        print(json_text({**head, "checks": found, "emulated": emulated is not None}))
    else:
        show_document(document, console())
    if arguments.github:
        # What a program reads as JSON stays JSON.
        for line in workflow_commands(name, found):
            print(line, file=sys.stderr if arguments.json else sys.stdout)
    return 0 if all(each.holds for each in found) else FAILED


def _asked(arguments: argparse.Namespace) -> Asked:
    """Flags over the table.

    Raises:
        WhyidleError: something asked makes no sense, or nothing is asked.
    """
    here = Path.cwd()
    nearest = (folder / PYPROJECT for folder in (here, *here.parents) if (folder / PYPROJECT).is_file())
    file = arguments.config or next(nearest, None)
    table = {} if file is None else _table(file, required=arguments.config is not None)
    given = {key: value for key in KEYS if (value := getattr(arguments, key.replace("-", "_"))) is not None}
    values = {
        key: _value(key, value, f"--{key}" if key in given else f"{key} in {file}")
        for key, value in (table | given).items()
    }
    folder = Path() if file is None or "against" in given else file.parent
    against = tuple(folder / run for run in values.get("against", ()))
    limits = {key: value for key, value in values.items() if KEYS[key][0] in (_PERCENT, _NUMBER)}
    if bool(against) != (REGRESSION in limits):
        there, missing = ("--against", "--max-regression PCT") if against else ("--max-regression", "--against RUN")
        raise WhyidleError(f"{there} needs {missing}: how much slower may a run be, and than which?")
    severity, forbid = values.get("max-severity"), tuple(values.get("forbid", ()))
    if not (limits or severity or forbid):
        raise WhyidleError(
            "nothing to check: no limit is set. Set one, as in `whyidle check RUN --max-stall 10`, or write it into "
            f"{PYPROJECT}:\n  {TABLE}\n  max-stall = 10"
        )
    noise = values["noise"] / 100 if "noise" in values else None
    allow = frozenset(key.removeprefix("allow-") for key, given in values.items() if KEYS[key][0] is _SWITCH and given)
    return Asked(limits, severity, forbid, against, noise, allow)


def _report(against: Sequence[Path]) -> dict[str, Any] | None:
    """A saved report that the runs are compared with; `None` where that is a run, or several."""
    if len(against) != 1 or not against[0].is_file():
        return None
    report = read_json(against[0].resolve())
    if not isinstance(report, dict) or report.get("format") != "whyidle-report":
        raise WhyidleError(
            f"{against[0]} is not a report of whyidle. Save one with `whyidle report RUN --json -o FILE`, or name a "
            "run."
        )
    return report


def _value(key: str, value: Any, where: str) -> Any:
    type_, otherwise, _ = KEYS[key][0]
    if isinstance(value, str) and key in ("forbid", "against"):
        value = value.split(",") if key == "forbid" else [value]
    try:
        found = convert(value, type_)
    except ValidationError:
        found = math.nan
    if found != found:  # NaN is within every limit.
        raise WhyidleError(f"{where}: {value!r} {otherwise}.")
    if key != "forbid":
        return found
    causes = [word.strip() for word in found if word.strip()]
    if not causes:
        raise WhyidleError(f"{where}: it names no cause. Name one, such as input.serial, or a family, such as input.")
    known = (*FAMILIES, *CODES)
    strange = [cause for cause in causes if cause not in known]
    if strange:
        raise WhyidleError(
            f"{where}: {', '.join(strange)} {'is' if len(strange) == 1 else 'are'} not known."
            f"{''.join(meant(cause, known) for cause in strange)} Known: {', '.join(known)}."
        )
    return causes


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


# For CI servers.


def _told(found: Sequence[LimitCheck]) -> Iterator[tuple[LimitCheck, str, str]]:
    """(check, its outcome in a word, all that is said of it)"""
    for each in found:
        row = limit_row(each)
        yield each, row.outcome, f"{row.what}: {row.measured}, {row.wanted}{f' ({row.note})' if row.note else ''}"


def workflow_commands(run: str, found: Sequence[LimitCheck]) -> Iterator[str]:
    """Make an error for each failed check, a warning for what was not measured and is allowed, a notice for a note."""
    for each, outcome, said in _told(found):
        if outcome != "PASS" or (each.note and each.name == REGRESSION):
            level = {"PASS": "notice", "SKIP": "warning"}.get(outcome, "error")
            # What ends a property of a command has a code of its own there.
            title = _data(f"whyidle check {each.name}").replace(":", "%3A").replace(",", "%2C")
            yield f"::{level} title={title}::{_data(f'{run}: {said}')}"


def _data(text: str) -> str:
    """As GitHub's own toolkit escapes it: a line of a message must not become a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


JUNITS = ("JUnit of an earlier check", rb'<\?xml version="1.0" encoding="utf-8"\?>\n<testsuites name="whyidle"')
"""What `junit_xml` makes, in words, and how every such file begins, as a pattern."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 has no way to hold, escaped or not."""


def junit_xml(run: str, found: Sequence[LimitCheck], properties: Mapping[str, str]) -> str:
    """Make the whole file. What was not measured fails, unless it is allowed: then it is skipped."""
    told = list(_told(found))
    failed, skipped = sum(not each.holds for each in found), sum(outcome == "SKIP" for _, outcome, _ in told)
    counts = {"tests": str(len(found)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ElementTree.Element("testsuites", {"name": "whyidle", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "whyidle check", **counts})
    of_suite = ElementTree.SubElement(suite, "properties")
    for name, value in ({"run": run} | dict(properties)).items():
        ElementTree.SubElement(of_suite, "property", {"name": _xml(name), "value": _xml(value)})
    for each, outcome, said in told:
        names = {"classname": "whyidle.check", "name": _xml(each.name)}
        case, message = ElementTree.SubElement(suite, "testcase", names), _xml(said)
        if outcome == "SKIP":
            ElementTree.SubElement(case, "skipped", {"message": message})
        elif outcome != "PASS":
            ElementTree.SubElement(case, "failure", {"message": message, "type": each.status}).text = message
        else:
            ElementTree.SubElement(case, "system-out").text = message
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
