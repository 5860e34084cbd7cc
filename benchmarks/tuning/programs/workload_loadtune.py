"""The same training as loadtune wants it: a data set, a net and one step, of which it makes a loop and loaders.

Which workload it is comes by the environment, which loadtune passes on to its trials.
"""

from __future__ import annotations

import os
from functools import partial

import torch
from loadtune import Workload
from torch import nn
from workloads import WORKLOADS

BATCHES = 4000
"""In an epoch, as `train.py` has it."""

workload = WORKLOADS[os.environ["TUNING_WORKLOAD"]]
torch.set_num_threads(1)


def train_step(net, optimizer, batch, _device):
    samples, labels = batch
    loss = nn.functional.cross_entropy(net(samples), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def get_workload():
    return Workload(
        name=workload.name,
        make_dataset=partial(workload.data, BATCHES * workload.batch),
        make_model=workload.net,
        train_step=train_step,
        make_optimizer=lambda net: torch.optim.SGD(net.parameters(), lr=1e-3),
        default_batch_size=workload.batch,
    )
