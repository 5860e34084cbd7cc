"""What a user installs: the wheel's files, what importing costs, the console script."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import whyidle
from whyidle.commands.main import VERBS, main

ROOT = Path(__file__).parents[2]
FOLDERS = {"profiler": "whyidle", "pipelines": "whyidle/pipelines", "scenarios": "whyidle/scenarios"}


def test_the_wheel_holds_every_file_of_the_tree(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("whyidle/")}
    in_tree = {
        f"{name}/{path.relative_to(ROOT / folder)}"
        for folder, name in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".typed") or path.parent.name in ("templates", "static")
    }
    assert packed == in_tree


MODULES = ("whyidle", "whyidle.capture.sampler.start", "whyidle.analyse.analysis", "whyidle.commands.main")


def test_importing_costs_no_torch() -> None:
    # One after the other: which of them it was is told.
    code = "import sys\n" + "".join(
        f"import {module}\nprint(*[m for m in ('torch', 'torchvision', 'nvidia', 'spdl') if m in sys.modules])\n"
        for module in MODULES
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n") == [*([""] * len(MODULES)), ""]


def test_python_dash_m_is_the_console_script() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "whyidle", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"whyidle {whyidle.__version__}\n"


@pytest.mark.parametrize("verb", [v.NAME for v in VERBS])
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"example: whyidle {verb}" in capsys.readouterr().out
