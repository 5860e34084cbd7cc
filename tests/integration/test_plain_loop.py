"""Ordinary PyTorch loops, observed through the hooks and analysed: steps, shares and settings as they were."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from whyidle.analyse.analysis import Analysis, analyse
from whyidle.analyse.partition import PARTS
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import STEP
from whyidle.report import contract
from whyidle.scenarios.planted import truth_of


class Slow(Dataset[torch.Tensor]):
    def __init__(self, samples: int, sleep_s: float) -> None:
        self.samples, self.sleep_s = samples, sleep_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sleep_s)
        return torch.full((16,), float(index))


def train(
    loader: DataLoader[torch.Tensor], epochs: int, checking: DataLoader[torch.Tensor] | None = None, host_s: float = 0
) -> list[tuple[str, int, int]]:
    """A loop with stamps of its own: (what, begin_ns, end_ns)."""
    now = time.monotonic_ns
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    spans = []
    for _ in range(epochs):
        begin = now()
        for batch in loader:
            fetched = now()
            spans.append(("fetch", begin, fetched))
            optimizer.zero_grad()
            net(batch).square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            spans.append(("compute", fetched, now()))
            time.sleep(host_s)
            begin = now()
        if checking is not None:
            begin = now()
            with torch.no_grad():
                for batch in checking:
                    net(batch)
            spans.append(("boundary", begin, now()))
    return spans


def analysed(folder: Path) -> Analysis:
    return analyse(open_run(folder))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loops_shares_are_what_the_loop_itself_measured(tmp_path: Path, workers: int) -> None:
    loader = DataLoader(Slow(160, 0.002), batch_size=4, num_workers=workers, persistent_workers=workers > 0)
    checking = DataLoader(Slow(12, 0.003), batch_size=4)
    with recording(tmp_path / "run", "cpu", sampler=False):
        spans = train(loader, 2, checking, host_s=0.002)
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    window, parts = analysis.facts.window, analysis.facts.parts
    assert window.count + window.warmup_steps == 80
    assert analysis.facts.samples == 4 * window.count
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns
    truth = truth_of(spans, window.begin_ns, window.end_ns)
    for part in PARTS:
        assert getattr(parts, f"{part}_ns") == pytest.approx(truth[part], abs=0.02 * window.wall_ns), (part, truth)
    report = contract.report(analysis)
    assert report["input"]["workers"] == workers
    assert report["breakdown"]["boundary_pct"] > 1
    if workers == 0:
        assert analysis.verdict.cause == "input.serial"


def test_very_short_steps_are_looked_at_now_and_then_and_all_counted(tmp_path: Path) -> None:
    loader = DataLoader(Slow(8000, 0), batch_size=4)
    with recording(tmp_path / "run", "cpu", sampler=False):
        spans = train(loader, 2)
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    window = analysis.facts.window
    assert window.count + window.warmup_steps == 4000
    assert analysis.facts.samples == 4 * window.count
    assert len(window.steps) < 3000
    assert any(f"of {window.count} steps only" in note for note in analysis.notes)
    truth = truth_of(spans, window.begin_ns, window.end_ns)
    assert analysis.facts.parts.share("input") == pytest.approx(truth["input"] / window.wall_ns, abs=0.1)


def test_gradient_accumulation_makes_a_step_of_each_batch(tmp_path: Path) -> None:
    loader = DataLoader(Slow(160, 0.001), batch_size=4)
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with recording(tmp_path / "run", "cpu", sampler=False):
        for number, batch in enumerate(loader):
            net(batch).square().mean().backward()  # type: ignore[no-untyped-call]
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.004)
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert analysis.facts.window.count + analysis.facts.window.warmup_steps == 40
    # The sleep comes after an optimizer step: host, not compute.
    assert analysis.facts.parts.share("host") > 0.1


def test_a_recording_has_its_sampler_and_says_how_it_ended(tmp_path: Path) -> None:
    loader = DataLoader(Slow(400, 0.002), batch_size=4)
    with pytest.raises(ZeroDivisionError), recording(tmp_path / "run", "cpu"):
        train(loader, 1)
        raise ZeroDivisionError
    run = open_run(tmp_path / "run")
    assert run.info["ended"]["status"] == "failed"
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert analysis.facts.window.count == 95
    assert analysis.facts.sampled.cpu_budget is not None
    # Everything is as it was: the same loop again leaves nothing behind.
    before = len(run.records(STEP))
    train(loader, 1)
    assert len(open_run(tmp_path / "run").records(STEP)) == before
