"""An environment that holds what the core declares and nothing else: no torch, torchvision, Pillow, SPDL, LMDB.

A laptop that reads a server's recording is one, and so is any that whyidle is installed into before torch is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from support.pairs import noisy
from support.runs import ended
from support.tuned import RESULT
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.report.contract import tuning as tune_json
from whyidle.scenarios.registry import NAMES
from whyidle.tune.result import keep

ROOT = Path(__file__).parents[2]
ABSENT = ("torch", "torchvision", "PIL", "spdl", "lmdb")
WAY_OUT = "pip install 'whyidle[studies]'"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of such an environment: the requirements that pyproject.toml names, theirs, and the tree's own files
    as they are when installed."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    there = Path(next(iter(folder.glob("lib/python*/site-packages"))))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting, done = [Requirement(text) for text in project["dependencies"]], set()
    while waiting:
        wanted = waiting.pop()
        if wanted.name in done or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        done.add(wanted.name)
        found = distribution(wanted.name)
        waiting += [Requirement(text) for text in found.requires or ()]
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            # Of several distributions some share a folder.
            if not (there / top).exists():
                (there / top).symlink_to(str(found.locate_file(top)))
    package = there / "whyidle"
    package.mkdir()
    for entry in (*(ROOT / "profiler").iterdir(), ROOT / "pipelines", ROOT / "scenarios"):
        (package / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@dataclass(frozen=True)
class Said:
    code: int | str
    out: str
    err: str


READ = {
    "report {one}": "input.serial",
    "report {one} --json": '"cause": "input.serial"',
    "report {one} --format markdown": "input.serial",
    "live {one} --once": "step",
    "diff {one} {two}": "No proven difference in speed",
    "check {one} --against {two} --max-regression 50": "all 3 checks hold",
    "compare {one} {two}": "samples/s",
    "report {compared}": "workers",
    "report {tuned}": "1.83× faster",
}
"""Command → what it prints."""
WRITTEN = {
    "report {one} --format html -o page.html": "page.html",
    "report {one} --format trace -o trace.json": "trace.json",
    "report {one} --format csv -o tables/": "tables/steps.csv",
    "report {compared} --format html -o compared.html": "compared.html",
    "report {tuned} --format html -o tuned.html": "tuned.html",
}
"""Command → a file that it writes."""
NEEDING = ("compare ssd --out new", "compare {mine} --out new", "data ssd --out new", "tune ssd --out new")
"""Commands that need the studies."""
FURTHER = ("doctor --out .", "doctor --json --out .", "scenarios", "scenarios --json", "compare sdd --out new")
CALL = """
import contextlib, importlib.util, io, json, sys, traceback
from whyidle.commands.main import main
asked, absent = json.load(sys.stdin)
told = {}
for name, words in asked.items():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except BaseException as error:
            code = str(error)
            traceback.print_exc()
    told[name] = [code, out.getvalue(), err.getvalue()]
print(json.dumps([told, [name for name in absent if importlib.util.find_spec(name) is None]]))
"""


def comparison(folder: Path, **setting: object) -> Path:
    """One of a single cell and run, as `compare` keeps it."""
    folder.mkdir()
    noisy(folder / "r0", np.random.default_rng(3))
    common = {
        "device": {"kind": "emulated", "name": "emulated:test", "title": "Test", "count": 1},
        "cpu_budget": 2,
        "workers": 1,
        "stop": {"epochs": 1},
        "repeats": 1,
        "augment": True,
        "dataset": {"samples": 10, "unit": "image"},
        "notices": [],
    }
    write_comparison(folder, common | setting, [CellRecord("workers", 8, "ok", None, ("r0",))])
    return folder


@pytest.fixture(scope="module")
def said(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    """What each command answered there. All in one process: a fault in what one imports is a fault in all."""
    folder = tmp_path_factory.mktemp("recorded")
    places = {name: folder / name for name in ("one", "two", "compared", "tuned", "mine")}
    for seed, name in enumerate(("one", "two"), 1):
        noisy(places[name], np.random.default_rng(seed))
    comparison(places["compared"], scenario="ssd", net="ssd300")
    places["tuned"].mkdir()
    keep(places["tuned"], {"command": ["python"]}, "2026-01-01T00:00:00", tune_json.tuning(RESULT))
    places["mine"] = folder / "mine.py"
    places["mine"].write_text("import torch\n")
    written = folder / "written"
    written.mkdir()
    asked = {words: words.format(**places).split() for words in (*READ, *WRITTEN, *NEEDING, *FURTHER)}
    done = ended(python, "-c", CALL, input=json.dumps([asked, ABSENT]), cwd=written)
    assert done.returncode == 0, done.stderr
    told, absent = json.loads(done.stdout.splitlines()[-1])
    assert absent == list(ABSENT), "this environment was to have none of these"
    assert not (written / "new").exists()
    return {name: Said(*answer) for name, answer in told.items()} | {
        "written": Said(0, "\n".join(str(path.relative_to(written)) for path in written.rglob("*")), "")
    }


@pytest.mark.parametrize("words", [*READ, *WRITTEN])
def test_what_was_recorded_is_read_and_files_of_it_are_written(said: dict[str, Said], words: str) -> None:
    assert said[words].code == 0, said[words].err
    if words in READ:
        assert READ[words] in said[words].out
    else:
        assert WRITTEN[words] in said["written"].out.splitlines()


@pytest.mark.parametrize("what", NEEDING)
def test_what_needs_the_studies_says_so_in_one_sentence(said: dict[str, Said], what: str) -> None:
    assert (said[what].code, said[what].out) == (2, "")
    (line,) = said[what].err.splitlines()
    assert line.endswith(f"needs torch, torchvision and Pillow, which this environment lacks: {WAY_OUT}")


def test_a_misspelt_scenario_is_called_that(said: dict[str, Said]) -> None:
    what = said["compare sdd --out new"]
    assert what.code == 2
    assert "unknown scenario 'sdd'" in what.err


def test_scenarios_are_listed_with_what_describing_them_needs(said: dict[str, Said]) -> None:
    assert said["scenarios"].code == 0, said["scenarios"].err
    lines = said["scenarios"].out.splitlines()
    assert sum(WAY_OUT in line for line in lines) == len(NAMES)
    told = json.loads(said["scenarios --json"].out)
    listed = {each["name"]: each for each in told["scenarios"]}
    assert list(listed) == [*NAMES]
    assert all(WAY_OUT in listed[name]["not_installed"] and listed[name]["study"] is None for name in NAMES)
    assert "emulated:v100" in [device["name"] for device in told["devices"]]


def test_doctor_says_what_is_not_installed_and_what_that_costs(said: dict[str, Said]) -> None:
    assert said["doctor --out ."].code == 0, said["doctor --out ."].err
    checks = {check["name"]: check for check in json.loads(said["doctor --json --out ."].out)["checks"]}
    assert checks["torch"]["status"] == "missing"
    assert checks["torch"]["says"].startswith("Not installed in this environment (")
    assert "commands that read recordings need none" in checks["torch"]["lost"]
    assert checks["CUDA in torch"]["status"] == "not applicable"
    for name in ("torchvision", "Pillow", "SPDL", "lmdb"):
        assert (checks[name]["status"], checks[name]["fix"]) == ("missing", WAY_OUT)


def recorded(python: Path, folder: Path, code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(code)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, path))}
    command = ["run", "--no-live", "--out", folder / "run", "--", python, folder / "program.py"]
    return ended(python, "-m", "whyidle", *command, env=environment)


def test_a_program_runs_unchanged_and_the_report_says_that_no_torch_was_seen(python: Path, tmp_path: Path) -> None:
    done = recorded(python, tmp_path, "print(6 * 7)\nraise SystemExit(3)\n")
    assert (done.returncode, done.stdout) == (3, "42\n")
    said = " ".join(done.stderr.split())
    assert "whyidle saw no torch: no Python that the command started imported it" in said
    assert "saw no training" not in said


def test_a_program_that_misses_torch_fails_as_it_does_without_us(python: Path, tmp_path: Path) -> None:
    done = recorded(python, tmp_path, "import torch\n")
    bare = subprocess.run([python, tmp_path / "program.py"], capture_output=True, text=True)
    assert done.returncode == bare.returncode == 1
    assert done.stderr.startswith(bare.stderr)
    assert "saw no torch" in " ".join(done.stderr.split())


STAND_IN = """
import types
__version__ = {version!r}
class Optimizer:
    def __init__(self): self.made = True
optim = types.SimpleNamespace(Optimizer=Optimizer)
autograd = types.SimpleNamespace(backward=lambda *_: None)
"""
TRAINS = "import torch\nprint(torch.__version__, torch.optim.Optimizer().made)\nraise SystemExit(5)\n"


def stand_in(folder: Path, version: str) -> Path:
    """A folder with a torch in which a recording's triggers find their places, and hooks do not."""
    data = folder / "torch" / "utils" / "data"
    data.mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(STAND_IN.format(version=version))
    (folder / "torch" / "utils" / "__init__.py").touch()
    (data / "__init__.py").write_text(
        "class DataLoader:\n    def __iter__(self): return iter(())\ndef get_worker_info(): return None\n"
    )
    return folder


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.5.1+cpu", "they use torch 2.5.1+cpu, and the hooks need 2.6 or newer"),
        ("2.9.0", "the hooks cannot be loaded with torch 2.9.0 ("),
    ],
)
def test_a_torch_that_the_hooks_do_not_take_is_left_alone_and_named(
    python: Path, tmp_path: Path, version: str, why: str
) -> None:
    done = recorded(python, tmp_path, TRAINS, stand_in(tmp_path / "theirs", version))
    assert (done.returncode, done.stdout) == (5, f"{version} True\n"), done.stderr
    said = " ".join(done.stderr.split())
    assert said.count(why) == 1
    assert "saw no torch" not in said


def test_tune_says_that_no_torch_was_seen(python: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('done')\n")
    words = ["tune", "--out", tmp_path / "tuned", "--", python, tmp_path / "program.py"]
    done = ended(python, "-m", "whyidle", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "saw no torch" in done.stderr
    assert "Traceback" not in done.stderr
