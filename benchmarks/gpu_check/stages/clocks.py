"""The device's clock: signs, how soon marks arrive, how narrow brackets are; and over minutes, how fast it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from whyidle.devices.choose import choose
from whyidle.devices.cuda import CudaDevice
from whyidle.devices.protocol import ARRIVAL_NS, Device, Event

from ..checks import Seen, Stage
from ..rig import Rig
from ..spinning import cycles_per_ms

stage = Stage("clocks", "The device's clock", 60)
drift = Stage("drift", "The device's clock over minutes", 160)
TRIES = 300
BRACKET_US = 50.0
MARK_US = 12.0
MINUTES = 2.0
EVERY_S = 0.25
MOST_PPM = 200.0


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
        told = str(error).splitlines()[0]
        return Seen(True, f"{forward:.3f} ms, and backwards an error ({told}), which is provided for")
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
    outside = [_outside(device, lambda _mark: device.synchronize()) for _ in range(TRIES)]
    doubt = device.clock_uncertainty_ns() or 0
    return Seen(max(outside) <= doubt, f"at most {max(outside) / 1e3:.1f} µs outside; doubt {doubt / 1e3:.1f} µs")


@drift.check(
    f"in {MINUTES:.0f} minutes no stamp is further off than was told, and the rate by less than {MOST_PPM:.0f} ppm"
)
def clock_of_the_device(_rig: Rig) -> Seen:
    device = choose("cuda")
    assert isinstance(device, CudaDevice)
    first = torch.cuda.Event(enable_timing=True)
    first.record()
    torch.cuda.synchronize()
    began, wrong, rates, doubts = device.now(), [], [], []
    last = first
    while device.now() - began < MINUTES * 60e9:
        time.sleep(EVERY_S)
        outside = _outside(device, _until_done)
        doubts.append(device.clock_uncertainty_ns() or 0)
        wrong.append(outside - doubts[-1])
        last = torch.cuda.Event(enable_timing=True)
        last.record()
        torch.cuda.synchronize()
        rates.append((device.now(), first.elapsed_time(last)))
    half = len(rates) // 2
    host_ms = (rates[-1][0] - rates[half][0]) / 1e6
    ppm = 1e6 * ((rates[-1][1] - rates[half][1]) / host_ms - 1)
    late, worst, doubt = sum(np.array(wrong) > 0), max(wrong), max(doubts)
    text = f"the device's clock runs {ppm:+.2f} ppm against the host's; of {len(wrong)} stamps {late} were further off "
    text += f"than told, the worst by {worst / 1e3:.1f} µs; doubt at most {doubt / 1e3:.1f} µs"
    figures = {"ppm": ppm, "worst_ns": worst, "doubt_ns": doubt}
    return Seen(worst <= 0 and abs(ppm) < MOST_PPM, text, figures)


def _outside(device: Device, wait: Callable[[Event], None]) -> int:
    """By how far a mark's stamp is outside of what the host saw around it, ns."""
    before = device.now()
    mark = device.record()
    wait(mark)
    after = device.now()
    stamp = mark.time_ns()
    device.release(mark)
    return max(before - stamp, stamp - after, 0)


def _until_done(mark: Event) -> None:
    while not mark.done():
        pass


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _spread(took: list[int], limit_us: float) -> Seen:
    p5, p50, p95, p99 = np.percentile(np.array(took) / 1e3, (5, 50, 95, 99))
    text = f"median {p50:.1f} µs (5 % {p5:.1f}, 95 % {p95:.1f}, 99 % {p99:.1f})"
    return Seen(bool(p50 <= limit_us), text, {"us": {"p5": p5, "p50": p50, "p95": p95, "p99": p99}})
