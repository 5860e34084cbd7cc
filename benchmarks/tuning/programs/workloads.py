"""What the trainings of `tuning.py` are made of: seven data sets that want different loader settings, and a small net.

The net is real, and so is its training. Most of a step's time is an accelerator's: forward and backward pass take a
fixed time asleep, as an accelerator leaves the processors to others. What a sample takes is waiting, as for a remote
store, or the processor's time, as for decoding. The best settings told here are those of a machine with two CPUs.
"""

from __future__ import annotations

import io
import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

FLOATS = 256
"""Values in a sample where nothing depends on its size."""
CLASSES = 10
FORWARD = 0.4
"""The part of a step's computation that is its forward pass."""
FIXED = 0.3
"""The part of a step's computation that does not grow with the batch."""

Sample = tuple[torch.Tensor, int]


class Samples(Dataset[Sample], ABC):
    """So many samples, each with its label."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        return self.values(index), index % CLASSES

    @abstractmethod
    def values(self, index: int) -> torch.Tensor:
        """Takes as long as that sample takes."""


class Waiting(Samples):
    """Samples that are waited for: sample i as long as the i-th of these seconds, which repeat."""

    def __init__(self, length: int, waits_s: Sequence[float], floats: int = FLOATS) -> None:
        super().__init__(length)
        self._waits_s, self._floats = list(waits_s), floats

    def values(self, index: int) -> torch.Tensor:
        time.sleep(self._waits_s[index % len(self._waits_s)])
        return torch.full((self._floats,), index % CLASSES / CLASSES)


class Jpegs(Samples):
    """Photographs in memory, which repeat: decoded and made smaller for each sample."""

    def __init__(self, length: int, photographs: int, side: int, small: int) -> None:
        super().__init__(length)
        draw = np.random.default_rng(0)
        self._small, self._files = small, [_jpeg(draw, side) for _ in range(photographs)]

    def values(self, index: int) -> torch.Tensor:
        with Image.open(io.BytesIO(self._files[index % len(self._files)])) as photograph:
            pixels = np.array(photograph.convert("RGB").resize((self._small, self._small), Image.Resampling.BILINEAR))
        return torch.from_numpy(pixels).float().div_(255)


def _jpeg(draw: np.random.Generator, side: int) -> bytes:
    """Smooth patches with some noise: as large, and as long to decode, as a photograph of that size."""
    coarse = Image.fromarray(draw.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
    noisy = np.clip(smooth + draw.integers(-12, 13, smooth.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=85)
    return file.getvalue()


class InMemory(Samples):
    """Samples that are there already."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self._samples = torch.rand(1024, FLOATS, generator=torch.Generator().manual_seed(0))

    def values(self, index: int) -> torch.Tensor:
        return self._samples[index % len(self._samples)]


class Throttled(Waiting):
    """Reads from a store that answers each after a while, and whose bandwidth all processes share."""

    def __init__(self, length: int, latency_s: float, transfer_s: float) -> None:
        super().__init__(length, [latency_s])
        self._transfer_s = transfer_s
        # Made before any worker. One of spawn's context may be inherited however a worker is started.
        self._free_at = multiprocessing.get_context("spawn").Value("d", 0.0)

    def values(self, index: int) -> torch.Tensor:
        answer = super().values(index)
        with self._free_at.get_lock():
            self._free_at.value = max(self._free_at.value, time.monotonic()) + self._transfer_s
            mine = self._free_at.value
        time.sleep(max(0.0, mine - time.monotonic()))
        return answer


class Net(nn.Module):
    """A net of two layers, on an accelerator that takes `step_s` for a step with a batch of so many samples."""

    def __init__(self, inputs: int, step_s: float, batch: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        self._inputs, self._step_s, self._batch = inputs, step_s, batch

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        flat = samples.flatten(1)
        out = self.layers(flat[:, :: flat.shape[1] // self._inputs][:, : self._inputs])
        seconds = self._step_s * (FIXED + (1 - FIXED) * len(samples) / self._batch)
        computed: torch.Tensor = Computing.apply(out, seconds)
        return computed


class Computing(torch.autograd.Function):
    """A step's computation: a part of it in the forward pass, the rest in the backward pass."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        time.sleep(FORWARD * seconds)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        time.sleep((1 - FORWARD) * ctx.seconds)
        return gradients[0], None


@dataclass(frozen=True)
class Workload:
    """One training."""

    name: str
    data: Callable[[int], Dataset[Sample]]
    """Number of samples -> data set."""
    batch: int
    step_s: float
    """What the accelerator takes for a step with that batch."""
    inputs: int = FLOATS

    def net(self) -> Net:
        return Net(self.inputs, self.step_s, self.batch)


def _lognormal(mean_s: float, sigma: float) -> list[float]:
    waits = np.random.default_rng(1).lognormal(0.0, sigma, 2048)
    return list(map(float, waits * mean_s / waits.mean()))


def _stragglers(fast_s: float, times: tuple[float, float], share: float) -> list[float]:
    draw = np.random.default_rng(2)
    slow = draw.permutation(2048) < share * 2048
    return list(map(float, np.where(slow, draw.uniform(*times, 2048), 1.0) * fast_s))


_JPEGS = partial(Jpegs, photographs=48, side=320, small=32)
_SLOW_NOW_AND_THEN = partial(Waiting, waits_s=_stragglers(2e-3, (20, 30), 0.02))
WORKLOADS = {
    each.name: each
    for each in (
        # Every sample is waited for as long: 4 or 5 workers.
        Workload("constant", partial(Waiting, waits_s=[4e-3]), 8, 7e-3),
        # Photographs are decoded: as many workers as the processors can bear.
        Workload("jpeg", _JPEGS, 16, 7e-3, inputs=3 * 32 * 32),
        # Waits are lognormal: more workers than their mean needs, or a deeper queue.
        Workload("heavy_tail", partial(Waiting, waits_s=_lognormal(8e-3, 1.1)), 4, 7e-3),
        # One sample in fifty is waited for 20 to 30 times as long: a deeper queue.
        Workload("stragglers", _SLOW_NOW_AND_THEN, 8, 8e-3),
        # Batches of 8 MB take about as long to be handed over as to be made: 1 or 2 workers.
        Workload("payload", partial(Waiting, waits_s=[5e-4], floats=120_000), 16, 10e-3),
        # Samples are in memory: no workers.
        Workload("tiny", InMemory, 32, 5e-3),
        # A store's bandwidth is shared: 2 workers, and more do not help.
        Workload("throttled", partial(Throttled, latency_s=5e-4, transfer_s=1.2e-3), 8, 7e-3),
    )
}
