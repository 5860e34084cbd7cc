"""The device's clock: signs, how soon marks arrive, and how narrow brackets are."""

from __future__ import annotations

import time

import numpy as np
import torch

from whyidle.devices.choose import choose
from whyidle.devices.cuda import CudaDevice
from whyidle.devices.protocol import ARRIVAL_NS

from ..checks import Seen, Stage
from ..rig import Rig
from ..spinning import cycles_per_ms

stage = Stage("clocks", "The device's clock", 60)
TRIES = 300
BRACKET_US = 50.0
MARK_US = 12.0


@stage.check("from a later event to an earlier one it is as long as the other way round, and negative")
def sign_of_elapsed_time(_rig: Rig) -> Seen:
    """Either answer is right for us: pairs are put in order, and the other order is tried after an error."""
    first, second = _event(), _event()
    first.record()
    torch.cuda._sleep(int(5 * cycles_per_ms()))
    second.record()
    torch.cuda.synchronize()
    forward = first.elapsed_time(second)
    try:
        backward = second.elapsed_time(first)
    except RuntimeError as error:
        return Seen(
            True, f"{forward:.3f} ms, and backwards an error ({str(error).splitlines()[0]}), which is provided for"
        )
    return Seen(abs(forward + backward) < 0.002, f"{forward:.4f} and {backward:.4f} ms", {"ms": [forward, backward]})


@stage.check(f"half of the marks on an idle device are seen within {ARRIVAL_NS / 1e3:.0f} µs")
def marks_arrive(_rig: Rig) -> Seen:
    took = []
    torch.cuda.synchronize()
    for _ in range(TRIES):
        event = _event()
        begin = time.monotonic_ns()
        event.record()
        while not event.query():
            pass
        took.append(time.monotonic_ns() - begin)
    return _spread(took, ARRIVAL_NS / 1e3)


@stage.check(f"half of the marks cost the host less than {MARK_US:.0f} µs")
def marks_cost(_rig: Rig) -> Seen:
    device = choose("cuda")
    took = []
    for _ in range(TRIES):
        begin = time.monotonic_ns()
        mark = device.record()
        took.append(time.monotonic_ns() - begin)
        device.synchronize()
        device.release(mark)
    return _spread(took, MARK_US)


@stage.check(f"half of the brackets leave less than {BRACKET_US:.0f} µs of doubt")
def brackets_are_narrow(_rig: Rig) -> Seen:
    device = choose("cuda")
    assert isinstance(device, CudaDevice)
    found = [device._best_bracket() for _ in range(40)]
    halves = [bracket[2] for bracket in found if bracket is not None]
    if len(halves) < len(found) / 2:
        return Seen(False, f"{len(found) - len(halves)} of {len(found)} brackets on an idle device did not succeed")
    return _spread(halves, BRACKET_US)


@stage.check("stamps of marks lie between the host's stamps around them, but for the doubt that is told")
def marks_on_the_clock_of_the_host(_rig: Rig) -> Seen:
    device = choose("cuda")
    outside = []
    for _ in range(TRIES):
        before = device.now()
        mark = device.record()
        device.synchronize()
        after = device.now()
        stamp = mark.time_ns()
        outside.append(max(before - stamp, stamp - after, 0))
        device.release(mark)
    doubt = device.clock_uncertainty_ns() or 0
    return Seen(max(outside) <= doubt, f"at most {max(outside) / 1e3:.1f} µs outside; doubt {doubt / 1e3:.1f} µs")


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _spread(took: list[int], limit_us: float) -> Seen:
    p5, p50, p95, p99 = np.percentile(np.array(took) / 1e3, (5, 50, 95, 99))
    text = f"median {p50:.1f} µs (5 % {p5:.1f}, 95 % {p95:.1f}, 99 % {p99:.1f})"
    return Seen(bool(p50 <= limit_us), text, {"us": {"p5": p5, "p50": p50, "p95": p95, "p99": p99}})
