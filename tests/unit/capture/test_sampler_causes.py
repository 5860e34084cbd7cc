"""From the driver to the verdict: what the made-up NVML says of clocks, links and processes, sampled and diagnosed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.crafted import add, found
from whyidle.record.schema import DEVICE
from whyidle.scenarios.planted import MS, START, Step, train

SECONDS = 45
"""Links are looked at every ten seconds."""
STATE = "memory 5000000000 80000000000\nutil {util} 21\nstate 300000 {clock} 2619 64 {reasons} {generation} {width} 1\n"
LIMITS = "limits 1980 4 16\n"


def diagnosed(folder: Path, looks: Callable[..., Any], script: str, step: Step) -> dict[str | None, Any]:
    """A training of so many seconds on the virtual clock, and what the driver showed meanwhile."""
    each = step.compute_ns + step.fetch_ns + step.copy_bytes // 10
    train(folder, [[step] * (SECONDS * 1000 * MS // each)])
    _, rows = looks(script, [float(second) for second in range(SECONDS)])
    first = min(row["t_ns"] for look in rows for row in look)
    told = [row | {"t_ns": START + row["t_ns"] - first} for look in rows for row in look]
    add(folder, DEVICE, told)
    return found(folder)


@pytest.mark.parametrize(
    ("reasons", "clock", "share"), [(0x40, 990, 0.5), (0x20, 1386, 0.3), (0x80, 1485, 0.25), (0x4, 1188, 0.4)]
)
def test_clocks_that_the_driver_says_are_held_down_are_throttled(
    tmp_path: Path, looks: Callable[..., Any], reasons: int, clock: int, share: float
) -> None:
    script = STATE.format(util=99, clock=clock, reasons=reasons, generation=4, width=16) + LIMITS
    causes = diagnosed(tmp_path / "run", looks, script, Step(fetch_ns=MS, compute_ns=50 * MS))
    assert causes["device.throttled"].share == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("generation", "width", "lost"), [(1, 16, 7 / 8), (4, 4, 3 / 4), (3, 16, 1 / 2)])
def test_a_link_that_the_driver_says_is_below_its_capability_is_named(
    tmp_path: Path, looks: Callable[..., Any], generation: int, width: int, lost: float
) -> None:
    script = STATE.format(util=99, clock=1980, reasons=0, generation=generation, width=width) + LIMITS
    # 300 MB at 10 GB/s: 30 of 80 ms are copying.
    step = Step(fetch_ns=MS, compute_ns=50 * MS, copy_bytes=300_000_000)
    causes = diagnosed(tmp_path / "run", looks, script, step)
    assert causes["copy.link"].share == pytest.approx(lost * 30 / 80, abs=0.03)


def test_a_driver_that_shows_nothing_unusual_adds_nothing(tmp_path: Path, looks: Callable[..., Any]) -> None:
    script = STATE.format(util=99, clock=1935, reasons=0, generation=4, width=16) + LIMITS
    assert diagnosed(tmp_path / "run", looks, script, Step(fetch_ns=MS, compute_ns=50 * MS)) == {}


def test_a_driver_that_does_not_know_the_limits_supports_no_verdict(tmp_path: Path, looks: Callable[..., Any]) -> None:
    """Nothing to compare with: not measured is not zero, and no cause."""
    faults = "".join(
        f"fault {name} 3\n"
        for name in (
            "nvmlDeviceGetMaxClockInfo",
            "nvmlDeviceGetMaxPcieLinkGeneration",
            "nvmlDeviceGetMaxPcieLinkWidth",
        )
    )
    script = STATE.format(util=99, clock=990, reasons=0x40, generation=1, width=4) + faults
    step = Step(fetch_ns=MS, compute_ns=50 * MS, copy_bytes=300_000_000)
    causes = diagnosed(tmp_path / "run", looks, script, step)
    assert not {"copy.link", "device.throttled"} & causes.keys()
