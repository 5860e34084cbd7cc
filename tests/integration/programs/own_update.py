import torch
from planted import spend

model = torch.nn.Linear(6, 2)
text = torch.randn(200, 6)
for start in range(0, 160, 4):
    spend("input", 0.001)
    x = text[start : start + 4]
    loss = model(x).square().mean()
    spend("compute", 0.003)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-0.1)
