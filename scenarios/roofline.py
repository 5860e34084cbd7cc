"""What this machine could do with samples: each part alone, on one core and on all of them.

Run as a program it says how many batches a second go to a device: `python -m whyidle.scenarios.roofline DEVICE BYTES`,
in a process of its own, so that none of ours has to open the device.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from typing import Any

from whyidle.capture.all_cores import AllCores, Parts
from whyidle.pipelines import ceilings
from whyidle.pipelines.protocol import Dataset, Settings

SECONDS = 0.12
"""For which a part is done in a round, on one core and then on all."""
COPY = "copy to the device"
MAKING, BESIDE, STORED, ASIDE = "making", "beside", "stored", "aside"
"""Kinds of parts: see `analyse.cells.roofline`."""
_COPY_SECONDS = 0.5
_COPY_PATIENCE = 120.0


def measured(data: Dataset, settings: Settings, cores: int, seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Each part of making these samples, by `name` and `kind`, with the samples a second of `one` core and of `all`.

    Raises:
        WhyidleError: a sample cannot be made, or a process died.
    """
    with AllCores(partial(_prepared, data, settings, cores), cores) as bench:
        rates = {name: bench.measure(name, seconds) for name in bench.names}
    found = []
    for name, rate in rates.items():
        samples = settings.batch_size if name in ceilings.OF_BATCHES else 1
        found.append({"name": name, "kind": _kind(name), "one": rate.one * samples, "all": rate.all * samples})
    return found


def copied(device: str, nbytes: int, batch_size: int) -> list[dict[str, Any]]:
    """The same of copying batches of so many bytes, page-locked, to a device; nothing where there is nothing to copy or
    that cannot be measured."""
    if device == "cpu":
        return []
    command = [sys.executable, "-m", __name__, device, str(nbytes)]
    try:
        ended = subprocess.run(
            command,
            env=os.environ | {"PYTHONSAFEPATH": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COPY_PATIENCE,
            check=True,
        )
        rate = float(ended.stdout) * batch_size
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [{"name": COPY, "kind": BESIDE, "one": rate, "all": rate}]


def _prepared(data: Dataset, settings: Settings, cores: int, process: int) -> Parts:
    return ceilings.parts(data, ceilings.chosen(data, process, cores), settings)


def _kind(name: str) -> str:
    if name == ceilings.UNCACHED:
        return STORED
    return ASIDE if name in ceilings.ASIDE else BESIDE if name in ceilings.BESIDE else MAKING


def _copies_per_s(name: str, nbytes: int) -> float:
    import torch

    from whyidle.devices.choose import choose

    device = choose(name)
    batch = device.pin([torch.ones(nbytes, dtype=torch.uint8)])
    done = 0
    device.copy(batch, pinned=True)
    device.synchronize()
    begin = time.monotonic()
    while time.monotonic() - begin < _COPY_SECONDS:
        device.copy(batch, pinned=True)
        device.synchronize()
        done += 1
    return done / (time.monotonic() - begin)


if __name__ == "__main__":
    print(_copies_per_s(sys.argv[1], int(sys.argv[2])))
