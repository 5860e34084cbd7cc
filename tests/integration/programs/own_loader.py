import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter


class Data(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        spend("input", 0.002)
        return torch.randn(8)


class Loader:
    """Iterates over torch's iterator without torch's loader, as fastai's does."""

    def __init__(self):
        self.of = DataLoader(Data(), batch_size=4)

    def __iter__(self):
        yield from _SingleProcessDataLoaderIter(self.of)


class Descent:
    """No optimizer of torch.optim."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def step(self):
        with torch.no_grad():
            for p in self.parameters:
                p.add_(p.grad, alpha=-0.01)
                p.grad = None


model = torch.nn.Linear(8, 1)
optimizer = Descent(model.parameters())
for batch in Loader():
    loss = model(batch).square().mean()
    spend("compute", 0.004)
    loss.backward()
    optimizer.step()
