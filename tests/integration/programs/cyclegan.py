import itertools

import torch
from planted import spend
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Domain(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 120

    def __getitem__(self, index):
        spend("input", self.seconds)
        return torch.randn(16)


horses, zebras = DataLoader(Domain(0.002), batch_size=2), DataLoader(Domain(0.001), batch_size=2)
there, back = nn.Linear(16, 16), nn.Linear(16, 16)
optimizer = torch.optim.Adam(itertools.chain(there.parameters(), back.parameters()), lr=2e-4)
for real_a, real_b in zip(horses, zebras, strict=True):
    optimizer.zero_grad()
    loss = (back(there(real_a)) - real_a).abs().mean() + (there(back(real_b)) - real_b).abs().mean()
    spend("compute", 0.006)
    loss.backward()
    optimizer.step()
