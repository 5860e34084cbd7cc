# Next-basket value from the orders of a customer.
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CUSTOMERS = 1800
LENGTH = 40
BATCH = 30
EPOCHS = 4

rng = np.random.default_rng(21)
torch.manual_seed(21)
torch.set_num_threads(1)
rows = 90_000
orders = pd.DataFrame({
    "customer": rng.integers(0, CUSTOMERS, rows),
    "day": rng.integers(0, 720, rows),
    "amount": rng.gamma(2.0, 15.0, rows).astype("float32"),
    "items": rng.integers(1, 9, rows).astype("float32"),
    "discount": rng.random(rows, dtype="float32"),
})
orders["customer"] = "C" + orders["customer"].astype(str).str.zfill(6)


class Baskets(Dataset):
    def __init__(self, orders):
        self.orders = orders
        self.ids = [f"C{i:06d}" for i in range(CUSTOMERS)]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        mine = self.orders[self.orders["customer"] == self.ids[index]]
        mine = mine.sort_values("day")
        values = mine[["day", "amount", "items", "discount"]].to_numpy(dtype="float32")
        target = values[-1, 1] / 30.0 if len(values) else 0.0
        sequence = np.zeros((LENGTH, 4), dtype="float32")
        past = values[:-1][-LENGTH:]
        if len(past):
            sequence[-len(past):] = past
            sequence[:, 0] = np.diff(sequence[:, 0], prepend=0) / 30.0
            sequence[:, 1] /= 30.0
        return torch.from_numpy(sequence), np.float32(target)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 64)
        self.rnn = nn.GRU(64, 128, batch_first=True)
        self.head = nn.Linear(128, 1)

    def forward(self, x):
        _, last = self.rnn(torch.relu(self.embed(x)))
        return self.head(last[-1]).squeeze(-1)


loader = DataLoader(Baskets(orders), batch_size=BATCH, shuffle=True)
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

step = 0
started = None
for epoch in range(EPOCHS):
    running = 0.0
    for sequence, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(sequence), target)
        loss.backward()
        optimizer.step()
        running += loss.item()
        step += 1
        if step == 5:
            started = time.perf_counter()
    print("epoch", epoch, "loss", round(running / len(loader), 4))

elapsed = time.perf_counter() - started
print(f"throughput: {(step - 5) * BATCH / elapsed:.1f} samples/s")
