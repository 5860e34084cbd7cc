"""Muon: steps in which every direction of a layer's weights learns equally much.

After Keller Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024: momentum, made nearly orthogonal
by Newton-Schulz iterations. Singular values of a gradient differ by orders of magnitude; what hides in the small
ones needs many steps otherwise, and at a large batch there are few. `torch.optim.Muon` takes no convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

ITERATIONS = 5
COEFFICIENTS = 3.4445, -4.7750, 2.0315
"""Jordan's quintic: five times over it brings singular values from 0.003 to 1 into about 0.7 to 1.2."""


@torch.no_grad()
def turn(weights: Sequence[torch.Tensor], state: dict[Any, Any], rate: float, momentum: float) -> None:
    """One step of Muon, with Nesterov's momentum, for those `weights` `[out, …]` that have a gradient; takes it away,
    so that another optimizer leaves them alone."""
    for weight in weights:
        if weight.grad is None:
            continue
        mean = state[weight].setdefault("mean", torch.zeros_like(weight))
        mean.lerp_(weight.grad, 1 - momentum)
        ahead = weight.grad.lerp(mean, momentum).flatten(1)
        weight.sub_(orthogonal(ahead).view_as(weight), alpha=rate)
        weight.grad = None


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix `[rows, columns]` with its singular values near 1; cheap if it has fewer rows than columns.

    All iterations are polynomials in `matrix @ matrix.T`, so only two products are with the matrix itself.
    """
    linear, cubic, quintic = COEFFICIENTS
    square = matrix @ matrix.T
    # The sum of all squared singular values, so that the largest is at most 1.
    size = square.trace().clamp(min=torch.finfo(matrix.dtype).tiny)
    square = square / size
    identity = torch.eye(len(square), device=square.device, dtype=square.dtype)
    whole = identity
    for _ in range(ITERATIONS):
        step = torch.addmm(square, square, square, beta=cubic, alpha=quintic) + linear * identity
        whole = step @ whole
        square = step @ step @ square
    return whole @ matrix / size.sqrt()
