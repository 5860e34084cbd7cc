"""A check: what is expected, what was seen, and whether that was so. Stages have several, in their order."""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Results
    from .rig import Rig

REPORTS = "GPU_TEST_REPORTS"
"""Environment: the file into which `tests/gpu/conftest.py` writes what became of each test, as it comes."""
PASS, FAIL, NOT_MEASURED, RUNNING = "pass", "fail", "not measured", "running"


class NotMeasured(Exception):
    """What a check needs is not here; the message says what."""


@dataclass(frozen=True)
class Seen:
    """What a check saw."""

    right: bool | None
    """Whether that is what was expected; `None`: it could not be measured."""
    text: str
    figures: dict[str, Any] = field(default_factory=dict)
    check: str = ""
    """Where a check has several rows: which one this is."""

    @property
    def outcome(self) -> str:
        return NOT_MEASURED if self.right is None else PASS if self.right else FAIL


Run = Callable[["Rig"], "Seen | Iterable[Seen]"]


@dataclass(frozen=True)
class Check:
    name: str
    expected: str
    run: Run


class Stage:
    """Checks that are run together.

    Args:
        limit_s: seconds after which it is stopped, whatever it is at.
    """

    def __init__(self, name: str, title: str, limit_s: float) -> None:
        self.name = name
        self.title = title
        self.limit_s = limit_s
        self.checks: list[Check] = []

    def check(self, expected: str) -> Callable[[Run], Run]:
        """Makes a check of a function whose name says what it is about."""

        def add(run: Run) -> Run:
            self.checks.append(Check(run.__name__.replace("_", " "), expected, run))
            return run

        return add


def run_checks(
    stage: Stage, rig: Rig, results: Results, names: Sequence[str] | None = None, stop_at_failure: bool = False
) -> None:
    """Run checks of a stage, all or those named, and write each result as it comes."""
    for check in stage.checks:
        if names is not None and check.name not in names:
            continue
        results.begin(stage.name, check.name, check.expected)
        began = time.perf_counter()
        rig.log = io.StringIO()
        rows = _rows(check, rig)
        results.end(stage.name, check, rows, time.perf_counter() - began, rig.log.getvalue())
        if stop_at_failure and any(row.right is False for row in rows):
            return


def _rows(check: Check, rig: Rig) -> list[Seen]:
    try:
        seen = check.run(rig)
        return [seen] if isinstance(seen, Seen) else list(seen)
    except NotMeasured as missing:
        return [Seen(None, str(missing))]
    except rig.unplayed as missing:
        return [Seen(None, str(missing))]
    except Exception as error:
        rig.log.write(traceback.format_exc())
        return [Seen(False, f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")]
