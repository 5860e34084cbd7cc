import whyidle
import torch
from planted import spend

policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)


@whyidle.phase("data")
def rollout():
    spend("input", 0.006)
    return torch.randn(32, 4)


for iteration in range(40):
    whyidle.step()
    states = rollout()
    for _ in range(3):
        loss = policy(states).square().mean()
        spend("compute", 0.003)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if iteration % 10 == 9:
        with whyidle.phase("evaluation games"):
            spend("boundary", 0.03)
