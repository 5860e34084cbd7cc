from concurrent.futures import ThreadPoolExecutor

import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(8)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def fit(loader):
    for x in loader:
        loss = model(x).square().mean()
        spend("compute", 0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


with ThreadPoolExecutor(1) as pool:
    pool.submit(fit, DataLoader(Data(), batch_size=4)).result()
