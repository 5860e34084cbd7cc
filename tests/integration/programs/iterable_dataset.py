import torch
from planted import spend
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        for i in range(250):
            spend("input", 0.001)
            yield {"name": f"sample {i}", "x": torch.randn(8)}


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Stream(), batch_size=5):
    loss = model(batch["x"]).square().mean()
    spend("compute", 0.003)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    spend("host", 0.002)
