"""The net that planted trainings train: tiny, but real."""

from __future__ import annotations

from typing import Any

import torch


class Narrow(torch.nn.Module):
    """The net: it looks at the first columns of its samples only, so that these may be of any width."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def forward(self, samples: torch.Tensor) -> Any:
        return self.layer(samples[:, :16])
