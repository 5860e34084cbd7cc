"""From `--device` to a device, and what a wrong name says."""

from __future__ import annotations

import pytest
import torch

from whyidle.devices.choose import choose
from whyidle.devices.emulated import EmulatedDevice
from whyidle.errors import WhyidleError


def test_cpu_and_emulated_are_always_there() -> None:
    assert choose("cpu").kind == "cpu"
    device = choose("emulated:v100")
    assert isinstance(device, EmulatedDevice)
    assert "emulated" in device.title
    assert device.describe()["kind"] == "emulated"
    assert device.profile is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_one_message() -> None:
    assert choose("auto").kind == "cpu"
    with pytest.raises(WhyidleError, match="sees no CUDA device"):
        choose("cuda")


@pytest.mark.parametrize("name", ["tpu", "emulated:nosuch", "emulated:/no/such/file.toml", ""])
def test_an_unknown_device_is_one_message(name: str) -> None:
    with pytest.raises(WhyidleError) as error:
        choose(name)
    assert "\n" not in str(error.value)


def test_on_the_cpu_nothing_is_copied_and_every_event_is_done() -> None:
    device = choose("cpu")
    tensor = torch.ones(3)
    (moved,), copy = device.copy([tensor], pinned=False)
    assert moved is tensor
    assert copy.nbytes == 0
    event = device.record()
    assert event.done()
    assert event.time_ns() <= device.now()
