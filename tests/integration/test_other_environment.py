"""A training whose environment has no whyidle, recorded by one that lives elsewhere: run, attach and tune, with workers
however they are started."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from support.runs import WHYIDLE, WITHOUT_COMPILER, report, steps_of

PACKAGES = {
    *("torch", "torchgen", "functorch", "numpy", "filelock", "typing_extensions", "sympy", "mpmath", "networkx"),
    *("jinja2", "markupsafe", "fsspec", "nvidia", "triton", "setuptools", "pkg_resources", "isympy", "cuda"),
}
"""Of a training's environment: torch, what it needs, and nothing of whyidle's."""
SLOW = (Path(__file__).with_name("programs") / "slow.py").read_text()
TRAIN = f"""{WITHOUT_COMPILER}{SLOW}
if __name__ == "__main__":
    start, epochs = sys.argv[1:]
    context = dict(num_workers=1, multiprocessing_context=start, persistent_workers=True) if start else dict()
    loader = DataLoader(Slow(160, 0.01), batch_size=4, **context)
    print("begins", [m for m in ("rich", "psutil", "platformdirs", "pynvml") if m in sys.modules], flush=True)
    train(int(epochs), lambda: loader)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of such an environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in Path(torch.__file__).parents[1].iterdir():
        if re.split(r"[-.]", entry.name)[0] in PACKAGES:
            (packages / entry.name).symlink_to(entry)
    found = folder / "bin" / "python"
    missing = subprocess.run([found, "-c", "import torch, numpy, whyidle"], capture_output=True, text=True, check=False)
    assert "No module named 'whyidle'" in missing.stderr
    return found


@pytest.fixture
def train(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def whyidle(*words: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*WHYIDLE, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize("start", ["", "fork", "spawn", "forkserver"])
def test_run_records_its_steps_and_workers(tmp_path: Path, python: Path, train: Path, start: str) -> None:
    (early,) = (path / "early.pth" for path in python.parents[1].glob("lib/python*/site-packages"))
    if start == "fork":
        # Torch may be there before us.
        early.write_text("import torch\n")
    try:
        done = whyidle("run", "--out", tmp_path / "run", "--", python, train, start, 2)
    finally:
        early.unlink(missing_ok=True)
    assert done.stdout.startswith("begins []\n")
    told = report(tmp_path / "run")
    assert steps_of(tmp_path / "run") == 80
    assert told["input"]["workers"] == (1 if start else 0)
    assert told["verdict"]["cause"] == ("input.too_few_workers" if start else "input.serial")


@pytest.fixture
def running(python: Path, train: Path) -> Iterator[int]:
    process = subprocess.Popen([python, train, "fork", "1000"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begins []\n"
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.slow
def test_attach_sees_its_stacks(tmp_path: Path, running: int) -> None:
    told = json.loads(whyidle("attach", running, "--duration", 8, "--out", tmp_path / "run", "--json").stdout)
    assert told["verdict"]["cause"] == "input.too_few_workers"


@pytest.mark.slow
def test_tune_tries_settings_of_its_loader(tmp_path: Path, python: Path, train: Path) -> None:
    file = tmp_path / "tuned.json"
    whyidle("tune", "--budget", 20, "--out", tmp_path / "tuned", "--json", file, "--", python, train, "", 1000)
    told = json.loads(file.read_text())
    assert told["baseline"]["samples_per_s"] > 0
    assert {trial["settings"]["num_workers"] for trial in told["trials"] if trial["samples_per_s"]} > {0}
