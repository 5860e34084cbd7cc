from concurrent.futures import ThreadPoolExecutor

import torch
from planted import Data, spend
from torch.utils.data import DataLoader


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
    pool.submit(fit, DataLoader(Data(200), batch_size=4)).result()
