from collections import namedtuple

import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset

Sample = namedtuple("Sample", "image text")


class Pairs(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        spend("input", 0.002)
        return Sample(torch.randn(12), torch.randint(9, (5,)))


def cycle(dl):
    while True:
        yield from dl


class Trainer:
    def __init__(self, model, dataset, *, batch_size=4, steps=60):
        self.model = model
        self.dl = cycle(DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True))
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-4)
        self.steps = steps

    def train(self):
        for _ in range(self.steps):
            batch = next(self.dl)
            loss = self.model(batch.image).square().mean()
            spend("compute", 0.003)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.opt.zero_grad()
            spend("host", 0.003)


Trainer(torch.nn.Linear(12, 4), Pairs()).train()
