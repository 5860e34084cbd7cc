"""How the reduced net learns: from as many images at any batch size, and as nearly the same as can be.

Everything is counted in images, not in steps: the rates rise over the first `WARM_UP` images and fall to nothing over
`IMAGES`, along a cosine. They grow with the square root of the batch size, and what Adam forgets in a step grows in
proportion to it (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022; the momentum,
which should as well, cannot go that far). The kernels of the trunk learn by Muon, because 500 steps of Adam are too few
for a batch of 192. The study's own nets use SGD, and grow the rate in proportion.
"""

from __future__ import annotations

from math import cos, pi, sqrt
from typing import Any

import torch
from torch import nn

from .muon import turn

AT = 192
"""The batch size of the rates below."""
KERNEL_RATE = 0.08
"""Muon's, for the kernels of the trunk."""
KERNEL_MOMENTUM = 0.95
RATE = 0.005
"""Adam's, for all else: heads and batch norms."""
FORGOTTEN = 0.05
"""Share of its running mean of squared gradients that Adam replaces in a step."""
WARM_UP = 3_000
IMAGES = 96_000
"""500 batches of 192."""
LEAST = 0.01
"""Of the rates, from `IMAGES` on."""


def muon(net: nn.Module, batch_size: int) -> torch.optim.Optimizer:
    """Muon and Adam, whose rates follow the plan above by themselves. `batch_size`: of all ranks together."""
    times = batch_size / AT
    kernels: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, weight in net.named_parameters():
        (kernels if name.startswith("stages.") and weight.dim() == 4 else rest).append(weight)
    groups: list[dict[str, Any]] = [{"params": kernels, "lr": KERNEL_RATE * sqrt(times)}, {"params": rest}]
    # The mean of squares has to forget as many images at any batch size. Over 500 steps torch's 0.999 forgets little,
    # and the large gradients of the beginning hold the whole training up.
    betas = 0.9, 1 - min(0.5, FORGOTTEN * times)
    optimizer = torch.optim.Adam(groups, lr=RATE * sqrt(times), betas=betas, fused=True)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share(step * batch_size, batch_size))

    def turn_kernels(*_: object) -> None:
        # Adam passes over what has no gradient any more.
        turn(kernels, optimizer.state, optimizer.param_groups[0]["lr"], KERNEL_MOMENTUM)

    optimizer.register_step_pre_hook(turn_kernels)
    optimizer.register_step_post_hook(lambda *_: rates.step())
    return optimizer


def share(seen: int, batch_size: int) -> float:
    """Of the full rate, for the batch after so many images."""
    rising = min(1.0, (seen + batch_size) / WARM_UP)
    return rising * max(LEAST, (1 + cos(pi * min(1.0, seen / IMAGES))) / 2)
