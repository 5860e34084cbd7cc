"""The code in C under calls at random: with sanitizers, for what it keeps, and in random trainings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support import sanitized
from whyidle import native

PROGRAMS = Path(__file__).parent / "programs"
in_c = pytest.mark.skipif(native.extension is None, reason=f"no extension: {native.why_not}")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    folder.mkdir()
    sanitized.build(folder)
    return folder


@in_c
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_calls_at_random_find_no_fault_in_memory(built: Path, tmp_path: Path, seed: int) -> None:
    told = json.loads(sanitized.run(built, PROGRAMS / "fuzz_hooks.py", str(tmp_path / "fuzz"), str(seed), "6000"))
    assert told["wrong"] == []
    assert told["batches"] > 1000
    assert told["raised"] > 100


@in_c
@pytest.mark.slow
def test_calls_at_random_keep_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "fuzz_hooks.py"), str(tmp_path / "fuzz"), "99", "30000"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert told["wrong"] == []
    # References where they are counted, else KiB: what is not given back grows on, a cache is full at some time.
    _, _, _, early, *_, late = told["kept"]
    assert late - early < (5_000 if hasattr(sys, "gettotalrefcount") else 8 * 1024), told["kept"]


@in_c
@pytest.mark.slow
def test_random_trainings_find_no_fault_in_memory(built: Path, tmp_path: Path) -> None:
    told = sanitized.run(built, PROGRAMS / "random_trainings.py", str(tmp_path), "5000", "60").splitlines()
    assert told[:-1] == []


# `models`: whole models are saved, and copies looked into, as well.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_thousand_random_trainings_are_the_same_with_hooks(tmp_path: Path, part: int) -> None:
    command = [sys.executable, str(PROGRAMS / "random_trainings.py"), str(tmp_path), str(100 * part), "100", "models"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    *different, (counted) = done.stdout.splitlines()
    assert different == []
    assert json.loads(counted)["programs"] == 100
    assert json.loads(counted)["steps"] > 300
