"""From a running program to the line: whole commands, whose planted lines the report has to name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from support import runs, warm
from support.runs import WITHOUT_COMPILER, report
from whyidle.record.run import open_run
from whyidle.record.schema import NOT_MEASURED, STACK, StackFlag
from whyidle.record.stacks import STACKS, read_stacks

PROGRAM = (
    WITHOUT_COMPILER
    + """
import json, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Shards(Dataset):
    def __len__(self):
        return 640 if "long" in sys.argv else 320
    def __getitem__(self, index):
        item = torch.rand(16)
        slow_read(0.008 if "data" in sys.argv else 0.0)  # data
        return item, index % 4

def slow_read(seconds):
    time.sleep(seconds)

def main():
    torch.manual_seed(0); torch.set_num_threads(1)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Shards(), batch_size=4, num_workers=int(sys.argv[1]))  # made
    for images, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if "log" in sys.argv:
            slow_log(0.03)

def slow_log(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        json.dumps(list(range(300)))  # log

main()
"""
)


def line_of(mark: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return path


def trained(folder: Path, program: Path, *words: str, options: tuple[str, ...] = (), cold: bool = False) -> Any:
    done = (runs if cold else warm).run(folder, sys.executable, program, *words, options=("--no-live", *options))
    assert done.returncode == 0, done.stderr
    return report(folder)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_line_that_makes_batches_slow_is_named_and_where_their_loader_is_made(
    tmp_path: Path, program: Path, workers: str
) -> None:
    where = trained(tmp_path / "run", program, workers, "data", "long")["verdict"]["where"]
    assert where[0]["file"] == str(program)
    assert PROGRAM.splitlines()[where[0]["line"] - 1].strip() == "time.sleep(seconds)"
    assert where[0]["function"] == "slow_read"
    assert where[0]["code"] == "time.sleep(seconds)"
    assert where[-1]["line"] == line_of("made")
    assert where[-1]["share_pct"] is None


@pytest.mark.parametrize("kept", [True, False])
def test_the_line_of_the_loop_is_named_and_its_source_where_that_is_wanted(
    tmp_path: Path, program: Path, kept: bool
) -> None:
    options = () if kept else ("--no-source",)
    told = trained(tmp_path / "run", program, "0", "log", options=options)["verdict"]
    assert told["cause"] == "host.step_gap"
    first = told["where"][0]
    assert (first["line"], first["function"]) == (line_of("log"), "slow_log")
    assert [line["code"] == "" for line in told["where"]] == [not kept] * len(told["where"])
    assert ("json.dumps" in (tmp_path / "run" / STACKS).read_text()) == kept


def test_nothing_is_looked_at_where_that_is_switched_off(tmp_path: Path, program: Path) -> None:
    told = trained(tmp_path / "run", program, "0", "log", options=("--stacks", "off"))
    assert "where" not in told["verdict"]
    assert len(open_run(tmp_path / "run").records(STACK)) == 0


REFUSE = """
import importlib.metadata, sys
if "whyidle.capture.sampler" in sys.orig_argv:
    def none(name):
        raise importlib.metadata.PackageNotFoundError(name)
    importlib.metadata.distribution = none
"""
"""The sampler takes the py-spy on its path: one that says what it does where the system refuses. This kernel may lack
the rule, and root may look into everything."""
PY_SPY_REFUSED = """#!/bin/sh
echo "Permission Denied: Try running again with elevated permissions by going 'sudo env \\"PATH=\\$PATH\\" !!'" >&2
exit 1
"""


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler, and it alone, may not look into other processes."""
    folder = tmp_path / "refuse"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REFUSE)
    (folder / "py-spy").write_text(PY_SPY_REFUSED)
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(folder), os.environ["PATH"])))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.slow), "2"])
def test_where_the_sampler_is_refused_the_processes_look_at_themselves(
    tmp_path: Path, program: Path, workers: str
) -> None:
    told = trained(tmp_path / "run", program, workers, "data", "long", cold=True)
    looks = open_run(tmp_path / "run").records(STACK)
    within = looks[(looks["flags"] & StackFlag.FROM_WITHIN) != 0]
    assert len(within) == len(looks) > 0
    # How many of them there are, so whether a finding names a line, is the machine's doing; what they see is not.
    stacks = read_stacks(tmp_path / "run")
    seen = {call.function for number in set(looks["stack"].tolist()) - {NOT_MEASURED} for call in stacks.stack(number)}
    assert "slow_read" in seen
    assert told["verdict"]["where"]
    assert any("a thread within it samples them" in note for note in told["quality"]["notes"])


@pytest.mark.usefixtures("refusing")
def test_nobody_looks_where_the_sampler_is_refused_and_it_was_told_to_look_from_outside(
    tmp_path: Path, program: Path
) -> None:
    told = trained(tmp_path / "run", program, "0", "log", options=("--stacks", "outside"), cold=True)
    assert "where" not in told["verdict"]
    assert any("they are not recorded" in note for note in told["quality"]["notes"])
