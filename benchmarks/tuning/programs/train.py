"""A plain training of one of the workloads, as a user writes it: nothing in it knows that its loader is tuned."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader
from workloads import WORKLOADS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2, help="batches a worker prepares ahead")
    parser.add_argument("--batch", type=int, help="samples (default: the workload's)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batches", type=int, default=4000, help="in an epoch (default: 4000)")
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # the accelerator computes, and loader workers want the processors
    workload = WORKLOADS[options.workload]
    batch = options.batch or workload.batch
    loader = DataLoader(
        workload.data(options.batches * batch),
        batch_size=batch,
        shuffle=True,
        num_workers=options.workers,
        prefetch_factor=options.prefetch if options.workers else None,
    )
    net = workload.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for epoch in range(options.epochs):
        total = torch.zeros(())
        for samples, labels in loader:
            loss = nn.functional.cross_entropy(net(samples), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {float(total) / len(loader):.3f}")


if __name__ == "__main__":
    main()
