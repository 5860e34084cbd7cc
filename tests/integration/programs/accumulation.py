from dataclasses import dataclass

import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset


@dataclass
class Batch:
    ids: list[int]
    x: torch.Tensor

    def to(self, device):
        return Batch(self.ids, self.x.to(device))


class Text(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        spend("input", 0.001)
        return index


def collate(ids):
    return Batch(ids, torch.randn(len(ids), 6))


model = torch.nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
accumulate = 4
for i, batch in enumerate(DataLoader(Text(), batch_size=4, collate_fn=collate)):
    batch = batch.to("cpu")
    loss = model(batch.x).square().mean() / accumulate
    spend("compute", 0.003)
    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        spend("host", 0.008)
