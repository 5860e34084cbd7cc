import torch
from planted import spend
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper


def load(index):
    spend("input", 0.001)
    return torch.full((8,), float(index))


loader = Loader(Mapper(Batcher(Mapper(IterableWrapper(range(120)), load), batch_size=4), torch.stack))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for _epoch in range(2):
    for x in loader:
        loss = model(x).square().mean()
        spend("compute", 0.004)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
