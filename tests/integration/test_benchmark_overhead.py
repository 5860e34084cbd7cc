"""The benchmark of what observing costs: that it runs, and has a row and a verdict for all that it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.overhead import turns
from whyidle.capture.session import Session

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "benchmarks.overhead"]
OBSERVERS = [
    "none",
    "whyidle",
    "whyidle, every step",
    "whyidle, and its sampler",
    "torch.profiler, schedule",
    "torch.profiler, always on",
]


@pytest.mark.slow
def test_every_observer_has_a_row_at_every_length_and_every_target_a_verdict(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [*COMMAND, "--quick", "--json", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text())
    assert [table["target_ms"] for table in figures["tables"]] == [0.2, 10.0]
    for table in figures["tables"]:
        assert [row["observer"] for row in table["rows"]] == OBSERVERS
        for row in table["rows"]:
            assert row["observer"] in done.stdout
            for added in row["added"].values():
                assert added["low"] <= added["median"] <= added["high"]

    targets = [verdict["target"] for verdict in figures["targets"]]
    assert any("µs a step looked at" in target for target in targets)
    assert "under 0.05 s added at the start" in targets
    for verdict in figures["targets"]:
        assert f"{'met   ' if verdict['met'] else 'MISSED'}  {verdict['target']}" in done.stdout


@pytest.mark.slow
def test_in_turns_hooks_see_the_steps_that_they_are_in_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    finish = Session.finish

    def counting(session: Session) -> None:
        seen.append(session.steps.count)
        finish(session)

    monkeypatch.setattr(Session, "finish", counting)
    monkeypatch.setattr(turns, "LENGTHS_MS", (0.2,))
    before = torch.autograd.backward
    lines = list(turns.added(rounds=2, span_s=0.3, device="cpu", seed=1))
    assert torch.autograd.backward is before
    steps = int(lines[1].split(" ms, ")[1].split()[0])
    assert [line[2:30].strip() for line in lines[2:]] == list(turns.KINDS)
    assert len(seen) == 4
    for count in seen:
        assert turns.SETTLING <= count < steps - turns.GROUP
