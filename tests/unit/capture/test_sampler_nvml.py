"""NVML as the sampler uses it: the real `pynvml`, loading a library made from `tests/support/fakes/nvml.c`."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import HEALTHY, NAMES, FakeDriver
from whyidle.commands.main import main
from whyidle.record.run import SampledDevice, open_run, sampled_devices, sampled_driver


def test_the_source_says_what_the_driver_says(looks: Callable[..., Any], driver: FakeDriver) -> None:
    script = HEALTHY + "gpm 61.5 12.25 8.5 33\n"
    said, found = looks(script, [i / 5 for i in range(12)])
    rows = [r for look in found for r in look]
    assert said == []
    assert {r["device"] for r in rows} == {0}

    assert [r["utilisation_pct"] for r in rows if "utilisation_pct" in r] == [37] * 12
    assert all("window_ns" not in r for r in rows if "utilisation_pct" in r)

    states = [r for r in rows if "memory_used_bytes" in r]
    assert len(states) == 3
    constant = {
        "utilisation_pct": 37,
        "memory_util_pct": 21,
        "memory_used_bytes": 5_000_000_000,
        "memory_total_bytes": 80_000_000_000,
        "power_mw": 312_500,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "memory_clock_mhz": 2619,
        "temperature_c": 64,
        "throttle_reasons": 4,
    }
    links = {"pcie_generation": 5, "pcie_width": 16, "pcie_max_generation": 5, "pcie_max_width": 16}
    for i, state in enumerate(states):
        # The counters count on, the one of 32 bits past its wrap.
        assert {n: v for n, v in state.items() if n != "t_ns"} == constant | (links if i == 2 else {}) | {
            "device": 0,
            "power_capped_ns": 500 + 100 * i,
            "thermal_ns": 1005 + 11 * i,
            "pcie_tx_bytes": 7_000_000_000 + 1000 * i,
            "pcie_rx_bytes": 4_000_000_000 + 3_000_000_000 * i,
        }

    gpm = [r for r in rows if "sm_active_pct" in r]
    assert len(gpm) == 11
    for before_this, window in pairwise(gpm):
        assert window["window_ns"] == window["t_ns"] - before_this["t_ns"] == 200_000_000
        shares = [window[n] for n in ("sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "dram_active_pct")]
        assert shares == [61.5, 12.25, 8.5, 33]
    called = {name for name, _ in driver.calls()}
    assert not called & {"nvmlDeviceGetPcieThroughput", "nvmlDeviceGetComputeRunningProcesses_v3"}


def test_rare_readings_come_rarely(looks: Callable[..., Any], driver: FakeDriver) -> None:
    steps = [i / 5 for i in range(5 * 60)]
    said, rows = looks(HEALTHY, steps)
    assert said == []
    of = {name: [t for t, look in zip(steps, rows, strict=True) if any(name in r for r in look)] for name in NAMES}
    assert of["pcie_generation"] == of["pcie_width"] == [2, 12, 22, 32, 42, 52]
    assert of["processes"] == [5, 25, 45]
    assert of["power_mw"] == list(range(60))
    calls = [name for name, _ in driver.calls()]
    assert calls.count("nvmlDeviceGetFieldValues") == 60
    last = [r for r in rows[25] if "processes" in r]
    assert [r["processes"] for r in last] == [2]


LINK = ("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width")


def test_a_capability_that_is_refused_leaves_the_figure_itself(looks: Callable[..., Any], driver: FakeDriver) -> None:
    refused = {
        "nvmlDeviceGetMaxClockInfo": "the highest multiprocessor clock",
        "nvmlDeviceGetMaxPcieLinkGeneration": "the highest PCIe generation",
        "nvmlDeviceGetMaxPcieLinkWidth": "the greatest PCIe width",
    }
    said, rows = looks(HEALTHY + "" + "".join(f"fault {name} 3\n" for name in refused), [0, 2, 13])
    seen = set().union(*(r for look in rows for r in look))
    assert {"sm_clock_mhz", "pcie_generation", "pcie_width"} <= seen
    assert not {"sm_clock_max_mhz", "pcie_max_generation", "pcie_max_width"} & seen
    words = "This GPU or its driver does not give it (Not Supported)."
    assert sorted(said) == sorted(f"Not measured: {metric}. {words}" for metric in refused.values())
    assert all([name for name, _ in driver.calls()].count(function) == 1 for function in refused)


def test_devices_are_those_named_in_their_order(looks: Callable[..., Any], driver: FakeDriver) -> None:
    script = HEALTHY + "devices 3\nfault nvmlDeviceGetPowerUsage 3 0 2\n"
    said, rows = looks(script, [0], uuids=("GPU-fake-2", "GPU-fake-0", "GPU-else"))
    assert [(r["device"], r.get("power_mw")) for r in rows[0]] == [(0, None), (1, 312_500)]
    assert {gpu for _, gpu in driver.calls()} == {0, 2}
    assert "The driver does not show the GPU GPU-else (Not Found), so it is not recorded." in said


def test_what_devices_are_called_is_noted_once_and_what_is_refused_is_not_made_up(
    recorded: Callable[..., Any], tmp_path: Path
) -> None:
    recorded(HEALTHY + "devices 2\nfault nvmlDeviceGetEnforcedPowerLimit 3 0 1")
    assert sampled_devices(tmp_path / "run") == (
        SampledDevice(0, "NVIDIA Fake 0", 700_000),
        SampledDevice(1, "NVIDIA Fake 1", None),
    )


def test_the_version_of_the_driver_is_noted_once_and_a_part_of_the_runs_device(
    recorded: Callable[..., Any], tmp_path: Path
) -> None:
    _, notices = recorded(HEALTHY + "driver 570.133.20\ndevices 2")
    assert sampled_driver(tmp_path / "run") == "570.133.20"
    assert open_run(tmp_path / "run").info["device"] == {"kind": "cuda", "uuids": [], "driver": "570.133.20"}
    assert "driver" not in notices
    # What the training wrote is left as it is.
    assert "driver" not in json.loads((tmp_path / "run" / "run.json").read_text())["device"]


def test_a_driver_that_does_not_tell_its_version_has_none(recorded: Callable[..., Any], tmp_path: Path) -> None:
    rows, notices = recorded(HEALTHY + "fault nvmlSystemGetDriverVersion 3")
    assert any("power_mw" in row for row in rows)
    assert sampled_driver(tmp_path / "run") is None
    assert "driver" not in open_run(tmp_path / "run").info["device"]
    assert "Not measured: the version of the driver." in notices


def test_where_nothing_trains_all_gpus_are_looked_at_at_once(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.behave(HEALTHY + "devices 2")
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    assert main(["live", "--gpus", "--once", "--json"]) == 0
    devices = json.loads(capsys.readouterr().out)["devices"]
    assert [(device["name"], device["memory_used_bytes"]) for device in devices] == [
        ("NVIDIA Fake 0", 5_000_000_000),
        ("NVIDIA Fake 1", 5_000_000_000),
    ]
    assert all(device["busy_pct"][-1] == 37 for device in devices)


def test_a_driver_without_a_gpu_says_so(looks: Callable[..., Any]) -> None:
    said = "The NVIDIA driver shows no GPU here, so there are no accelerator figures."
    assert looks("devices 0\n", [0]) == ([said], [[]])


REFUSED = [
    (3, "Not Supported"),
    (13, "Function Not Found"),
    (25, "fake error 25"),
    (2, "Invalid Argument"),
]
STATE = {
    "nvmlDeviceGetPowerUsage": ("power draw", {"power_mw"}),
    "nvmlDeviceGetTemperature": ("temperature", {"temperature_c"}),
    "nvmlDeviceGetCurrentClocksEventReasons": ("clock event reasons", {"throttle_reasons"}),
}


@pytest.mark.parametrize(("code", "words"), REFUSED)
def test_a_metric_that_is_refused_is_asked_for_once_and_never_zero(
    looks: Callable[..., Any], driver: FakeDriver, code: int, words: str
) -> None:
    script = HEALTHY + "" + "".join(f"fault {name} {code}\n" for name in STATE)
    said, rows = looks(script, [0, 1, 2])
    states = [r for look in rows for r in look if "memory_used_bytes" in r]
    assert len(states) == 3
    missing = set().union(*(fields for _, fields in STATE.values()))
    assert all(not missing & set(state) for state in states)
    for function, (metric, _) in STATE.items():
        assert [name for name, _ in driver.calls()].count(function) == 1
        assert f"Not measured: {metric}. This GPU or its driver does not give it ({words})." in said
    assert len(said) == len(STATE)


def test_older_names_of_a_call_are_tried(looks: Callable[..., Any]) -> None:
    said, rows = looks(HEALTHY + "fault nvmlDeviceGetMemoryInfo_v2 13\n", [0])
    assert [r["memory_used_bytes"] for r in rows[0] if "power_mw" in r] == [5_000_000_000]
    assert said == []


def test_a_refused_permission_names_the_setting(looks: Callable[..., Any]) -> None:
    script = HEALTHY + "gpm 1 2 3 4\nfault nvmlGpmSampleGet 4\n"
    said, rows = looks(script, [0, 0.2, 0.4])
    assert not [r for look in rows for r in look if "sm_active_pct" in r]
    assert said == [
        "Not measured: multiprocessor activity (GPM). The driver refuses it to this user (Insufficient "
        "Permissions); run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0."
    ]


def test_a_gpm_metric_that_is_missing_leaves_the_others(looks: Callable[..., Any]) -> None:
    said, rows = looks(HEALTHY + "gpm 61 -1 nan 4\n", [0, 0.2, 0.4])
    windows = [r for look in rows for r in look if "sm_active_pct" in r]
    assert len(windows) == 2
    assert all(set(w) == {"t_ns", "device", "window_ns", "sm_active_pct", "dram_active_pct"} for w in windows)
    assert said == ["Not measured: sm_occupancy_pct (GPM). This GPU or its driver does not give it (Not Supported)."]


def test_counters_fall_back_to_the_older_thermal_one(looks: Callable[..., Any]) -> None:
    script = """
        memory 1 2
        state 1 1 1 1 1 1 1 1
        field 75 3 900 50
        fieldfault 74 4
    """
    said, rows = looks(script, [0, 1, 2])
    states = [r for look in rows for r in look if "power_mw" in r]
    assert [s.get("thermal_ns") for s in states] == [None, 900, 950]
    assert not any({"power_capped_ns", "pcie_rx_bytes", "pcie_tx_bytes"} & set(s) for s in states)
    assert sorted(s.split(".")[0] for s in said) == [
        "Not measured: PCIe bytes received",
        "Not measured: PCIe bytes sent",
        "Not measured: time held down by temperature (hardware)",
        "Not measured: time held down by temperature (software)",
        "Not measured: time held down by the power cap",
    ]


def test_a_memory_figure_that_is_marked_absent_is_not_measured(looks: Callable[..., Any]) -> None:
    """The driver marks it with 2^64 - 1, which no field holds."""
    script = HEALTHY.replace("memory 5000000000 ", f"memory {2**64 - 1} ")
    _, rows = looks(script, [0])
    (state,) = [r for r in rows[0] if "power_mw" in r]
    assert "memory_used_bytes" not in state
    assert state["memory_total_bytes"] == 80_000_000_000
