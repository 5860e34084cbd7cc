"""What `doctor` says of driver and GPUs, against the made-up driver and faked machines without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import HEALTHY, FakeDriver

ASK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from whyidle.capture.probes import accelerator
checks = (accelerator.driver(Path(sys.argv[1])), *accelerator.gpus())
print(json.dumps([asdict(check) for check in checks]))
"""
GPM = "gpm 61 12 8 33\n"
NO_PERMISSION = 4
WITHOUT_COUNTERS = "memory 5 80\nutil 37 21\nstate 312500 1755 2619 64 4 5 16 2\n" + GPM
NO_LIBRARY = "init 12\n"
CONTAINER = {".dockerenv": ""}
BUS = "sys/bus/pci/devices/0000:01:00.0"
ON_BUS = {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x030200\n"}
AUDIO = {f"{BUS}/vendor": "0x10de\n", f"{BUS}/class": "0x040300\n"}
MODULE = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n"}
ACTIVITY, LINK, DRIVER = "GPU 0: SM activity", "GPU 0: PCIe link", "NVIDIA driver"


@pytest.fixture
def doctor(driver: FakeDriver, tmp_path: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """The checks by name, for a script of the driver and the files of a machine."""

    def check(script: str, files: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
        driver.behave(script)
        for name, text in (files or {}).items():
            (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "root" / name).write_text(text)
        command = [sys.executable, "-c", ASK, str(tmp_path / "root")]
        environment = os.environ | driver.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return {check["name"]: check for check in json.loads(done.stdout)}

    return check


@pytest.mark.parametrize(
    ("script", "name", "status", "says"),
    [
        (HEALTHY + GPM, DRIVER, "ok", ("580.95.05", "it shows 1 GPU.")),
        (HEALTHY + GPM, "GPU 0", "ok", ("75 GiB", "2 processes on it.")),
        (HEALTHY + GPM, ACTIVITY, "ok", ("GPM",)),
        (HEALTHY, ACTIVITY, "limited", ("no GPM counters",)),
        (WITHOUT_COUNTERS, "GPU 0", "limited", ("Not reported: ", "PCIe bytes sent")),
        (HEALTHY + "limits 1980 5 32\n", LINK, "limited", ("Generation 5 × 16, of generation 5 × 32 at most", "50 %")),
        (HEALTHY.replace("64 4 5 16 2", "64 4 1 16 2"), LINK, "ok", ("An idle GPU",)),
        (HEALTHY + "fault nvmlDeviceGetCurrPcieLinkWidth 3\n", LINK, "missing", ("copy.link",)),
        ("fault * 999\n", "GPU 0", "missing", ("All figures of this GPU.",)),
    ],
)
def test_what_a_gpu_gives_and_what_it_does_not(
    doctor: Callable[..., dict[str, dict[str, Any]]], script: str, name: str, status: str, says: tuple[str, ...]
) -> None:
    check = doctor(script)[name]
    assert check["status"] == status, check
    told = " ".join((check["says"], check["lost"]))
    assert all(part in told for part in says), told
    assert told.count("Not reported") <= 1


def test_every_gpu_has_its_own_checks(doctor: Callable[..., dict[str, dict[str, Any]]]) -> None:
    checks = doctor("devices 2\n" + HEALTHY + GPM + f"fault nvmlGpmQueryDeviceSupport {NO_PERMISSION} 0 1\n")
    assert checks[ACTIVITY]["values"] == {"sm_active_pct": 61}
    refused = checks["GPU 1: SM activity"]
    assert refused["status"] == "missing"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in refused["fix"]
    assert refused["values"] == {"sm_active_pct": None}


@pytest.mark.parametrize(
    ("script", "files", "says", "fix"),
    [
        ("init 18\n", {}, "different versions", "reboot"),
        ("init 4\n", {}, "refuses this user", "/dev/nvidia"),
        ("init 9\n", {}, "module is not loaded", "modprobe"),
        ("init 999\n", {}, "does not answer", "kernel log"),
        ("devices 0\n", {}, "it shows no GPU here", "nvidia-smi"),
        ("devices 0\n", CONTAINER, "it shows no GPU here", "--gpus all"),
        (NO_LIBRARY, {}, "no NVIDIA GPU on this machine's bus", "Nothing to do"),
        (NO_LIBRARY, AUDIO, "no NVIDIA GPU on this machine's bus", "Nothing to do"),
        (NO_LIBRARY, CONTAINER, "no NVIDIA GPU on this machine's bus", "--gpus all"),
        (NO_LIBRARY, ON_BUS, "no driver is installed", "Install the driver"),
        (NO_LIBRARY, MODULE, "550.54.15 is there; libnvidia-ml.so.1 is missing", "Install the driver"),
        (NO_LIBRARY, MODULE | CONTAINER, "550.54.15 is there; libnvidia-ml.so.1 is missing", "--gpus all"),
    ],
)
def test_each_way_in_which_a_driver_is_not_there_has_its_own_way_out(
    doctor: Callable[..., dict[str, dict[str, Any]]], script: str, files: dict[str, str], says: str, fix: str
) -> None:
    checks = doctor(script, files)
    assert list(checks) == [DRIVER]
    assert checks[DRIVER]["status"] == "missing"
    assert says in checks[DRIVER]["says"]
    assert fix in checks[DRIVER]["fix"]
    assert checks[DRIVER]["values"]["gpus"] == (0 if script.startswith("devices") else None)
    assert checks[DRIVER]["values"].get("kernel_module") == ("550.54.15" if MODULE.items() <= files.items() else None)
