"""Programs with a slow line of user code: each is whole, and its truth says things that can be judged."""

from __future__ import annotations

import ast
import difflib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from whyidle.analyse.causes.finding import REMEDIES
from whyidle.analyse.causes.table import CODES
from whyidle_bench.user_code.cases import HALVES, all_programs, patched, read

PROGRAMS = Path(__file__).parents[2] / "diagnosis_benchmark" / "user_code" / "programs"
FOLDERS = sorted(path for path in PROGRAMS.iterdir() if path.is_dir() and path.name != "__pycache__")

KEYS = {
    "title": str,
    "half": str,
    "source": str,
    "said": str,
    "needs": list,
    "cause": str,
    "also": list,
    "lines": list,
    "remedy": str,
    "also_remedies": list,
    "measured": dict,
}
MORE_KEYS = {"settings": dict, "span": str}
"""That some have."""
AUDITED = "promises"
"""The half whose programs hold promises: written for that, of no public thread, measured by the audit alone, and with
gains of any size, none among them."""

CAUSES = {
    "host.boundary",
    "host.gc",
    "host.gil",
    "host.step_gap",
    "host.sync",
    "input.cpu_exhausted",
    "input.exclusive",
    "input.handoff",
    "input.foreign_load",
    "input.main_process",
    "input.memory",
    "input.overkill",
    "input.oversubscribed",
    "input.pipeline_fill",
    "input.prefetch_depth",
    "input.sampler",
    "input.serial",
    "input.sharding",
    "input.storage",
    "input.straggler",
    "input.too_few_workers",
    "input.wasted",
    "input.worker_restart",
    "input.worker_threads",
    "run.slowing",
    "run.startup",
}
"""Codes of a verdict that a user's own code can bring about on two CPUs without a GPU."""

DISTRIBUTIONS = {"PIL": "pillow"}
"""By what they are imported as, packages that are installed by another name."""

LEAST_GAIN = 1.2
"""Samples per second of the fixed form over those of the broken one: below, there is nothing to find."""


def truth(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "truth.toml").read_text(encoding="utf-8"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: str(folder.name))
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_a_program_is_a_broken_and_a_fixed_form_and_their_truth(folder: Path) -> None:
    files = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert files - {"gone.patch"} == {"broken.py", "fixed.patch", "truth.toml"}
    program = read(folder.name)
    forms = [ast.dump(ast.parse(program.program(form).read_text())) for form in program.forms]
    assert len(set(forms)) == len(files) - 1


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


@pytest.mark.parametrize("form", ["broken", "fixed"])
def test_a_program_is_one_that_a_user_could_have_written(folder: Path, form: str) -> None:
    source = read(folder.name).program(form).read_text(encoding="utf-8")
    assert 40 <= len(source.splitlines()) <= 130
    assert "whyidle" not in source, "it knows nothing of who watches it"
    assert "throughput: " in source, "its own clock is what a gain is measured by"


def test_a_truth_has_every_key_and_no_other(folder: Path) -> None:
    kinds = {key: type(value) for key, value in truth(folder).items()}
    assert kinds == KEYS | {key: kind for key, kind in MORE_KEYS.items() if key in kinds}


def test_a_truth_speaks_of_known_causes_and_remedies(folder: Path) -> None:
    said = truth(folder)
    assert {said["cause"], *said["also"]} <= CAUSES
    assert said["cause"] not in said["also"]
    assert {said["remedy"], *said["also_remedies"]} <= REMEDIES.keys()
    assert said["remedy"] not in said["also_remedies"]
    assert said["half"] in HALVES
    assert said["source"].startswith("https://") or (said["half"], said["source"]) == (AUDITED, "")


def test_the_causes_and_remedies_of_truths_are_those_that_a_report_can_name() -> None:
    assert set(CODES) >= CAUSES
    remedies = {remedy for program in all_programs() for remedy in program.remedies}
    assert remedies - REMEDIES.keys() == set()


def test_the_benchmark_reads_a_truth_as_it_stands(folder: Path) -> None:
    said, program = truth(folder), read(folder.name)
    assert program.causes == (said["cause"], *said["also"])
    assert program.remedies == (said["remedy"], *said["also_remedies"])
    source = (folder / "broken.py").read_text(encoding="utf-8").splitlines()
    assert {source[number - 1].strip() for number in program.numbers} == set(said["lines"])


def test_both_halves_are_there() -> None:
    halves = [program.half for program in all_programs()]
    assert min(halves.count("before"), halves.count("after")) >= 15


def test_the_lines_of_a_truth_are_in_the_broken_form_once_each(folder: Path) -> None:
    lines = [line.strip() for line in (folder / "broken.py").read_text(encoding="utf-8").splitlines()]
    told = truth(folder)
    said = told["lines"]
    assert said or told.get("settings")
    assert {line: lines.count(line) for line in said} == dict.fromkeys(said, 1)


def test_the_mend_of_a_program_was_measured_to_be_worth_it(folder: Path) -> None:
    told = truth(folder)
    measured = told["measured"]
    if told["half"] != AUDITED:
        assert measured.keys() == {"broken", "fixed"}
        assert measured["fixed"] >= LEAST_GAIN * measured["broken"] > 0


def test_a_development_environment_has_what_every_program_needs(folder: Path) -> None:
    extras = tomllib.loads((PROGRAMS.parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    dev = [each for extra in ("dev", "studies", "parquet", "plot") for each in extras[extra]]
    installed = {re.split(r"[^\w-]", each)[0] for each in dev}
    assert {DISTRIBUTIONS.get(name, name) for name in truth(folder)["needs"]} <= installed
