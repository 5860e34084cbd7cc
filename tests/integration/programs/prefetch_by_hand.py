import torch
from planted import spend
from torch.utils.data import DataLoader, TensorDataset


def collate(samples):
    spend("input", 0.006)
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def forward(self, x):
        spend("compute", 0.006)
        return self.layers(x)


loader = DataLoader(TensorDataset(torch.randn(400, 8), torch.randn(400, 1)), batch_size=5, collate_fn=collate)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
batches = iter(loader)
x, y = next(batches)
for _ in range(60):
    loss = torch.nn.functional.mse_loss(net(x), y)
    # The next batch, while a device would still work for this one.
    x, y = next(batches)
    spend("compute", 0.003)
    (loss / 2).backward()
    opt.step()
    opt.zero_grad()
