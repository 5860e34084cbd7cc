"""Trains on the processor, where there is a GPU, and says whether CUDA was initialised for that."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_check.programs.loop import Samples, net, train

train(net(), DataLoader(Samples(load_ms=1)), "cpu", lambda: None)
print("CUDA is initialised:", torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
