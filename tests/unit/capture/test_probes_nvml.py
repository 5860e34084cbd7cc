"""What `doctor` says of driver and GPUs, against the made-up driver and faked machines without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.fakes.driver import HEALTHY, FakeDriver

ASK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from whyidle.capture.probes import driver, gpus
print(json.dumps([asdict(check) for check in (driver.driver(Path(sys.argv[1])), *gpus.gpus())]))
"""
GPM = "gpm 61 12 8 33\n"
MISMATCH, NO_PERMISSION, NOT_LOADED, LIBRARY_NOT_FOUND = 18, 4, 9, 12


class Doctor:
    def __init__(self, driver: FakeDriver, root: Path) -> None:
        self._driver = driver
        self.root = root
        root.mkdir()

    def __call__(self, script: str) -> dict[str, dict[str, Any]]:
        """The checks by name."""
        self._driver.behave(script)
        command = [sys.executable, "-c", ASK, str(self.root)]
        environment = os.environ | self._driver.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return {check["name"]: check for check in json.loads(done.stdout)}


@pytest.fixture
def doctor(driver: FakeDriver, tmp_path: Path) -> Doctor:
    return Doctor(driver, tmp_path / "root")


def test_a_healthy_gpu_is_measured_in_full(doctor: Doctor) -> None:
    checks = doctor(HEALTHY + GPM)
    assert checks["NVIDIA driver"]["status"] == "ok"
    assert checks["NVIDIA driver"]["values"]["gpus"] == 1
    assert checks["GPU 0"]["status"] == "ok", checks["GPU 0"]
    assert "75 GiB" in checks["GPU 0"]["says"]
    assert checks["GPU 0: SM activity"]["status"] == "ok"
    assert checks["GPU 0: SM activity"]["values"]["sm_active_pct"] == 61


def test_every_gpu_has_its_own_checks(doctor: Doctor) -> None:
    checks = doctor("devices 2\n" + HEALTHY + GPM + f"fault nvmlGpmQueryDeviceSupport {NO_PERMISSION} 0 1\n")
    assert checks["GPU 0: SM activity"]["status"] == "ok"
    refused = checks["GPU 1: SM activity"]
    assert refused["status"] == "missing"
    assert "NVreg_RestrictProfilingToAdminUsers=0" in refused["fix"]
    assert refused["values"] == {"sm_active_pct": None}


def test_a_gpu_without_gpm_is_limited(doctor: Doctor) -> None:
    check = doctor(HEALTHY)["GPU 0: SM activity"]
    assert check["status"] == "limited"
    assert "no GPM counters" in check["says"]


def test_what_a_gpu_does_not_tell_is_named_in_one_sentence(doctor: Doctor) -> None:
    check = doctor("memory 5 80\nutil 37 21\nstate 312500 1755 2619 64 4 5 16 2\n" + GPM)["GPU 0"]
    assert check["status"] == "limited"
    assert check["lost"].startswith("Not reported: ")
    assert check["lost"].count("Not") == 1
    assert "PCIe bytes sent" in check["lost"]


def test_a_link_of_half_its_width_is_limited_and_a_resting_one_is_not(doctor: Doctor) -> None:
    check = doctor(HEALTHY + "limits 1980 5 32\n")["GPU 0: PCIe link"]
    assert check["status"] == "limited"
    assert "Generation 5 × 16, of generation 5 × 32 at most" in check["says"]
    assert "50 %" in check["lost"]
    resting = HEALTHY.replace("64 4 5 16 2", "64 4 1 16 2")
    check = doctor(resting)["GPU 0: PCIe link"]
    assert check["status"] == "ok"
    assert "idle" in check["says"]


@pytest.mark.parametrize(
    ("code", "says", "fix"),
    [
        (MISMATCH, "different versions", "reboot"),
        (NO_PERMISSION, "refuses this user", "/dev/nvidia"),
        (NOT_LOADED, "module is not loaded", "modprobe"),
        (999, "does not answer", "kernel log"),
    ],
)
def test_each_refusal_of_the_driver_has_its_own_way_out(code: int, says: str, fix: str, doctor: Doctor) -> None:
    checks = doctor(f"init {code}\n")
    assert list(checks) == ["NVIDIA driver"]
    check = checks["NVIDIA driver"]
    assert check["status"] == "missing"
    assert says in check["says"]
    assert fix in check["fix"]
    assert check["values"]["gpus"] is None


def test_a_driver_that_shows_no_gpu_is_told_apart_in_a_container(doctor: Doctor) -> None:
    assert "nvidia-smi" in doctor("devices 0\n")["NVIDIA driver"]["fix"]
    (doctor.root / ".dockerenv").touch()
    check = doctor("devices 0\n")["NVIDIA driver"]
    assert check["values"]["gpus"] == 0
    assert "--gpus all" in check["fix"]


def test_without_the_library_it_is_told_what_there_is_of_a_driver(doctor: Doctor) -> None:
    missing = f"init {LIBRARY_NOT_FOUND}\n"
    assert "no NVIDIA GPU on this machine's bus" in doctor(missing)["NVIDIA driver"]["says"]
    slot = doctor.root / "sys/bus/pci/devices/0000:01:00.0"
    slot.mkdir(parents=True)
    (slot / "vendor").write_text("0x10de\n")
    (slot / "class").write_text("0x030200\n")
    assert "no driver is installed" in doctor(missing)["NVIDIA driver"]["says"]
    version = doctor.root / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n")
    (doctor.root / ".dockerenv").touch()
    check = doctor(missing)["NVIDIA driver"]
    assert "550.54.15 is there; libnvidia-ml.so.1 is missing" in check["says"]
    assert "--gpus all" in check["fix"]
    assert check["values"]["kernel_module"] == "550.54.15"
