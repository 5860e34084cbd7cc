import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from planted import Data, spend
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def worker(rank, size, meeting):
    dist.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=size)
    dataset = Data(320)
    sampler = DistributedSampler(dataset)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(1):
        sampler.set_epoch(epoch)
        for x in DataLoader(dataset, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            spend("compute", 0.004)
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (2, os.path.join(folder, "meeting")), nprocs=2)
