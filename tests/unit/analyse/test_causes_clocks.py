"""Clocks that are held down, and a host that launches too slowly: computing that takes longer by the driver's word."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import add, amend, found, steps_of
from support.device_runs import SEVERITIES, STEPS, clocked, computing, shares
from support.planted_runs import looked
from whyidle.analyse.run.analysis import analyse
from whyidle.record.reader import Records
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import DEVICE
from whyidle.scenarios.planted import MS, START, Step, train


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize("reason", [0x20, 0x40, 0x8])
def test_clocks_held_down_by_heat_or_hardware_have_their_share(tmp_path: Path, share: float, reason: int) -> None:
    folder = computing(tmp_path / "run")
    looked(folder, clocked(1500 * (1 - share), reason))
    finding = found(folder)["device.throttled"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert f"{1500 * (1 - share):.0f} instead of 1500 MHz" in finding.title


def test_the_share_of_the_time_counts_and_so_does_the_clock_it_has_otherwise(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    looked(folder, clocked(1300, 0), clocked(650, 0x20))
    finding = found(folder)["device.throttled"]
    assert finding.share == pytest.approx(0.25, abs=0.02)
    assert "650 instead of 1300 MHz for 49 %" in finding.title


def test_heat_that_the_driver_only_counts_is_seen(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    end = int(steps_of(folder)["step_end_ns"].max())
    add(
        folder,
        DEVICE,
        [
            {"t_ns": t, "device": 0, "sm_clock_mhz": 900, "sm_clock_max_mhz": 1500, "thermal_ns": t - START}
            for t in range(START, end, 50 * MS)
        ],
    )
    assert shares(folder) == {"device.throttled": pytest.approx(0.4, abs=0.02)}


@pytest.mark.parametrize(
    "states",
    [
        # Full clocks; slow without a reason; idle; at the power cap all the time and near its highest clock.
        [clocked(1500, 0)],
        [clocked(900, 0)],
        [clocked(300, 0x1)],
        [clocked(1350, 0x4)],
        [{"throttle_reasons": 0x20}],
    ],
)
def test_clocks_that_are_as_they_should_be_or_unknown_are_no_finding(
    tmp_path: Path, states: list[dict[str, float]]
) -> None:
    folder = computing(tmp_path / "run")
    looked(folder, *states)
    assert shares(folder) == {}


def test_a_power_cap_counts_when_it_takes_much_or_comes_and_goes(tmp_path: Path) -> None:
    low = computing(tmp_path / "low")
    looked(low, clocked(1050, 0x4))
    assert shares(low) == {"device.throttled": pytest.approx(0.3, abs=0.02)}
    assert "the power cap" in found(low)["device.throttled"].title
    changing = computing(tmp_path / "changing")
    looked(changing, clocked(1500, 0), clocked(1500, 0), clocked(1230, 0x4))
    assert shares(changing) == {"device.throttled": pytest.approx(0.06, abs=0.01)}


@pytest.mark.parametrize("free", [1, 5, 15])
@pytest.mark.parametrize("most", [1500, 1700])
def test_a_few_looks_free_of_a_usual_power_cap_do_not_make_it_a_brake(tmp_path: Path, free: int, most: float) -> None:
    """A card at its power cap under full load, and now and then at its highest clock under less."""
    folder = computing(tmp_path / "run")
    looked(folder, *[clocked(0.86 * most, 0x4, most)] * (40 - free), *[clocked(most, 0, most)] * free)
    assert shares(folder) == {}
    # Free most of the time, and hardly faster then.
    hardly = computing(tmp_path / "hardly")
    looked(hardly, *[clocked(0.93 * most, 0x4, most)] * 10, *[clocked(most, 0, most)] * 30)
    assert shares(hardly) == {}


def running(folder: Path, share: float) -> None:
    """The training's thread runs so much of its time outside fetches and calls."""

    def change(steps: Records) -> None:
        own = steps["step_end_ns"] - steps["fetch_begin_ns"]
        steps["cpu_ns"] = (share * own).astype("i8")

    amend(folder, change)


@pytest.mark.parametrize("share", [0.2, 0.3, 0.6])
def test_utilisation_far_below_the_steps_span_is_slow_launching(tmp_path: Path, share: float) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", 0.95)
    looked(tmp_path / "run", {}, utilisation_pct=100 * (1 - share))
    finding = found(tmp_path / "run")["host.launch"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert finding.confidence <= 0.5


@pytest.mark.parametrize(("thread", "utilisation"), [(0.95, 90), (0.3, 50), (0.95, None)])
def test_a_busy_device_an_idle_host_or_no_figures_are_no_slow_launching(
    tmp_path: Path, thread: float, utilisation: float | None
) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", thread)
    looked(tmp_path / "run", {}, utilisation_pct=utilisation)
    assert shares(tmp_path / "run") == {}


def test_slow_launching_leaves_the_clocks_their_part(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * STEPS])
    running(tmp_path / "run", 0.95)
    looked(tmp_path / "run", clocked(1050, 0x20), utilisation_pct=60)
    seen = shares(tmp_path / "run")
    assert seen["host.launch"] == pytest.approx(0.4, abs=0.02)
    assert seen["device.throttled"] == pytest.approx(0.6 * 0.3, abs=0.02)


def test_notes_do_not_repeat_what_a_finding_says(tmp_path: Path) -> None:
    said = {}
    for name, clock in (("held", 900), ("free", 1499)):
        folder = computing(tmp_path / name)
        end = int(steps_of(folder)["step_end_ns"].max())
        add(
            folder,
            DEVICE,
            [
                {"t_ns": t, "device": 0, "thermal_ns": t - START} | clocked(clock, 0x20)
                for t in range(START, end, 50 * MS)
            ],
        )
        update_run(folder, {"device": {"kind": "cuda", "title": "a GPU"}})
        said[name] = [n for n in analyse(open_run(folder)).notes if "clocks" in n]
    assert said["held"] == []
    assert len(said["free"]) == 1
