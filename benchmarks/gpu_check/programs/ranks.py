"""One of the ranks that train together: ranks.py ddp|fsdp

As users forget it: the current device is left at the first GPU, and the model moved to the rank's.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from benchmarks.gpu_check.programs.loop import COMPUTE_MS, WIDTH, Samples, spin, train

rank = int(os.environ["LOCAL_RANK"])
device = f"cuda:{rank}"
if sys.argv[1] == "fsdp":
    from torch.distributed.fsdp import fully_shard

    torch.cuda.set_device(rank)  # FSDP2 asks for it
dist.init_process_group("nccl")
layers = [torch.nn.Linear(WIDTH, 512), torch.nn.Linear(512, 512), torch.nn.Linear(512, 2)]
model: torch.nn.Module = torch.nn.Sequential(*layers).to(device)
if sys.argv[1] == "fsdp":
    for layer in layers:
        fully_shard(layer)
    fully_shard(model)
else:
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])
with torch.cuda.device(device):
    spins = spin(COMPUTE_MS)


def work() -> None:
    with torch.cuda.device(device):
        spins()


train(model, DataLoader(Samples()), device, work)
print(
    "rank", rank, "holds a context on", [torch._C._cuda_hasPrimaryContext(i) for i in range(torch.cuda.device_count())]
)
dist.destroy_process_group()
