"""`make demo`: its commands are whyidle's, its order is that of the tool's uses, and its end says what was found."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from whyidle.commands.main import parser

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).parent / "programs" / "demo_commands.py"
LONGEST_S = 1200
"""Of a whole demo, on however busy a machine."""

pytestmark = pytest.mark.timeout(LONGEST_S)


class Demo:
    """The script in a folder of its own, with a stand-in for whyidle whose trainings are virtual."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.folder.mkdir()
        for name in ("docs", "scripts"):
            (self.folder / name).symlink_to(ROOT / name)
        self._log = folder / "log"
        self._bin = folder / "bin"
        self._bin.mkdir()
        # No GPU, whatever this machine has; all other Python is real.
        self._command("python", '[ "$1" = -c ] && exit 1', f'exec "{sys.executable}" "$@"')
        self._command("whyidle", f'exec "{sys.executable}" "{STAND_IN}" "$@"')

    def _command(self, name: str, *lines: str) -> None:
        file = self._bin / name
        file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        file.chmod(0o755)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / "scripts" / "demo.sh", self._bin, *words],
            cwd=self.folder,
            env=os.environ | {"DEMO_LOG": str(self._log), "PYTHONPATH": str(ROOT / "tests")} | environment,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )

    @property
    def commands(self) -> list[list[str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()]


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("FULL", "IMAGES", "LIMIT", "EPOCHS", "BUDGET"):
        monkeypatch.delenv(name, raising=False)
    return Demo(tmp_path)


def test_each_command_of_the_script_is_one_that_whyidle_takes() -> None:
    script = (ROOT / "scripts" / "demo.sh").read_text().replace("\\\n", " ")
    given = {"device": "emulated:v100", "workers": "num_workers=2"}
    verbs = []
    for line in script.splitlines():
        _, found, words = line.partition('"$bin/whyidle" ')
        if not found:
            continue
        words = re.sub(r"\$\{?(\w+)\}?", lambda name: given.get(name[1], "8"), words)
        asked = parser().parse_args(shlex.split(words))
        verbs.append((asked.verb, getattr(asked, "budget", None)))
    assert verbs == [
        ("data", None),
        *(("compare", None), ("compare", None), ("report", None), ("report", None)),
        *(("run", None), ("report", None), ("compare", 8.0), ("diff", None), ("diff", None)),
    ]


@pytest.mark.slow
def test_the_three_uses_are_shown_in_order_and_five_lines_say_what_was_found(demo: Demo) -> None:
    ended = demo.run()
    assert ended.returncode == 0, ended.stderr
    assert [words[0] for words in demo.commands] == ["data", "run", "report", "compare", "run", "diff", "diff"]
    compared = parser().parse_args(demo.commands[3])
    assert (compared.first, compared.batch_sizes, compared.repeats) == (("caffe", "prefetch"), (8, 16), 3)
    assert compared.budget <= 120
    before, after = (words[words.index("--") + 1 :] for words in demo.commands if words[0] == "run")
    assert (before[-2:], after[:-1]) == (["--workers", "0"], before[:-1])
    assert int(after[-1]) > 0
    *_, head, run, change, caffe, prefetch, page = ended.stdout.splitlines()
    assert head == "== What was found"
    # 40 ms of each 49.5 were waits, and then 2 of each 11.5: as the stand-in's trainings were planned.
    assert run == "run: 162 samples/s; input.serial, 81 % of the time."
    assert change.startswith(f"diff: with num_workers={after[-1]} +330 % samples/s (")
    assert "[loader_floor]. Device busy: 67 % at batch 8, 67 % at batch 16." in caffe
    assert "[saturated]. Device busy: 100 % at batch 8, 100 % at batch 16." in prefetch
    assert Path(page.removeprefix("page: ")).is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("full", "before"), [("", ["run", "report"]), ("1", [])])
def test_your_own_images_are_read_where_they_are_and_ctrl_c_ends_the_demo_with_the_command_it_hit(
    demo: Demo, tmp_path: Path, full: str, before: list[str]
) -> None:
    (tmp_path / "mine").mkdir()
    ended = demo.run(str(tmp_path / "mine"), FULL=full, DEMO_STOPS_AT="compare")
    assert ended.returncode == 130
    assert [words[0] for words in demo.commands] == [*before, "compare"]
    [compared] = [words for words in demo.commands if words[0] == "compare"]
    assert str(parser().parse_args(compared).data) == str(tmp_path / "mine")
    assert all(str(tmp_path / "mine") in words for words in demo.commands if words[0] == "run")
    assert list((tmp_path / "mine").iterdir()) == []
    assert "== What was found" not in ended.stdout


@pytest.mark.slow
def test_the_full_demo_is_the_study_and_a_page_of_each_run(demo: Demo) -> None:
    ended = demo.run(FULL="1")
    assert ended.returncode == 0, ended.stderr
    assert [words[0] for words in demo.commands] == ["data", "compare", "compare", "report", "report"]
    assert all(parser().parse_args(words).budget is None for words in demo.commands if words[0] == "compare")
    page = next(line for line in ended.stdout.splitlines() if line.startswith("Open "))
    assert Path(page.split()[1]).is_file()


@pytest.mark.slow
def test_it_runs_for_real_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("docs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    ended = subprocess.run(
        [ROOT / "scripts" / "demo.sh", Path(sys.executable).parent],
        cwd=tmp_path,
        env=os.environ | {"IMAGES": "24", "LIMIT": "16", "EPOCHS": "2", "BUDGET": "1"},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    *_, head, run, change, caffe, prefetch, page = ended.stdout.splitlines()
    assert head == "== What was found"
    assert [line.split(":")[0] for line in (run, change, caffe, prefetch)] == [
        "run",
        "diff",
        "compare, caffe",
        "compare, prefetch",
    ]
    assert "caffe" in Path(page.removeprefix("page: ")).read_text()
