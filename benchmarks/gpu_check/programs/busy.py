"""Keeps the GPU busy about half of the time, with products that use all of it: busy.py SECONDS"""

from __future__ import annotations

import sys
import time

import torch

small = torch.cuda.get_device_properties(0).multi_processor_count < 2
side = 8 if small else 2048
model = torch.nn.Linear(side, side).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
still = torch.randn(side, side)
until = time.time() + float(sys.argv[1])  # a clock that nobody plays
while time.time() < until:
    begin = time.monotonic()
    for batch in torch.utils.data.DataLoader([still] * 4, batch_size=None):
        x = batch.to("cuda")
        loss = sum(model(x).square().mean() for _ in range(1 if small else 20))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    time.sleep(time.monotonic() - begin)
