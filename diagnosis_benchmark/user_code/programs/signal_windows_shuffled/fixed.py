import time

T0 = time.perf_counter()

import argparse
import itertools
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="current windows to k-mers")
parser.add_argument("--windows", type=int, default=420_000)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--steps", type=int, default=110)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--channels", type=int, default=72)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--seed", type=int, default=25)
args = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(args.seed)
np.random.seed(args.seed)


def simulate(folder):
    """The windows as the segmentation of one long run leaves them: in order of time."""
    rng = np.random.default_rng(args.seed)
    kmers = rng.integers(1, 5, (args.windows, 4), dtype=np.uint8)
    level = np.array([0, 30, 60, 90, 120], dtype=np.int16)[kmers].repeat(args.length // 4, axis=1)
    noise = rng.integers(-20, 20, 65_536 + args.length, dtype=np.int16)
    level += np.lib.stride_tricks.sliding_window_view(noise, args.length)[np.arange(args.windows) % 65_536]
    np.save(folder / "windows.npy", level)
    np.save(folder / "kmers.npy", kmers)
    np.save(folder / "weights.npy", rng.random((args.windows, 1), dtype=np.float32))


def load_windows(folder):
    order = np.random.permutation(args.windows)
    windows = np.load(folder / "windows.npy")[order]
    kmers = np.load(folder / "kmers.npy")[order]
    weights = np.load(folder / "weights.npy")[order]
    return windows, kmers, weights


class Windows(Dataset):
    def __init__(self, windows, kmers, weights):
        self.windows, self.kmers, self.weights = windows, kmers, weights

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        signal = torch.from_numpy(np.asarray(self.windows[i], dtype=np.float32) / 60.0 - 1.0)
        return signal[None], torch.from_numpy(np.asarray(self.kmers[i], dtype=np.int64)) - 1, float(self.weights[i, 0])


class Caller(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, c, 9, padding=4), nn.SiLU(),
            nn.Conv1d(c, c, 9, padding=4), nn.SiLU(),
            nn.Conv1d(c, c, 9, padding=4, stride=2), nn.SiLU(),
            nn.AdaptiveAvgPool1d(4), nn.Conv1d(c, 4, 1),
        )

    def forward(self, x):
        return self.body(x)


folder = Path(tempfile.mkdtemp(prefix="windows_"))
simulate(folder)
dataset = Windows(*load_windows(folder))
loader = DataLoader(dataset, batch_size=args.batch, num_workers=1, drop_last=True)

model = Caller(args.channels)
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
history = []
for step, (signal, target, weight) in enumerate(itertools.islice(loader, args.steps), 1):
    losses = F.cross_entropy(model(signal), target, reduction="none").mean(1)
    loss = (losses * weight.float()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    if step % 20 == 0:
        print(json.dumps({"step": step, "loss": round(float(np.mean(history[-20:])), 4)}), flush=True)

seconds = time.perf_counter() - T0
del loader, dataset
shutil.rmtree(folder)
print(f"throughput: {len(history) * args.batch / seconds:.1f} samples/s")
