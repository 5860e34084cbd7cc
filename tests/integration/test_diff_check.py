"""A gate as a CI runs it: the exit code is what that goes by."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from support.pairs import noisy
from support.runs import WHYIDLE


def test_a_gate_as_in_ci(tmp_path: Path) -> None:
    """Of a training without a worker, and the same with three, which waits a third as long."""
    file, random = tmp_path / "check.xml", np.random.default_rng(0)
    for workers, ms, code in ((0, 96.0, 1), (3, 32.0, 0)):
        run = noisy(tmp_path / f"workers-{workers}", random, fetch_ms=ms, compute_ms=10, workers=workers)
        command = [*WHYIDLE, "check", run, "--forbid", "input.serial", "--junit", file, "--json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["passed"] is (code == 0)
        failed = [case for case in ElementTree.parse(file).iter("testcase") if case.find("failure") is not None]
        assert len(failed) == code
