import torch
from planted import spend
from torch.utils.data import DataLoader, TensorDataset

batches = list(DataLoader(TensorDataset(torch.randn(100, 8)), batch_size=10))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(6):
    for (x,) in batches:
        loss = model(x).square().mean()
        spend("compute", 0.003)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
