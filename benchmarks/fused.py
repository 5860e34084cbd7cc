"""How samples of `fused` and `fused-exact` differ from those of the other loaders, and what a detector learns of them.

`python -m benchmarks.fused DATA --picture FILE`: DATA is what `whyidle data ssd --out DATA` makes. Every loader gives
the same photographs in the same order with the same draws; those of `naive` are what the others are held against. How
fast they are says `whyidle compare ssd --data DATA --feed loader-only`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as PillowImage

from whyidle.devices.cpu import CpuDevice
from whyidle.pipelines import registry
from whyidle.pipelines.protocol import Batch, Dataset, Settings
from whyidle.pipelines.stages import Normalise, ssd_stages
from whyidle.scenarios.copying import BatchCopier
from whyidle.scenarios.registry import scenario
from whyidle.scenarios.scenario import DataRequest
from whyidle.scenarios.voc.read import VocDataset

AGAINST = "naive"
LOADERS = ("fused", "fused-exact")
SHOWN = 6
"""Photographs in the picture."""
BRIGHTER = 8
"""Times that differences are, in the picture."""
LAST = 30
"""Steps whose loss is told."""

Pixels = npt.NDArray[np.float32]


def batches(name: str, data: Dataset, settings: Settings, most: int) -> list[Batch]:
    """Of one epoch and the following, until there are so many."""
    device = CpuDevice()
    loader = registry.factory(name)(data, settings, BatchCopier(device))
    found: list[Batch] = []
    try:
        for epoch in range(most):
            for batch in loader.epoch(epoch):
                found.append(replace(batch, inputs=batch.inputs.clone(), targets=batch.targets.clone()))
                if len(found) == most:
                    return found
    finally:
        loader.close()
    return found


def pixels(found: list[Batch]) -> Pixels:
    """In levels, `[samples, 3, height, width]`."""
    made = torch.cat([batch.inputs for batch in found]).numpy()
    return made + np.array(Normalise().mean, np.float32)[:, None, None]


def differences(data: Dataset, samples: int, size: int, picture: Path | None) -> None:
    settings = Settings(batch_size=size, workers=2, seed=0)
    kept = batches(AGAINST, data, settings, samples // size)
    reference, rows = pixels(kept), []
    print("| loader | samples | mean difference, of 255 levels | within 1 level | within 8 | targets alike |")
    print("|---|---|---|---|---|---|")
    for name in LOADERS:
        found = batches(name, data, settings, samples // size)
        off = np.abs(pixels(found) - reference)
        alike = all(torch.equal(a.targets, b.targets) for a, b in zip(found, kept, strict=True))
        within = [100 * float((off <= most + 0.01).mean()) for most in (1, 8)]
        print(
            f"| `{name}` | {len(off)} | {off.mean():.2f} | {within[0]:.3f} % | {within[1]:.2f} % | {alike} |",
            flush=True,
        )
        rows += [pixels(found)[:SHOWN], BRIGHTER * off[:SHOWN]]
    if picture is not None:
        grid = np.concatenate([np.concatenate(list(row), axis=2) for row in (reference[:SHOWN], *rows)], axis=1)
        drawn = PillowImage.fromarray(grid.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
        drawn.resize((drawn.width // 2, drawn.height // 2)).save(picture, quality=85)


def losses(folder: Path, net: str, steps: int, size: int, seeds: int) -> None:
    """After a short training of the detector on the processor, from the same weights: the mean of the last steps."""
    chosen = scenario("ssd")
    device = CpuDevice()
    print(f"\n| loader | loss after {steps} steps of batch {size}, mean of the last {LAST}, by seed | mean |")
    print("|---|---|---|")
    for name in (AGAINST, *LOADERS):
        told = []
        for seed in range(seeds):
            data: Any = chosen.open_data(DataRequest(folder=folder, net=net, augment=True))
            torch.manual_seed(seed)
            training = chosen.training(net, device, size, data)
            seen = []
            for batch in batches(name, data, Settings(batch_size=size, workers=2, seed=seed), steps):
                training.step(batch)
                loss = training.read_loss()
                assert loss is not None
                seen.append(loss)
            told.append(mean(seen[-LAST:]))
        print(f"| `{name}` | {', '.join(f'{loss:.3f}' for loss in told)} | {mean(told):.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--net", default="ssd-micro")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="samples of each loader and their differences")
    asked = parser.parse_args()
    data = VocDataset.open(asked.data, "train", ssd_stages(300))
    differences(data, asked.samples, asked.batch, asked.picture)
    if asked.steps:
        losses(asked.data, asked.net, asked.steps, asked.batch, asked.seeds)


if __name__ == "__main__":
    main()
