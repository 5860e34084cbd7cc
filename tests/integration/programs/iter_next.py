import torch
from planted import spend
from torch.utils.data import DataLoader, TensorDataset


def collate(samples):
    spend("input", 0.005)
    return torch.stack([x for x, _ in samples]), torch.stack([y for _, y in samples])


data = TensorDataset(torch.randn(70, 8), torch.randn(70, 1))
loader = DataLoader(data, batch_size=7, shuffle=True, collate_fn=collate)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters())
batches = iter(loader)
step = 0
while step < 60:
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    loss = torch.nn.functional.mse_loss(net(x), y)
    spend("compute", 0.005)
    opt.zero_grad()
    loss.backward()
    opt.step()
    step += 1
