"""`whyidle check`, and what it told as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whyidle.commands.main import main


def check(*words: str | Path) -> int:
    return main(["check", *map(str, words)])


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, object]]:
    """The checks by name."""
    check(*words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["version"]) == ("whyidle-check", 1)
    return {each["name"]: each for each in found["checks"]}
