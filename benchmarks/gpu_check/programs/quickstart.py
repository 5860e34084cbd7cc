"""The shape of PyTorch's quickstart: a batch is looked at, then the model moves to the GPU and is trained.

quickstart.py [stream]    stream: all of it on a stream of the program's own
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_check.programs.loop import COMPUTE_MS, Samples, net, spin, train

for inputs, labels in DataLoader(Samples(4)):
    print("inputs", tuple(inputs.shape), "labels", tuple(labels.shape))
    break
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"  # type: ignore[union-attr]
model = net().to(device)
with torch.cuda.stream(torch.cuda.Stream() if "stream" in sys.argv else None):
    loss = train(model, DataLoader(Samples()), device, spin(COMPUTE_MS))
print("loss", round(loss.item(), 4))
