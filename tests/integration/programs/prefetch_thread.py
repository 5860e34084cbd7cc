import queue
import threading

import torch
from planted import spend
from torch.utils.data import DataLoader, TensorDataset

ready = queue.Queue(4)


def prefetch(loader):
    for batch in loader:
        ready.put(batch)
    ready.put(None)


loader = DataLoader(TensorDataset(torch.randn(200, 8)), batch_size=4)
threading.Thread(target=prefetch, args=(loader,), name="prefetch", daemon=True).start()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while (batch := ready.get()) is not None:
    loss = model(batch[0]).square().mean()
    spend("compute", 0.004)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
