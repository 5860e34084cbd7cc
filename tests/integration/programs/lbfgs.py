import torch
from planted import Data, spend
from torch.utils.data import DataLoader


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for x, y in DataLoader(Data(160, targets=True), batch_size=4):

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        spend("compute", 0.002)
        loss.backward()
        return loss

    optimizer.step(closure)
    spend("host", 0.003)
