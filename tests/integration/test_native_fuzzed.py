"""The code in C under calls at random: with sanitizers, for what it keeps, and in random trainings.

Storms of Ctrl-C: not one is lost in the hooks, and what comes after it is recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.runs import WHYIDLE, WITHOUT_COMPILER, ended
from whyidle import native
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import STEP

ROOT = Path(__file__).parents[2]
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1")
RUN = """
import runpy, sys
import whyidle
whyidle.__path__.insert(0, sys.argv.pop(1))
from whyidle import native
assert native.extension.__file__.startswith(whyidle.__path__[0]), native.why_not
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def build(folder: Path) -> None:
    """The extension in `folder`; skips the test where they cannot be had."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this Python has no global lock, and the extension is not for it")
    include = sysconfig.get_paths()["include"]
    made = folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [compiler(), "-shared", "-fPIC", f"-I{include}", *FLAGS, "-o", str(made)]
    done = subprocess.run([*command, str(ROOT / "profiler" / "_native.c")], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the compiler makes no sanitized extension: {done.stderr.strip()[-300:]}")


def run(folder: Path, program: Path, *arguments: str) -> str:
    """What a program prints that has the extension in `folder`. Fails where the sanitizers have something to say."""
    environment = os.environ | {
        "LD_PRELOAD": libraries(),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "WHYIDLE_PURE": "0",
    }
    command = [sys.executable, "-c", RUN, str(folder), str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    for sign in ("Sanitizer", "runtime error"):
        at = done.stderr.find(sign)
        assert at < 0, done.stderr[max(0, at - 300) : at + 6000]
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


def compiler() -> str:
    named = os.environ.get("CC", "gcc").split()[0]
    try:
        subprocess.run([named, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"there is no compiler {named}: CC names another")
    return named


def libraries() -> str:
    """The sanitizer's, which must be loaded before all else, and that of C++, whose errors it must know before torch
    raises one."""
    found = []
    for name in ("libasan.so", "libstdc++.so"):
        asked = [compiler(), f"-print-file-name={name}"]
        found.append(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        if not Path(found[-1]).is_absolute():
            pytest.skip(f"{asked[0]} has no {name}")
    return " ".join(found)


PROGRAMS = Path(__file__).parent / "programs"
in_c = pytest.mark.skipif(native.extension is None, reason=f"no extension: {native.why_not}")


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    folder.mkdir()
    build(folder)
    return folder


@in_c
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_calls_at_random_find_no_fault_in_memory(built: Path, tmp_path: Path, seed: int) -> None:
    told = json.loads(run(built, PROGRAMS / "fuzz_hooks.py", str(tmp_path / "fuzz"), str(seed), "6000"))
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
    told = run(built, PROGRAMS / "random_trainings.py", str(tmp_path), "5000", "60").splitlines()
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


PROGRAM = (Path(__file__).parent / "programs" / "interrupted_steps.py").read_text()


SOME, ALL = 200, 16_000


@pytest.mark.parametrize("pure", [False, True], ids=["C", "Python"])
@pytest.mark.parametrize("interrupts", [SOME, *[pytest.param(ALL, marks=pytest.mark.slow)] * 3])
def test_of_so_many_interrupts_none_is_lost(tmp_path: Path, interrupts: int, pure: bool) -> None:
    if not pure and interrupts == ALL and native.extension is None:
        pytest.skip(f"no extension: {native.why_not}")
    folder = tmp_path / "run"
    environment = os.environ | {"WHYIDLE_PURE": str(int(pure)), "OMP_NUM_THREADS": "1"}
    program = folder.with_name("train.py")
    program.write_text(PROGRAM.replace("import torch\n", WITHOUT_COMPILER, 1))
    command = [*WHYIDLE, "run", "--out", str(folder), "--", sys.executable, str(program)]
    # A process group of its own: what is sent to the training is sent to it alone.
    done = ended(*command, interrupts, env=environment, start_new_session=True)
    assert f"{interrupts} reached the training" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert [each for each in read_notices(folder) if "failed" in each] == []
    steps = open_run(folder).records(STEP)
    # Few of very short steps are recorded, the fewer the slower the machine: those after the last interrupt are whole.
    assert len(steps) > 4
    assert (steps["optimizer_end_ns"][-4:-1] > 0).all()
