"""Next item in a shopping basket, from the shop's order book."""
import bisect
import csv
import os
import random
import tempfile
import time
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Plan:
    customers: int = 2400
    lines: int = 36000
    items: int = 1500
    window: int = 12
    batch: int = 32
    per_epoch: int = 768
    epochs: int = 11
    lr: float = 2e-3
    seed: int = 17
    book: str = field(default="")


class Baskets(Dataset):
    def __init__(self, plan):
        self.plan = plan
        self.rows = None

    def open_book(self):
        """Order lines sorted by customer and time, and where each customer starts."""
        with open(self.plan.book, newline="") as f:
            rows = [(int(r["customer"]), r["when"], int(r["item"])) for r in csv.DictReader(f)]
        rows.sort()
        self.rows = rows
        self.keys = [row[0] for row in rows]

    def __len__(self):
        return self.plan.per_epoch

    def __getitem__(self, n):
        if self.rows is None:
            self.open_book()
        customer = (n * 7919) % self.plan.customers
        first = bisect.bisect_left(self.keys, customer)
        last = bisect.bisect_right(self.keys, customer)
        bought = [row[2] for row in self.rows[first:last]][-self.plan.window - 1 :] or [0]
        seen = [0] * (self.plan.window + 1 - len(bought)) + bought
        return torch.tensor(seen[:-1]), seen[-1]


class Next(nn.Module):
    def __init__(self, items, width=64):
        super().__init__()
        self.table = nn.Embedding(items, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, batch_first=True, dropout=0.0)
        self.mix = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(width, items)

    def forward(self, seen):
        return self.out(self.mix(self.table(seen))[:, -1])


class Trainer:
    def __init__(self, plan):
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.model = Next(plan.items)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=plan.lr)
        self.loader = DataLoader(
            Baskets(plan),
            batch_size=plan.batch,
            shuffle=True,
            num_workers=2,
        )
        self.ticks = []

    def one_epoch(self):
        for seen, target in self.loader:
            loss = nn.functional.cross_entropy(self.model(seen), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.ticks.append(time.perf_counter())
        return loss.item()

    def run(self):
        for epoch in range(self.plan.epochs):
            print(f"epoch {epoch} loss {self.one_epoch():.3f}")
        return (len(self.ticks) - 5) * self.plan.batch / (self.ticks[-1] - self.ticks[4])


def write_book(plan):
    dice = random.Random(plan.seed)
    with open(plan.book, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["customer", "when", "item"])
        for n in range(plan.lines):
            who = dice.randrange(plan.customers)
            out.writerow([who, f"2024-{n % 12 + 1:02d}-{n % 28 + 1:02d}", (who * 13 + int(dice.random() * 40)) % plan.items])


torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="shop") as folder:
    plan = Plan(book=os.path.join(folder, "orders.csv"))
    write_book(plan)
    rate = Trainer(plan).run()
print(f"throughput: {rate:.1f} samples/s")
