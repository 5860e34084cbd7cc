import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(8)


model = torch.compile(
    torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)), backend="eager"
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="eager")
def loss_of(out):
    return out.square().mean()


for x in DataLoader(Data(), batch_size=4):
    optimizer.zero_grad()
    loss = loss_of(model(x))
    loss.backward()
    spend("compute", 0.004)
    optimizer.step()
