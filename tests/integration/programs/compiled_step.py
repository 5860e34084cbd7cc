import torch
from planted import Data, spend
from torch.utils.data import DataLoader


model = torch.compile(
    torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)), backend="eager"
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="eager")
def loss_of(out):
    return out.square().mean()


for x in DataLoader(Data(480), batch_size=4):
    optimizer.zero_grad()
    loss = loss_of(model(x))
    loss.backward()
    spend("compute", 0.004)
    optimizer.step()
