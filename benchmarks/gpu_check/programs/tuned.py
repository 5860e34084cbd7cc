"""A training whose loader takes too long: samples cost the host a few milliseconds of computing each."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Costly(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = np.random.default_rng(index).standard_normal((3, 96, 96), dtype=np.float32)
        for _ in range(8):
            noise = np.sort(noise, axis=1)
        return torch.from_numpy(noise), index % 10


if __name__ == "__main__":
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    ).to("cuda")  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Costly(), batch_size=16, num_workers=1)
    for _ in range(100):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to("cuda")), labels.to("cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
