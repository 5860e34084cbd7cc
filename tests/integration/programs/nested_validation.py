import torch
from planted import Data, spend, spending
from torch.utils.data import DataLoader


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
val = DataLoader(Data(20, targets=True), batch_size=10)


def evaluate():
    model.eval()
    with torch.inference_mode():
        total = sum(torch.nn.functional.mse_loss(model(x), y).item() for x, y in val)
    model.train()
    return total


for _epoch in range(2):
    for i, (x, y) in enumerate(DataLoader(Data(105, targets=True), batch_size=3, num_workers=0)):
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        spend("compute", 0.004)
        optimizer.step()
        optimizer.zero_grad()
        if i % 10 == 9:
            with spending("outside"):
                evaluate()
