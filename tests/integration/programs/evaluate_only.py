import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 3).eval()
hits = 0
with torch.no_grad():
    for x, y in DataLoader(TensorDataset(torch.randn(100, 8), torch.randint(3, (100,))), batch_size=4):
        hits += (model(x).argmax(1) == y).sum().item()
