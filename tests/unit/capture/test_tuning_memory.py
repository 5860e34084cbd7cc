"""What memory a training takes, and how much there is for it."""

from __future__ import annotations

import resource
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from whyidle.capture.tuning import processes as memory
from whyidle.capture.tuning.processes import forget_peak, memory_use
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.errors import DeviceOutOfMemory

GB = 1 << 30
MB = 1 << 20


def test_the_host_counts_the_most_this_process_and_its_children_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_available", lambda: 8.0 * GB)
    before = memory_use()
    assert not before.on_device
    assert before.peak_bytes is not None
    filled = np.ones(200 * MB, dtype=np.uint8)
    with_it = memory_use()
    del filled
    after = memory_use()
    # The peak stays, what is free for more does not shrink for it.
    assert after.peak_bytes >= with_it.peak_bytes - 8 * MB
    assert after.capacity_bytes > 8 * GB
    forget_peak()
    anew = memory_use()
    assert anew.peak_bytes <= after.peak_bytes - 60 * MB
    held = "import sys; x = bytearray(b'1' * (120 << 20)); print('on', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", held], stdin=-1, stdout=-1) as child:
        assert child.stdout.readline() == b"on\n"
        parent_and_child = memory_use()
        child.communicate()
    assert parent_and_child.peak_bytes > anew.peak_bytes + 100 * MB


def test_a_limit_of_the_address_space_counts_where_it_is_the_tighter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory_available", lambda: 64.0 * GB)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16 * GB, 16 * GB))
    limited = memory_use()
    assert limited.capacity_bytes == 16 * GB
    status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())  # noqa: SIM115
    assert limited.peak_bytes == pytest.approx(1024 * int(status["VmPeak"].split()[0]), rel=0.01)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (200 * GB, 200 * GB))
    assert memory_use().capacity_bytes != 200 * GB


def test_a_gpus_memory_is_what_is_free_and_what_is_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a card of 80 GB of which other processes hold 10: they are neither. It is the second of two cards."""

    class Gpu:
        is_initialized = staticmethod(lambda: True)
        device_count = staticmethod(lambda: 2)
        max_memory_allocated = staticmethod(lambda index: 20 * GB * index)
        max_memory_reserved = staticmethod(lambda index: 26 * GB * index)
        memory_reserved = staticmethod(lambda index: 24 * GB * index)
        mem_get_info = staticmethod({1: (46 * GB, 80 * GB)}.__getitem__)
        memory_stats = staticmethod(lambda index: {"num_alloc_retries": 2 * index})

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Gpu))  # type: ignore[arg-type]
    use = memory_use()
    assert (use.peak_bytes, use.capacity_bytes, use.on_device) == (26 * GB, 70 * GB, True)
    assert use.retries == 2


def test_a_gpu_that_nothing_was_put_on_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("would make a context")

    monkeypatch.setattr(torch.cuda, "mem_get_info", refuse)
    assert not memory_use().on_device


def test_an_emulated_device_has_a_memory_of_its_own() -> None:
    device = EmulatedDevice(EmulatedSpec("test", "Test", 4 * GB, 1e9, 1e9))
    device.require_memory(3 * GB)
    with pytest.raises(DeviceOutOfMemory):
        device.require_memory(5 * GB)
    use = memory_use(device)
    assert (use.peak_bytes, use.capacity_bytes, use.on_device, use.retries) == (3 * GB, 4 * GB, True, 0)
