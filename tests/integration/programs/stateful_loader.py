import torch
from planted import spend
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader


class Data(Dataset):
    def __len__(self):
        return 120

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(8)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = StatefulDataLoader(Data(), batch_size=4)
for _epoch in range(2):
    for i, x in enumerate(loader):
        loss = model(x).square().mean()
        spend("compute", 0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if i == 20:
            loader.state_dict()
