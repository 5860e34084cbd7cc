import torch
from planted import spend
from torch.utils.data import DataLoader, TensorDataset


def collate(samples):
    spend("input", 0.004)
    return torch.stack([s[0] for s in samples])


w = torch.randn(8, 1, requires_grad=True)
lr = 1e-3
loader = DataLoader(TensorDataset(torch.randn(200, 8)), batch_size=4, collate_fn=collate)
for x in loader:
    loss = (x @ w).square().mean()
    spend("compute", 0.004)
    loss.backward()
    with torch.no_grad():
        for p in (w,):
            p.data -= lr * p.grad
            p.grad = None
