"""The device's clock over minutes: how fast it runs, and whether stamps on the host's clock stay within their doubt."""

from __future__ import annotations

import time

import numpy as np
import torch

from whyidle.devices.choose import choose
from whyidle.devices.cuda import CudaDevice

from ..checks import Seen, Stage
from ..rig import Rig

stage = Stage("drift", "The device's clock over minutes", 160)
MINUTES = 2.0
EVERY_S = 0.25
MOST_PPM = 200.0


@stage.check(
    f"no stamp of {MINUTES:.0f} minutes is further off than was told, and the rate by less than {MOST_PPM:.0f} ppm"
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
        before = device.now()
        mark = device.record()
        while not mark.done():
            pass
        after = device.now()
        stamp = mark.time_ns()
        doubts.append(device.clock_uncertainty_ns() or 0)
        # By how far the stamp is outside of what the host saw around it.
        wrong.append(max(before - stamp, stamp - after, 0) - doubts[-1])
        device.release(mark)
        last = torch.cuda.Event(enable_timing=True)
        last.record()
        torch.cuda.synchronize()
        rates.append((device.now(), first.elapsed_time(last)))
    half = len(rates) // 2
    host_ms = (rates[-1][0] - rates[half][0]) / 1e6
    ppm = 1e6 * ((rates[-1][1] - rates[half][1]) / host_ms - 1)
    text = (
        f"the device's clock runs {ppm:+.2f} ppm against the host's; of {len(wrong)} stamps {sum(np.array(wrong) > 0)} "
    )
    text += (
        f"were further off than told, the worst by {max(wrong) / 1e3:.1f} µs; doubt at most {max(doubts) / 1e3:.1f} µs"
    )
    return Seen(
        max(wrong) <= 0 and abs(ppm) < MOST_PPM, text, {"ppm": ppm, "worst_ns": max(wrong), "doubt_ns": max(doubts)}
    )
