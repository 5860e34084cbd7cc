"""What becomes of the events that torch's profiler hands out, and what is relied on of that profiler."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from support.kineto import AUTOGRAD, CPU, EPOCH, US, Event, call
from whyidle.capture import activity_trace
from whyidle.record.schema import NOT_MEASURED, KernelKind

OTHERS = activity_trace.OthersWatch._NAMES


def rows(events: list[Event], offset: int = EPOCH) -> Any:
    clocks = [activity_trace.Clocks(offset + at, at) for at in (0, 900 * US, 1000 * US)]
    return activity_trace.rows_of(activity_trace.Traced(events, *clocks), device=0)


def test_waiting_calls_copies_and_other_devices_are_told_apart() -> None:
    found = rows(
        [
            call("cudaStreamSynchronize", 10 * US, 20 * US),
            call("cudaMemcpyAsync", 30 * US, 35 * US, correlation=1),  # only queued
            call("cudaMemcpyAsync", 40 * US, 140 * US, correlation=2),  # waited: pageable
            call("cudaFree", 150 * US, 160 * US, AUTOGRAD),
            Event("Memcpy HtoD (Pinned -> Device)", 50 * US, 60 * US, correlation=1, kind="gpu_memcpy"),
            Event("gemm", 70 * US, 80 * US, correlation=99),
            Event("gemm", 70 * US, 80 * US, index=1),
            Event("step", 0, 100 * US, kind="gpu_user_annotation"),
            Event("Activity Buffer Request", 0, 5 * US, CPU, 0, 0, "overhead", -1),
            call("cudaDeviceSynchronize", 900 * US, 990 * US),
        ]
    )
    assert [(what, thread, begin // US, end // US) for what, _, thread, _, begin, end in found.tolist()] == [
        (KernelKind.SYNC, 0, 10, 20),
        (KernelKind.SYNC, 0, 40, 140),
        (KernelKind.COPY, 0, 50, 60),
        (KernelKind.KERNEL, NOT_MEASURED, 70, 80),
        (KernelKind.SYNC, 1, 150, 160),
        (KernelKind.SYNC, 0, 900, 990),
    ]
    assert [int(launch) for launch in found[[2, 3], 3]] == [30 * US, NOT_MEASURED]
    assert (found[found[:, 0] == KernelKind.SYNC][:, [1, 3]] == NOT_MEASURED).all()


def test_events_of_an_old_torch_are_told_apart_by_name() -> None:
    class Old:
        def __init__(self, event: Event) -> None:
            self._event = event

        def __getattr__(self, name: str) -> Any:
            if name == "activity_type":
                raise AttributeError(name)
            return getattr(self._event, name)

    old: Any = [Old(Event("Memset (Device)", 0, US)), Old(Event("gemm", 10, US))]
    assert list(rows(old)[:, 0]) == [KernelKind.COPY, KernelKind.KERNEL]


@pytest.mark.parametrize("numbered", ["low half of the pthread id", "system"])
def test_without_the_last_wait_the_training_thread_is_known_by_its_ids(numbered: str) -> None:
    low = threading.get_ident() & 0xFFFFFFFF
    signed = low - (1 << 32) if low >= 1 << 31 else low
    mine = threading.get_native_id() if numbered == "system" else signed
    found = rows(
        [
            call("cudaLaunchKernel", 0, 5, mine, 1),
            call("cudaLaunchKernel", 6, 9, mine + 1, 2),
            Event("a", 10 * US, 20 * US, correlation=1),
            Event("b", 20 * US, 30 * US, correlation=2),
        ]
    )
    assert list(found[:, 2]) == [0, 1]


def test_an_unknown_training_thread_gets_no_number_of_its_own() -> None:
    found = rows([call("cudaLaunchKernel", 0, 5, 5, 1), Event("a", 10 * US, 20 * US, correlation=1)])
    assert list(found[:, 2]) == [1]


def test_epoch_stamps_follow_a_slewed_clock() -> None:
    started, stopped = activity_trace.Clocks(EPOCH, 0), activity_trace.Clocks(EPOCH + 1_000_100, 1_000_000)
    stamps = np.array([EPOCH, EPOCH + 500_050, EPOCH + 1_000_100])
    assert list(activity_trace.to_monotonic(stamps, started, stopped)) == [0, 500_000, 1_000_000]


def test_a_clock_pair_lies_within_its_bracket() -> None:
    before, epoch = time.monotonic_ns(), time.time_ns()
    pair = activity_trace.read_clocks()
    assert before <= pair.monotonic_ns <= time.monotonic_ns()
    assert epoch <= pair.epoch_ns <= time.time_ns()


def test_torch_has_the_names_that_windows_rely_on() -> None:
    profile = torch.autograd.profiler.profile(use_cpu=True, use_device=None, use_kineto=True)
    profile.__enter__()
    assert activity_trace.in_use()
    torch.ones(3).add(1)
    profile.__exit__(None, None, None)
    assert not activity_trace.in_use()
    event = profile.kineto_results.events()[0]  # type: ignore[union-attr]
    for name in ("name", "start_ns", "duration_ns", "device_type", "device_index", "device_resource_id"):
        getattr(event, name)()
    assert event.device_type() == activity_trace._CPU
    assert event.correlation_id() >= 0
    # Its stamps are epoch time.
    assert abs(time.time_ns() - event.start_ns()) < 60 * 10**9
    # No list of Python objects was made of the events.
    assert profile._function_events is None
    for name in OTHERS:
        assert callable(getattr(torch.autograd.profiler, name))
    assert isinstance(activity_trace.has_cupti(), bool)


def test_the_watch_sees_torchs_public_profiler_and_leaves_it_working() -> None:
    originals = [getattr(torch.autograd.profiler, name) for name in OTHERS]
    seen: list[int] = []
    watch = activity_trace.OthersWatch(lambda: seen.append(1))
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as users:
            torch.ones(3).add(1)
    finally:
        watch.remove()
    assert seen
    assert any(average.key == "aten::add" for average in users.key_averages())
    assert [getattr(torch.autograd.profiler, name) for name in OTHERS] == originals
