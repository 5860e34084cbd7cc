import os
import tempfile

import torch
from planted import spend, spending
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        spend("input", 0.001)
        return torch.full((3, 8, 8), float(index)), index % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3 * 8 * 8, 10)

    def forward(self, x):
        spend("compute", 0.004)
        return self.fc(x.flatten(1))


def train(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        spend("host", 0.002)
    return total


@torch.no_grad()
def validate(model, loader):
    model.eval()
    return sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)


if __name__ == "__main__":
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    train_loader = DataLoader(Images(120), batch_size=4, shuffle=True)
    val_loader = DataLoader(Images(16), batch_size=8)
    for _epoch in range(2):
        train(model, train_loader, criterion, optimizer)
        with spending("outside"):
            validate(model, val_loader)
            torch.save(model.state_dict(), os.path.join(tempfile.gettempdir(), f"model-{os.getpid()}.pt"))
    os.unlink(os.path.join(tempfile.gettempdir(), f"model-{os.getpid()}.pt"))
