"""Copies to the device: which cause they have, at several sizes, and how a slow link shares them with the others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from support.crafted import add, evidence, facts_of_run, found
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.record.schema import DEVICE
from whyidle.scenarios.planted import MS, START, Step, train

SEVERITIES = [0.12, 0.3, 0.6]
COMPUTE = 10 * MS
PINNED_BYTES_PER_MS = 10_000_000


def copying(folder: Path, share: float, **how: Any) -> Path:
    """Copies that make up so much of the step, pinned or not."""
    ms = 10 * share / (1 - share)
    speed = PINNED_BYTES_PER_MS if how.get("pinned", True) else PINNED_BYTES_PER_MS // 2
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, copy_bytes=round(ms * speed), **how)] * 150])
    return folder


def linked(folder: Path, *looks: tuple[int, int], most: tuple[int, int] = (4, 16), device: int = 0) -> None:
    """Looks at the link, (generation, width) in turns, every 50 ms."""
    rows = [
        {
            "t_ns": START + n * 50 * MS,
            "device": device,
            "pcie_generation": looks[n % len(looks)][0],
            "pcie_width": looks[n % len(looks)][1],
            "pcie_max_generation": most[0],
            "pcie_max_width": most[1],
        }
        for n in range(200)
    ]
    add(folder, DEVICE, rows)


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize(("pinned", "cause"), [(False, "copy.pageable"), (True, "copy.serial")])
def test_exposed_copies_have_their_share(tmp_path: Path, share: float, pinned: bool, cause: str) -> None:
    folder = copying(tmp_path / "run", share, pinned=pinned)
    shares = {name: finding.share for name, finding in found(folder).items()}
    assert shares == {cause: pytest.approx(share, abs=0.02)}
    change = found(folder)[cause].next[0]
    assert change.low is not None
    assert change.predicted_samples_per_s is not None
    assert change.high is not None
    now = facts_of_run(folder).samples_per_s
    assert now * math.exp(-1.645 * SCATTER_SD) <= change.low < change.predicted_samples_per_s < change.high


def test_copies_beside_the_computation_are_no_finding(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.3, ahead=True)
    linked(folder, (4, 16))
    assert found(folder) == {}


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize(("pinned", "other"), [(False, "copy.pageable"), (True, "copy.serial")])
def test_a_slow_link_takes_what_its_full_speed_would_save_and_leaves_the_rest(
    tmp_path: Path, share: float, pinned: bool, other: str
) -> None:
    folder = copying(tmp_path / "run", share, pinned=pinned)
    linked(folder, (4, 8))
    shares = {name: finding.share for name, finding in found(folder).items()}
    assert shares == {
        "copy.link": pytest.approx(share / 2, abs=0.02),
        other: pytest.approx(share / 2, abs=0.02),
    }
    seen = found(folder)["copy.link"]
    assert "PCIe 4 x8 instead of PCIe 4 x16" in seen.title
    assert evidence(seen)["bandwidth, of what device and slot are capable of"] == pytest.approx(50)


def test_a_link_that_turns_itself_down_when_idle_is_judged_at_its_best(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.3)
    linked(folder, (1, 16), (1, 16), (4, 16))
    assert set(found(folder)) == {"copy.serial"}


def idling(folder: Path) -> Path:
    """Copies of 10 % of the time in a training that mostly waits for data."""
    step = Step(fetch_ns=40 * MS, compute_ns=3 * MS, copy_bytes=40_000_000, pinned=True)
    train(folder, [[step] * 150])
    return folder


def test_the_link_of_a_device_that_is_mostly_idle_says_nothing(tmp_path: Path) -> None:
    folder = idling(tmp_path / "run")
    linked(folder, (1, 16))
    assert "copy.link" not in found(folder)
    rows = [{"t_ns": START + n * 50 * MS, "device": 0, "window_ns": 50 * MS} for n in range(200)]
    add(folder, DEVICE, [row | {"utilisation_pct": 8.0} for row in rows])
    assert "copy.link" not in found(folder)


def test_looks_while_the_device_is_in_use_judge_its_link(tmp_path: Path) -> None:
    """Another phase of the same run keeps it busy."""
    folder = idling(tmp_path / "run")
    linked(folder, (1, 16))
    rows = [{"t_ns": START + n * 50 * MS, "device": 0, "window_ns": 50 * MS} for n in range(100, 150)]
    add(folder, DEVICE, [row | {"utilisation_pct": 95.0} for row in rows])
    assert found(folder)["copy.link"].share == pytest.approx(0.1 * 0.875, abs=0.01)


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize("width", [12, 8, 1])
def test_no_change_for_a_slow_link_removes_more_than_it_costs(tmp_path: Path, share: float, width: int) -> None:
    folder = copying(tmp_path / "run", share)
    linked(folder, (4, width))
    facts, seen = facts_of_run(folder), found(folder).get("copy.link")
    if seen is None:
        assert share * (1 - width / 16) < 0.05
        return
    most = facts.samples_per_s_without(seen.share * facts.parts.wall_ns)
    assert most is not None
    for change in seen.next:
        assert change.predicted_samples_per_s is not None
        assert change.high is not None
        assert change.predicted_samples_per_s <= most * 1.001
        assert change.high <= most * math.exp(1.645 * SCATTER_SD) * 1.001


def test_an_old_generation_in_a_new_slot_is_a_slow_link(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.6)
    linked(folder, (3, 16), most=(5, 16))
    assert found(folder)["copy.link"].share == pytest.approx(0.6 * 0.75, abs=0.02)


def test_of_several_devices_the_best_link_counts(tmp_path: Path) -> None:
    """Which of them this training copies to is not known."""
    folder = copying(tmp_path / "run", 0.3)
    linked(folder, (4, 4))
    linked(folder, (4, 16), device=1)
    assert "copy.link" not in found(folder)


def test_a_link_nobody_looked_at_is_unknown(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.3)
    state = facts_of_run(folder).device_state
    assert state is not None
    assert state.link is None
    linked(folder, (0, 0), most=(0, 0))
    state = facts_of_run(folder).device_state
    assert state is not None
    assert state.link is None


def test_what_is_copied_ahead_is_not_told_to_be_even_where_copies_take_longer_than_computing(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.6, ahead=True)
    assert facts_of_run(folder).parts.share("copy") > 0.1
    assert "copy.serial" not in found(folder)
