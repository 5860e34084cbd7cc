import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 180

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(8), torch.randn(1)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=5)
for i, (x, y) in enumerate(DataLoader(Data(), batch_size=3)):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = torch.nn.functional.mse_loss(model(x).float(), y)
    spend("compute", 0.004)
    if i % 6 == 3:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
