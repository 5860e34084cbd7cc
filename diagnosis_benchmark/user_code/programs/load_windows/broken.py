"""Day-ahead forecasts of electric load from hourly meters (window in: 7 days, window out: 24 h)."""
import argparse
import csv
import math
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

LOOKBACK, HORIZON = 168, 24


def write_meters(folder, meters, hours, rng):
    for m in range(meters):
        phase, level = rng.uniform(0, 24), rng.uniform(1, 5)
        with open(os.path.join(folder, f"meter_{m}.csv"), "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(["hour", "kwh", "temperature"])
            for h in range(hours):
                warm = 10 + 12 * math.sin(h / 1400)
                kwh = level * (1.5 + math.sin((h - phase) * math.pi / 12)) + 0.05 * (18 - warm) + rng.gauss(0, 0.1)
                out.writerow([h, f"{kwh:.4f}", f"{warm:.3f}"])


class MeterWindows(Dataset):
    def __init__(self, folder, meters, hours, stride):
        self.folder, self.meters = folder, meters
        self.starts = range(0, hours - LOOKBACK - HORIZON, stride)
        self.table = None

    def load(self):
        table = []
        for m in range(self.meters):
            with open(os.path.join(self.folder, f"meter_{m}.csv")) as f:
                rows = [(float(r["kwh"]), float(r["temperature"])) for r in csv.DictReader(f)]
            series = np.array(rows, dtype=np.float32)
            table.append((series - series.mean(0)) / series.std(0))
        return table

    def __len__(self):
        return self.meters * len(self.starts)

    def __getitem__(self, i):
        if self.table is None:
            self.table = self.load()
        meter, k = divmod(i, len(self.starts))
        s = self.starts[k]
        series = self.table[meter]
        return series[s : s + LOOKBACK], series[s + LOOKBACK : s + LOOKBACK + HORIZON, 0]


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.stem = nn.Conv1d(2, 32, 6, stride=3)
        self.rnn = nn.LSTM(32, hidden, batch_first=True)
        self.head = nn.Linear(hidden, HORIZON)

    def forward(self, x):
        h = torch.relu(self.stem(x.transpose(1, 2))).transpose(1, 2)
        return self.head(self.rnn(h)[0][:, -1])


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=18)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--meters", type=int, default=8)
    p.add_argument("--hours", type=int, default=6000)
    p.add_argument("--lr", type=float, default=3e-3)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="meters_")
    write_meters(folder, args.meters, args.hours, random.Random(42))
    windows = MeterWindows(folder, args.meters, args.hours, stride=30)
    loader = DataLoader(windows, args.batch_size, shuffle=True, num_workers=1, drop_last=True)
    model = Forecaster()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    step = n = 0
    for epoch in range(args.epochs):
        total = 0.0
        for past, future in loader:
            loss = nn.functional.huber_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            step += 1
            if step == 5:
                began = time.perf_counter()
            if step > 5:
                n += len(past)
        scheduler.step()
        print(f"epoch {epoch:2d}  huber {total / len(loader):.4f}", flush=True)
    took = time.perf_counter() - began
    shutil.rmtree(folder)
    print(f"throughput: {n / took:.1f} samples/s")


main()
