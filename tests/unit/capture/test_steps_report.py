"""What the parts of steps become in the report, on a device with a queue: fetches within, no fetches, passes ahead."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.stall_breakdown import UNTOLD
from whyidle.capture.session import Session
from whyidle.devices.clock import VirtualClock
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.record.run import create_run, open_run, update_run
from whyidle.report import live
from whyidle.report.contract import run as contract
from whyidle.report.documents.run import run_document
from whyidle.report.render.text import print_document

MS = 1_000_000


@pytest.fixture
def device() -> EmulatedDevice:
    return EmulatedDevice(EmulatedSpec("test", "Test", 10**9, 10e9, 5e9), VirtualClock(1_000 * MS))


def analysed(folder: Path, device: EmulatedDevice) -> Analysis:
    update_run(folder, {"device": device.describe(), "ended": {"status": "ok", "error": None, "exit_code": 0}})
    return analyse(open_run(folder))


def test_a_fetch_within_a_step_costs_a_device_what_it_idles_behind_it(tmp_path: Path, device: EmulatedDevice) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    steps, clock = session.steps, device.clock
    for number in range(40):
        steps.fetch_begin(0, number == 0, None)
        steps.fetch_end(4, begins=True)
        device.compute(5 * MS)
        steps.fetch_within_begin()
        clock.advance(12 * MS)
        steps.fetch_within_end(8)
        device.compute(3 * MS)
        steps.optimizer_end()
        device.synchronize()
    session.finish()
    facts = analysed(tmp_path / "run", device).facts
    assert facts is not None
    assert facts.batch_size == 8
    # Of the 12 ms the device still computes for 5.
    assert facts.parts.share("input") == pytest.approx(7 / 15, abs=0.01)
    assert facts.parts.share("compute") == pytest.approx(8 / 15, abs=0.01)


def test_a_forward_pass_ahead_of_the_fetch_is_computing_on_a_device_too(tmp_path: Path, device: EmulatedDevice) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    steps, clock, nodes = session.steps, device.clock, 0
    steps.graph = lambda: nodes
    for number in range(40):
        steps.fetch_begin(0, number == 0, None)
        clock.advance(9 * MS)
        steps.fetch_end(4, begins=True)
        steps.backward_begin()
        device.compute(4 * MS)
        steps.optimizer_end()
        nodes += 5
        device.compute(3 * MS)  # the next batch's forward pass
    session.finish()
    analysis = analysed(tmp_path / "run", device)
    facts = analysis.facts
    assert facts is not None
    # Both passes run while the next batch is fetched.
    assert facts.parts.share("compute") == pytest.approx(7 / 9, abs=0.01)
    assert facts.parts.share("input") == pytest.approx(2 / 9, abs=0.01)
    assert any("forward pass runs between" in note for note in analysis.notes)


@pytest.mark.parametrize("copies", [False, True])
def test_without_a_loader_nothing_is_told_apart_that_is_not_known(
    tmp_path: Path, device: EmulatedDevice, copies: bool
) -> None:
    session = Session(create_run(tmp_path / "run", {}), device)
    for number in range(40):
        session.steps.fetch_begin(0, number == 0, None)
        session.steps.compute_begin()
        device.clock.advance(6 * MS)
        if copies:
            _, copy = device.copy([torch.zeros(10_000_000, dtype=torch.uint8)], pinned=True)
            session.steps.copied(copy)
        device.compute(9 * MS)
        session.steps.optimizer_end()
        device.synchronize()
    session.finish()
    analysis = analysed(tmp_path / "run", device)
    facts, report = analysis.facts, contract.report(analysis)
    assert facts is not None
    assert facts.told_apart == copies
    assert (report.breakdown.compute_pct is None) == (report.device.busy_pct is None) == (not copies)
    assert report.breakdown.input_pct is None
    assert (UNTOLD in facts.shares) != copies
    assert sum(facts.shares.values()) == pytest.approx(1)
    if not copies:
        assert report.verdict.cause is None
        assert (report.device.au_pct, report.device.gaps.count) == (None, None)
        shown = io.StringIO()
        print_document(run_document(analysis), Console(file=shown, width=120))
        assert "not told apart" in shown.getvalue()
        assert shown.getvalue().count("no fetch") == 1
        assert "device busy n/a" in live.line(RecentReader(tmp_path / "run").snapshot())
