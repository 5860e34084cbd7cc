#!/usr/bin/env python
"""Predict tomorrow's load of a feeder from a week of smart-meter readings."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

parser = argparse.ArgumentParser()
parser.add_argument("--feeders", type=int, default=64)
parser.add_argument("--days", type=int, default=110)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()

WEEK = 7 * 96
home = pathlib.Path(tempfile.mkdtemp(prefix="meters_"))

ARCHIVER = """
import bz2, pathlib, sys
folder = pathlib.Path(sys.argv[1])
while True:
    for path in sorted(folder.glob("*.z")):
        packed = b""
        for level in range(1, 10):
            packed = bz2.compress(path.read_bytes() * 3, level)
        (folder / "archive.tmp").write_bytes(packed)
"""


def write_year():
    rng = np.random.default_rng(11)
    daily = np.sin(np.linspace(0, 2 * np.pi, 96)) + 1.5
    for feeder in range(args.feeders):
        level = rng.uniform(0.5, 2.0, (args.days, 1))
        year = level * daily + rng.normal(0, 0.1, (args.days, 96))
        packed = zlib.compress(year.astype(np.float32).tobytes(), 1)
        (home / f"feeder{feeder:03d}.z").write_bytes(packed)


class Weeks(Dataset):
    """One sample: a week of a feeder, smoothed, and the day that follows."""

    def __init__(self):
        self.files = sorted(home.glob("feeder*.z"))
        self.starts = list(range(0, args.days - 8, 4))

    def __len__(self):
        return len(self.files) * len(self.starts)

    def __getitem__(self, k):
        feeder, start = divmod(k, len(self.starts))
        raw = zlib.decompress(self.files[feeder].read_bytes())
        year = np.frombuffer(raw, np.float32)
        at = self.starts[start] * 96
        week = year[at : at + WEEK]
        kernel = np.hanning(31).astype(np.float32)
        trend = np.convolve(week, kernel / kernel.sum(), mode="same")
        spectrum = np.abs(np.fft.rfft(year[: at + WEEK]))[:64].astype(np.float32)
        day = year[at + WEEK : at + WEEK + 96]
        series = torch.from_numpy(np.stack([week, trend]))
        return series, torch.from_numpy(np.log1p(spectrum)), torch.from_numpy(day.copy())


class Forecaster(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv1d(2, 64, 9, padding=4)
        self.conv2 = torch.nn.Conv1d(64, 96, 9, stride=4)
        self.head = torch.nn.Linear(96 * 8 + 64, 96)

    def forward(self, week, spectrum):
        h = F.relu(self.conv2(F.relu(self.conv1(week))))
        h = F.adaptive_avg_pool1d(h, 8).flatten(1)
        return self.head(torch.cat([h, spectrum], 1))


write_year()
archiver = subprocess.Popen([sys.executable, "-c", ARCHIVER, str(home)])
torch.manual_seed(3)
loader = DataLoader(Weeks(), batch_size=args.batch, shuffle=True, num_workers=1, drop_last=True)
model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
step, started = 0, 0.0
for epoch in range(args.epochs):
    for week, spectrum, day in loader:
        loss = F.smooth_l1_loss(model(week, spectrum), day)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step == 5:
            started = time.perf_counter()
    print(f"epoch {epoch}: loss {loss.item():.4f}")
elapsed = time.perf_counter() - started
archiver.kill()
archiver.wait()
shutil.rmtree(home)
print(f"throughput: {(step - 5) * args.batch / elapsed:.1f} samples/s")
