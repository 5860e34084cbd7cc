"""Begins a program that trains on samples which take their time each."""

import sys  # noqa: F401
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset  # noqa: F401


class Slow(Dataset):
    def __init__(self, samples, seconds):
        self.samples, self.seconds = samples, seconds

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.rand(16), index % 4


def train(epochs, make_loader, computes_s=0.0):
    torch.set_num_threads(1)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(epochs):
        for images, labels in make_loader():
            time.sleep(computes_s)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
