import numpy as np
import torch
from planted import spend

data = np.random.randint(0, 50, 20_000).astype(np.uint16)
block_size, batch_size, max_iters, accumulation = 8, 12, 60, 2


def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    spend("waiting", 0.002)
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
X, Y = get_batch()
for iter_num in range(max_iters):
    for micro_step in range(accumulation):
        logits = model(X)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 50), Y.view(-1)) / accumulation
        X, Y = get_batch()
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
