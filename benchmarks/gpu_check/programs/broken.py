"""Trainings that end badly, or nearly.

broken.py assert     an assertion fails on the device in the midst of the training: no call works from then on
broken.py memory     a step needs more memory than there is, and nobody catches that
broken.py retried    the same, caught: the training goes on
broken.py full       all but little of the memory is taken before the training begins
"""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_check.programs.loop import WIDTH, Samples, net, spin, train

LEFT = 256 * 2**20


def take(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def once() -> None:
    train(model, DataLoader(Samples(40, 2)), "cuda", work)


how = sys.argv[1]
model, work = net().to("cuda"), spin(2)
if how == "full":
    with torch.no_grad():  # libraries take what they need beforehand
        model(torch.ones(1, WIDTH, device="cuda"))
    free, _ = torch.cuda.mem_get_info()
    held = take(free - LEFT)
once()
if how == "assert":
    torch._assert_async(torch.zeros(1, device="cuda"))
    once()
elif how in ("memory", "retried"):
    needed = torch.cuda.get_device_properties(0).total_memory + 2**30
    try:
        take(needed)
    except torch.OutOfMemoryError:
        if how == "memory":
            raise
    once()
print("trained to the end")
