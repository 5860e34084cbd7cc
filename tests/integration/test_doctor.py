"""`whyidle doctor` on the machine that the tests run on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from support.runs import called

STATUSES = {"ok", "limited", "missing", "not applicable"}


def test_it_says_what_can_be_measured_here(tmp_path: Path) -> None:
    content = json.loads(called("doctor", "--json", "--out", tmp_path / "runs").stdout)
    assert (content["format"], content["version"]) == ("whyidle-doctor", 1)
    checks = {check["name"]: check for check in content["checks"]}
    assert len(checks) == len(content["checks"])
    for check in checks.values():
        assert check["status"] in STATUSES
        assert check["says"]
        # What is not well has a price.
        assert check["lost"] or check["status"] in ("ok", "not applicable")
        assert "The check failed" not in check["says"]
    assert checks["torch"]["values"]["version"] == torch.__version__
    hooks = checks["Hooks (whyidle run)"]
    assert (hooks["status"], hooks["values"]["armed"]) == ("ok", "yes")
    assert checks["CUDA in torch"]["values"]["available"] == ("yes" if torch.cuda.is_available() else "no")
    assert checks["Place for runs"]["values"]["folder"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_python_that_ignores_its_environment_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    isolated = tmp_path / "python"
    isolated.write_text(f'#!/bin/sh\nexec {sys.executable} -I "$@"\n')
    isolated.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(isolated))
    done = called("doctor", "--json", "--out", tmp_path)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["Hooks (whyidle run)"]["status"] == "missing"
    assert "-I" in checks["Hooks (whyidle run)"]["fix"]
