"""The programs, and what is true of them: `programs/NAME/` has `broken.py`, `fixed.patch` and `truth.toml`."""

from __future__ import annotations

import atexit
import importlib.util
import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from whyidle.errors import WhyidleError

PROGRAMS = Path(__file__).with_name("programs")
HALVES = {
    "before": "before the rules",
    "after": "after the rules",
    "later": "after the rules had been changed by what the others showed",
    "latest": "after the rules had been changed twice",
    "newest": "after the rules had been changed three times",
    "promises": "to hold promises against what comes, without knowing how they are made",
}
"""When a program was written, in words."""
BROKEN, FIXED, GONE = "broken", "fixed", "gone"
"""The program, its mended form, and, of some, the broken one in which the lines take no time."""


@dataclass(frozen=True)
class UserProgram:
    """One program in a broken and a mended form."""

    name: str
    title: str
    half: str
    source: str
    """The public thread in which the case was confirmed."""
    said: str
    cause: str
    """The code that comes first if the report is right."""
    lines: tuple[str, ...]
    """Lines of the broken form, any of which is the right place."""
    remedy: str
    needs: tuple[str, ...] = ()
    """Packages beyond torch and numpy."""
    also: tuple[str, ...] = ()
    """Codes that are right too."""
    also_remedies: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    """Arguments of the DataLoader, where the fixed form changes nothing else."""
    span: str = "loop"
    """What its own clock measures: the `loop`, or all from the `start`."""
    measured: dict[str, float] = field(default_factory=dict)
    """Samples a second of both forms by their own clocks, where they were written."""

    @property
    def causes(self) -> tuple[str, ...]:
        return self.cause, *self.also

    @property
    def remedies(self) -> tuple[str, ...]:
        return self.remedy, *self.also_remedies

    @property
    def forms(self) -> list[str]:
        return [BROKEN, *(form for form in (FIXED, GONE) if self._patch(form).exists())]

    def program(self, form: str) -> Path:
        """The program in this form; those that a patch makes are there until this process ends.

        Raises:
            ValueError: the patch does not fit.
        """
        broken = PROGRAMS / self.name / f"{BROKEN}.py"
        if form == BROKEN:
            return broken
        made = _made_programs() / self.name / f"{form}.py"
        if not made.exists():
            made.parent.mkdir(exist_ok=True)
            made.write_text(patched(broken.read_text(), self._patch(form).read_text()))
        return made

    def _patch(self, form: str) -> Path:
        return PROGRAMS / self.name / f"{form}.patch"

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Numbers of `lines` in the broken form."""
        text = self.program(BROKEN).read_text().splitlines()
        return frozenset(number for number, line in enumerate(text, 1) if line.strip() in self.lines)

    @property
    def missing(self) -> list[str]:
        """Packages that it needs and this environment lacks."""
        return [package for package in self.needs if importlib.util.find_spec(package) is None]


@cache
def _made_programs() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="whyidle-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def patched(text: str, patch: str) -> str:
    """Text after a unified diff, each of whose lines has to fit where it says.

    Raises:
        ValueError: one does not, or a hunk is not as long as its header says.
    """
    old, new, line = text.splitlines(), [], 0
    for header, body in re.findall(r"^(@@ .*)\n((?:[-+ ].*\n)*)", patch, re.MULTILINE):
        begin, length, made = re.findall(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", header)[0]
        at, hunk = int(begin) - 1, body.splitlines()
        before, after = ([each[1:] for each in hunk if each[0] != sign] for sign in "+-")
        if (len(before), len(after)) != (int(length or 1), int(made or 1)):
            raise ValueError(f"{header}: this hunk is cut short")
        if at < line or old[at : at + len(before)] != before:
            raise ValueError(f"{header}: this is not what the program says there")
        new += [*old[line:at], *after]
        line = at + len(before)
    return "\n".join([*new, *old[line:]]) + "\n"


def read(name: str) -> UserProgram:
    """
    Raises:
        ValueError, TypeError, OSError: it is not as it has to be.
    """
    told: dict[str, Any] = tomllib.loads((PROGRAMS / name / "truth.toml").read_text())
    fields: dict[str, Any] = {key: tuple(of) if isinstance(of, list) else of for key, of in told.items()}
    return UserProgram(name=name, **fields)


def all_programs() -> list[UserProgram]:
    """By name."""
    return [read(path.parent.name) for path in sorted(PROGRAMS.glob("*/truth.toml"))]


def chosen(names: str | None, half: str | None, most: int | None = None) -> list[UserProgram]:
    """Those that a command line asks for.

    Args:
        most: so many, for a first look: of those written before the rules, unless these others are asked for.

    Raises:
        WhyidleError: a name is not known.
    """
    programs = all_programs()
    if names:
        known = {program.name for program in programs}
        wanted = [name.strip() for name in names.split(",") if name.strip()]
        if unknown := [name for name in wanted if name not in known]:
            raise WhyidleError(f"no program is called {', '.join(unknown)}. There are: {', '.join(sorted(known))}.")
        programs = [program for program in programs if program.name in wanted]
    if most is not None and not names:
        half = half or "before"
    return [program for program in programs if half in (None, program.half)][:most]
