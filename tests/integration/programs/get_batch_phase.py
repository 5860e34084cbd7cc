import whyidle
import torch
from planted import spend, spending

data = torch.randint(0, 50, (20_000,))
block_size, batch_size = 8, 12


def get_batch(split):
    with whyidle.phase("data"):
        ix = torch.randint(len(data) - block_size, (batch_size,))
        spend("input" if split == "train" else "evaluation", 0.004)
        return torch.stack([data[i : i + block_size] for i in ix]), torch.stack([data[i + 1 : i + 9] for i in ix])


@torch.no_grad()
def estimate_loss(model):
    for _ in range(5):
        x, y = get_batch("val")
        torch.nn.functional.cross_entropy(model(x).view(-1, 50), y.view(-1)).item()


@whyidle.phase("checkpoint")
def checkpoint():
    with spending("outside"):
        spend("sleep", 0.02)


model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for iter_num in range(60):
    if iter_num % 20 == 0:
        with spending("outside"):
            estimate_loss(model)
    X, Y = get_batch("train")
    loss = torch.nn.functional.cross_entropy(model(X).view(-1, 50), Y.view(-1))
    spend("compute", 0.004)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % 20 == 19:
        checkpoint()
