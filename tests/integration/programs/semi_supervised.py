import torch
from planted import spend
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __init__(self, samples, labelled):
        self.samples, self.labelled = samples, labelled

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        spend("input", 0.001)
        x = torch.randn(8)
        return (x, index % 3) if self.labelled else x


model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
unlabelled_loader = DataLoader(Data(600, False), batch_size=6)
unlabelled = iter(unlabelled_loader)
for x, y in DataLoader(Data(150, True), batch_size=3):
    supervised = nn.functional.cross_entropy(model(x), y)
    spend("compute", 0.012)
    u = next(unlabelled)
    consistency = model(u).softmax(-1).var()
    loss = supervised + consistency
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
