"""Running commands through `whyidle run`, as a user does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from whyidle.commands.main import main

WHYIDLE = [sys.executable, "-m", "whyidle"]

WITHOUT_COMPILER = """
import sys, types, torch
torch._dynamo = sys.modules["torch._dynamo"] = types.SimpleNamespace(
    disable=lambda function, *_, **__: function, graph_break=lambda: None
)
"""
"""Begins a program that compiles nothing: torch imports its compiler with the first optimizer, which takes as long as
the rest of the program's start."""


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder for temporary files by a short path. Sockets by which workers hand over memory lie in it, whose paths
    have at most 107 bytes: side by side, pytest's own folders are too deep."""
    with tempfile.TemporaryDirectory(prefix="st-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def ended(*command: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with what it printed."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, **more)


def run(
    folder: Path, *command: str | Path, options: tuple[str, ...] = ("--no-live",), **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, recorded into `folder`."""
    return ended(*WHYIDLE, "run", *options, "--out", folder, "--", *command, timeout=250, **more)


def report(folder: Path) -> dict[str, Any]:
    """The JSON report of a recording."""
    done = called("report", folder, "--json")
    assert done.returncode == 0
    return dict(json.loads(done.stdout))


def steps_of(folder: Path) -> int:
    """All steps that a recording has, with the warm-up."""
    window = report(folder)["window"]
    return int(window["steps"] + window["warmup_steps"])


def called(*words: object) -> subprocess.CompletedProcess[str]:
    """A command in this process: starting one takes longer than its own work."""
    command = [str(word) for word in words]
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()) as said:
        code = main(command)
    return subprocess.CompletedProcess(command, code, shown.getvalue(), said.getvalue())


def mistaken(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What is said of a command that is a mistake: it prints nothing else."""
    capsys.readouterr()
    try:
        code = main([str(word) for word in words])
    except SystemExit as ended:  # of argparse
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert "Traceback" not in shown.err
    return " ".join(shown.err.split())
