"""The training as loadtune wants it: a dataset, a net and one step, of which it makes a loop and loaders of its own."""

from functools import partial

import torch
from loadtune import Workload
from parts import Net, Parts, Started

parts = Parts()


def train_step(net, optimizer, batch, _device):
    parts.begin_step()
    loss = net(batch).square().mean()
    loss.backward()
    if parts.updates:
        optimizer.step()
        optimizer.zero_grad()
    parts.after_update()
    parts.end_step()
    return loss


def get_workload():
    return Workload(
        name=parts.case.name,
        make_dataset=partial(Started, parts),
        make_model=partial(Net, parts),
        train_step=train_step,
        make_optimizer=lambda net: torch.optim.SGD(net.parameters(), lr=1e-4),
        default_batch_size=parts.plan.loader.batch,
        collate_fn=parts.collate,
    )
