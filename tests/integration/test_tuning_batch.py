"""Batch sizes tried in processes of their own: real memory limits, real ends."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from support.told_trainings import PARTS
from whyidle.capture.bootstrap import environment
from whyidle.record.tuning import LoaderSettings
from whyidle.tune.batch import ProbeOutcome, child_probe, climb
from whyidle.tune.training import Launch

SECONDS = 250.0
"""For a probe, which takes a few on a machine of its own."""
OWN = LoaderSettings(0, batch_size=8)
PROGRAM = """
import resource, signal
MB = 1 << 20
A_SAMPLE = 2 * MB
learn = train

def train(batch):
    # What a large activation would hold.
    held = torch.empty(len(batch), A_SAMPLE, dtype=torch.uint8)
    learn(batch)

def used():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmSize:"))
    return 1024 * int(line.split()[1])
"""
LIMITED = """
train(torch.zeros(8, 4))
room = 700 * MB
limit = used() + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""
LOOP = """
while True:
    for batch in DataLoader(Numbers(0, 3000), batch_size=8, shuffle=True):
        train(batch)
"""


def launch(program: Path) -> Launch:
    return Launch(
        [sys.executable, str(program)], lambda folder, tune: environment(folder, os.environ, {"tune": dict(tune)})
    )


def script(tmp_path: Path, *parts: str) -> Launch:
    path = tmp_path / "train.py"
    path.write_text("".join(map(textwrap.dedent, (PARTS, PROGRAM, *parts))))
    return launch(path)


@pytest.mark.slow
def test_the_ladder_finds_the_limit_of_the_address_space_and_names_only_what_was_run(tmp_path: Path) -> None:
    """2 MiB a sample, of 700 MiB and of all that torch maps anyway, 5 % of which are the margin."""
    probe = child_probe(script(tmp_path, LIMITED, LOOP), tmp_path / "probes", OWN)
    found = climb(probe, 8, 100 * SECONDS, dataset_samples=3000)
    ran = found.probes[found.b_max]
    assert ran.outcome == ProbeOutcome.OK
    assert ran.steps >= 3
    assert ran.memory.peak_bytes is not None
    exact = 8 + (ran.room_bytes - found.probes[8].memory.peak_bytes) / (2 << 20)  # type: ignore[operator]
    assert 0.75 * exact <= found.b_max <= 1.05 * exact
    assert len(found.probes) <= 7
    assert all(size <= found.b_max or not tried.fits for size, tried in found.probes.items())


def test_a_size_that_does_not_fit_is_out_of_memory_and_takes_nobody_along(tmp_path: Path) -> None:
    probe = child_probe(script(tmp_path, LIMITED, LOOP), tmp_path / "probes", OWN)
    tried = probe(500, SECONDS)
    assert tried.outcome == ProbeOutcome.OOM
    assert "allocate memory" in tried.reason
    assert not tried.fits


@pytest.mark.slow
def test_what_the_kernel_kills_counts_as_out_of_memory(tmp_path: Path) -> None:
    kills = LOOP.replace("train(batch)", "train(batch) if len(batch) < 9 else os.kill(os.getpid(), signal.SIGKILL)")
    tried = child_probe(script(tmp_path, kills), tmp_path / "probes", OWN)(16, SECONDS)
    assert tried.outcome == ProbeOutcome.OOM
    assert "killed" in tried.reason


def test_the_largest_samples_come_first(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    told = f"""
    file = open({str(seen)!r}, "w", buffering=1)
    while True:
        for batch in DataLoader(Numbers(0, 3000), 8):
            file.write(" ".join(str(int(x)) for x in batch[:, 0]) + "\\n")
            train(batch)
    """
    tried = child_probe(script(tmp_path, told), tmp_path / "probes", OWN, [2999, 17, 5])(4, SECONDS)
    assert tried.outcome == ProbeOutcome.OK
    lines = seen.read_text().splitlines()
    own = [line for line in lines if line.count(" ") == 7]
    assert own[:2] == ["0 1 2 3 4 5 6 7", "8 9 10 11 12 13 14 15"]
    first, second, third = [line for line in lines if line.count(" ") == 3][:3]
    assert (first, second) == ("2999 17 5 2999", "17 5 2999 17")
    assert third == "0 1 2 3"
