"""The shape of PyTorch's quickstart: a batch is looked at, then the model moves to the GPU and is trained.

quickstart.py [stream]    stream: all of it on a stream of the program's own
quickstart.py cpu         only a training on the processor, and whether CUDA was initialised for that
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_check.programs.loop import COMPUTE_MS, Samples, net, spin, train

if "cpu" in sys.argv:
    train(net(), DataLoader(Samples(load_ms=1)), "cpu", lambda: None)
    print("CUDA is initialised:", torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    sys.exit()
for inputs, labels in DataLoader(Samples(4)):
    print("inputs", tuple(inputs.shape), "labels", tuple(labels.shape))
    break
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"  # type: ignore[union-attr]
model = net().to(device)
with torch.cuda.stream(torch.cuda.Stream() if "stream" in sys.argv else None):
    loss = train(model, DataLoader(Samples()), device, spin(COMPUTE_MS))
print("loss", round(loss.item(), 4))
