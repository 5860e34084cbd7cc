"""Programs with a slow line of user code: each is whole, and its truth says things that can be judged."""

from __future__ import annotations

import ast
import difflib
import re
import tomllib
from pathlib import Path

import pytest

from whyidle.analyse.causes.finding import REMEDIES
from whyidle.analyse.causes.table import CODES
from whyidle_bench.user_code.cases import HALVES, patched, read

PROGRAMS = Path(__file__).parents[2] / "diagnosis_benchmark" / "user_code" / "programs"
FOLDERS = sorted(path.name for path in PROGRAMS.iterdir() if path.is_dir() and path.name != "__pycache__")
EXTRAS = tomllib.loads((PROGRAMS.parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTALLED = {re.split(r"[^\w-]", each)[0] for extra in ("dev", "studies", "parquet", "plot") for each in EXTRAS[extra]}
DISTRIBUTIONS = {"PIL": "pillow"}
"""By what they are imported as, packages that are installed by another name."""

TEXTS, LISTS = {"title", "half", "source", "said", "cause", "remedy"}, {"needs", "also", "lines", "also_remedies"}
AUDITED = "promises"
"""The half whose programs hold promises: written for that, of no public thread, measured by the audit alone, and with
gains of any size, none among them."""

LEAST_GAIN = 1.2
"""Samples per second of the fixed form over those of the broken one: below, there is nothing to find."""


@pytest.mark.parametrize("name", FOLDERS)
def test_a_program_is_a_broken_and_a_fixed_form_that_a_user_could_have_written(name: str) -> None:
    files = {path.name for path in (PROGRAMS / name).iterdir()} - {"__pycache__"}
    assert files - {"gone.patch"} == {"broken.py", "fixed.patch", "truth.toml"}
    program = read(name)
    sources = [program.program(form).read_text(encoding="utf-8") for form in program.forms]
    assert len({ast.dump(ast.parse(source)) for source in sources}) == len(files) - 1
    for source in sources[:2]:
        assert 40 <= len(source.splitlines()) <= 130
        assert "whyidle" not in source, "it knows nothing of who watches it"
        assert "throughput: " in source, "its own clock is what a gain is measured by"


@pytest.mark.parametrize("name", FOLDERS)
def test_a_truth_speaks_of_known_causes_remedies_lines_and_packages(name: str) -> None:
    said = tomllib.loads((PROGRAMS / name / "truth.toml").read_text(encoding="utf-8"))
    kinds = dict.fromkeys(TEXTS | {"span"}, str) | dict.fromkeys(LISTS, list) | {"measured": dict, "settings": dict}
    assert {key: type(value) for key, value in said.items()} == {key: kinds[key] for key in said}
    assert said.keys() | {"settings", "span"} == kinds.keys()
    causes, remedies = (said["cause"], *said["also"]), (said["remedy"], *said["also_remedies"])
    assert set(causes) <= set(CODES)
    assert set(remedies) <= REMEDIES.keys()
    assert (len(set(causes)), len(set(remedies))) == (len(causes), len(remedies))
    assert said["half"] in HALVES
    assert said["source"].startswith("https://") or (said["half"], said["source"]) == (AUDITED, "")
    assert {DISTRIBUTIONS.get(package, package) for package in said["needs"]} <= INSTALLED
    program = read(name)
    assert (program.causes, program.remedies) == (causes, remedies)
    lines = [line.strip() for line in (PROGRAMS / name / "broken.py").read_text(encoding="utf-8").splitlines()]
    assert said["lines"] or said.get("settings")
    assert {line: lines.count(line) for line in said["lines"]} == dict.fromkeys(said["lines"], 1)
    assert {lines[number - 1] for number in program.numbers} == set(said["lines"])
    if said["half"] != AUDITED:
        assert said["measured"].keys() == {"broken", "fixed"}
        assert said["measured"]["fixed"] >= LEAST_GAIN * said["measured"]["broken"] > 0


@pytest.mark.parametrize(
    ("old", "new"),
    [("c\n", "d\n"), ("", ""), ("b\nc\n", "b\n"), ("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nB\nc\nd\ne\nf\ng\nx\nh\n")],
)
def test_a_patch_makes_what_it_was_made_from_and_fits_nothing_else(old: str, new: str) -> None:
    old, new = f"first\n{old}last\n", f"first\n{new}last\n"
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), "broken.py", "fixed.py", n=2)
    patch = "".join(lines)
    assert patched(old, patch) == new
    if old != new:
        with pytest.raises(ValueError, match="is not what the program says"):
            patched(f"another\n{old}", patch)
        # As editors do that take blanks from the ends of lines, or a file that was cut.
        with pytest.raises(ValueError, match="cut short"):
            patched(old, patch[: patch.rindex("\n", 0, -1) + 1])
