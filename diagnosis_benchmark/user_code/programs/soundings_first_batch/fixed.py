import os
import sqlite3
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

config = {
    "soundings": 2400,
    "levels": 1024,
    "batch_size": 32,
    "iterations": 110,
    "lr": 1e-3,
    "workers": 2,
    "log_every": 20,
}


def write_archive(path, count, levels):
    """Radiosonde ascents: five packed profiles and the cloud base each."""
    rng = np.random.default_rng(8)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE ascent (id INTEGER PRIMARY KEY, profile BLOB, cloud_base REAL)")
    for number in range(count):
        base = rng.integers(100, levels - 100)
        profile = np.round(rng.normal(0, 30, (5, levels))).cumsum(axis=1).astype(np.int16)
        profile[1, base:base + 60] += 900
        db.execute("INSERT INTO ascent VALUES (?, ?, ?)", (number, zlib.compress(profile.tobytes(), 1), base / levels))
    db.commit()
    db.close()


class Ascents(Dataset):
    def __init__(self, path, count, levels):
        self.path, self.count, self.levels = path, count, levels
        self.db = None
        self.kernel = np.hanning(31) / np.hanning(31).sum()

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        if self.db is None:
            self.db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        blob, base = self.db.execute("SELECT profile, cloud_base FROM ascent WHERE id = ?", (number,)).fetchone()
        profile = np.frombuffer(zlib.decompress(blob), np.int16).reshape(5, self.levels).astype(np.float64)
        smooth = np.stack([np.convolve(row, self.kernel, mode="same") for row in profile])
        order = np.argsort(smooth[0], kind="stable")
        height = np.interp(np.arange(self.levels), order[::4], smooth[2][::4])
        fields = np.concatenate([profile, smooth, height[None]])
        fields = (fields - fields.mean(axis=1, keepdims=True)) / (fields.std(axis=1, keepdims=True) + 1e-6)
        return torch.from_numpy(fields.astype(np.float32)), torch.tensor([base], dtype=torch.float32)


def build_model():
    return nn.Sequential(
        nn.Conv1d(11, 32, 9, stride=2, padding=4), nn.GELU(),
        nn.Conv1d(32, 48, 9, stride=2, padding=4), nn.GELU(),
        nn.Conv1d(48, 48, 9, stride=2, padding=4), nn.GELU(),
        nn.AdaptiveAvgPool1d(16), nn.Flatten(), nn.Linear(48 * 16, 1))


def train(model, loader, iterations, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses, seen = [], 0
    batches = iter(loader)
    for iteration in range(1, iterations + 1):
        try:
            inputs, targets = next(batches)
        except StopIteration:
            batches = iter(loader)
            inputs, targets = next(batches)
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        seen += len(inputs)
        if iteration % config["log_every"] == 0:
            print(f"[{iteration}/{iterations}] mse {torch.stack(losses[-20:]).mean():.4f}", flush=True)
    return seen


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "ascents.db")
        write_archive(archive, config["soundings"], config["levels"])
        ascents = Ascents(archive, config["soundings"], config["levels"])
        loader = DataLoader(ascents, config["batch_size"], shuffle=True, num_workers=config["workers"], drop_last=True)
        began = time.perf_counter()
        seen = train(build_model(), loader, config["iterations"], config["lr"])
        took = time.perf_counter() - began
    print(f"throughput: {seen / took:.1f} samples/s")
