"""How the reduced net learns: from as many images at any batch size, and as nearly the same as can be.

Everything is counted in images, not in steps: the rate rises over the first `WARM_UP` images and falls to nothing over
`IMAGES`, along a cosine. It grows with the square root of the batch size, and what Adam forgets in a step grows in
proportion to it (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022; the momentum,
which should as well, cannot go that far). The study's own nets use SGD, and grow the rate in proportion.
"""

from __future__ import annotations

from math import cos, pi, sqrt

import torch
from torch import nn

RATE = 3e-3
"""At batch `AT`."""
AT = 16
FORGOTTEN = 0.001
"""Share of its running mean of squared gradients that Adam replaces in a step, at batch `AT`."""
WARM_UP = 3_000
IMAGES = 96_000
"""500 batches of 192: with 250 that size falls far behind."""
LEAST = 0.01
"""Of the rate, from `IMAGES` on."""


def adam(net: nn.Module, batch_size: int) -> torch.optim.Optimizer:
    """Adam whose rate follows the plan above by itself. `batch_size`: of all ranks together."""
    times = batch_size / AT
    # The mean of squares has to forget as many images at any batch size. Over 500 steps torch's 0.999 forgets little,
    # and the large gradients of the beginning hold the whole training up.
    betas = 0.9, 1 - min(0.05, FORGOTTEN * times)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE * sqrt(times), betas=betas)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share(step * batch_size, batch_size))
    optimizer.register_step_post_hook(lambda *_: rates.step())
    return optimizer


def share(seen: int, batch_size: int) -> float:
    """Of the full rate, for the batch after so many images."""
    rising = min(1.0, (seen + batch_size) / WARM_UP)
    return rising * max(LEAST, (1 + cos(pi * min(1.0, seen / IMAGES))) / 2)
