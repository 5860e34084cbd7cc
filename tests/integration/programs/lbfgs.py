import torch
from planted import spend
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.randn(8), torch.randn(1)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
for x, y in DataLoader(Data(), batch_size=4):

    def closure(x=x, y=y):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        spend("compute", 0.002)
        loss.backward()
        return loss

    optimizer.step(closure)
    spend("host", 0.003)
