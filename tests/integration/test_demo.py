"""`make demo`: its commands are whyidle's, its order is that of the tool's uses, and its end says what was found."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from whyidle.commands.main import parser

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 1200
"""Of a whole demo, on however busy a machine."""
SCREENS = 60
"""Lines that it prints at most."""

pytestmark = pytest.mark.timeout(LONGEST_S)


def test_each_command_of_the_script_is_one_that_whyidle_takes() -> None:
    script = (ROOT / "scripts" / "demo.sh").read_text().replace("\\\n", " ")
    given = {"device": "emulated:v100"}
    verbs = []
    for line in script.splitlines():
        _, found, words = line.partition('"$bin/whyidle" ')
        if not found:
            continue
        words = re.sub(r"\$\{?(\w+)\}?", lambda name: given.get(name[1], "8"), words.partition(" > ")[0])
        asked = parser().parse_args(shlex.split(words))
        verbs.append((asked.verb, getattr(asked, "budget", None)))
    assert verbs == [
        ("data", None),
        *(("compare", None), ("compare", None), ("report", None), ("report", None)),
        *(("compare", 8.0), ("run", None), ("report", None), ("diff", None)),
    ]


@pytest.mark.slow
def test_it_runs_for_real_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("docs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    ended = subprocess.run(
        [ROOT / "scripts" / "demo.sh", Path(sys.executable).parent],
        cwd=tmp_path,
        env=os.environ | {"IMAGES": "24", "EPOCHS": "2", "BUDGET": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    printed = ended.stdout.splitlines()
    assert len(printed) <= SCREENS
    *_, last = heads = [line.partition(":")[0] for line in printed if line.startswith("== ")]
    assert len(heads) == 3
    assert any(re.match(r"  caffe +\d", line) for line in printed)
    assert any(line.startswith("Verdict  ") for line in printed)
    # Runs as short as these need not be advised.
    assert printed[-2].startswith("Measured: ") == last.startswith("== The proof")
    assert "caffe" in Path(printed[-1].rpartition("Page: ")[2]).read_text()
