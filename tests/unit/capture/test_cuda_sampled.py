"""What the audit of the CUDA paths found in the sampler. The marks are as in `test_cuda_findings.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.fakes import driver as fakes
from support.fakes.driver import HEALTHY
from whyidle.capture.sampler import gpu
from whyidle.capture.sampler.devices import Devices
from whyidle.record.processes import describe_process
from whyidle.record.run import create_run

BOOTED = "clock_gettime_ns=lambda which: shown if which == 7 else epoch + shown, CLOCK_REALTIME=0, CLOCK_BOOTTIME=7"
"""The clocks of the virtual host: it was booted when its monotonic clock stood at 0."""


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="finding 6: `run` names no device, all are sampled")
def test_under_run_the_device_that_the_training_named_is_sampled_from_the_first_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[str, ...]] = []

    class Source:
        devices: tuple[()] = ()
        driver = None

        def __init__(self, _gateway: object, uuids: tuple[str, ...], _since_ns: int) -> None:
            chosen.append(uuids)

        def sample(self, now_ns: int, last: bool = False) -> list[Any]:
            return []

    monkeypatch.setattr(gpu, "NvmlSource", Source)
    folder = create_run(tmp_path / "run", {"command": ["python", "train.py"]})
    device = {"kind": "cuda", "name": "cuda:5", "uuids": ["GPU-5"], "count": 1}
    describe_process(folder, 0, 1, {"device": device})
    devices = Devices(folder, lambda sentence: None, 0)
    for second in range(20):
        devices.sample(second * 10**9)
    assert chosen == [("GPU-5",)]


@pytest.mark.parametrize(
    "driver_clock",
    [
        pytest.param("epoch + shown", id="epoch"),
        pytest.param(
            "shown",
            id="boot",
            marks=pytest.mark.xfail(
                strict=True, raises=AssertionError, reason="finding 13: stamps since boot count as none of the run"
            ),
        ),
    ],
)
def test_samples_are_stamped_by_either_clock(
    looks: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, driver_clock: str
) -> None:
    """NVML says "CPU timestamp" (nvml.h, `nvmlSample_t`), and not of which clock."""
    script = fakes.VIRTUAL.replace("driver.value = (epoch + shown)", f"driver.value = ({driver_clock})")
    script = script.replace("time_ns=lambda: epoch + shown", f"time_ns=lambda: epoch + shown, {BOOTED}")
    monkeypatch.setattr(fakes, "VIRTUAL", script)
    _, rows = looks(HEALTHY + "ring 20000 50\n", [float(second) for second in range(6)])
    ring = [row for look in rows for row in look if "utilisation_pct" in row]
    assert len(ring) == pytest.approx(250, abs=3)
    assert all(10**15 <= row["t_ns"] <= 10**15 + 6 * 10**9 for row in ring)
