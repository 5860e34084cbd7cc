"""Raman spectra -> substance, from one compressed HDF5 file."""
import os
import shutil
import tempfile
import time
from dataclasses import dataclass

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclass
class Config:
    spectra: int = 3072
    points: int = 2048
    piece: int = 96
    batch: int = 16
    workers: int = 2
    classes: int = 12
    epochs: int = 2
    seed: int = 15


def write_file(path, cfg):
    rng = np.random.default_rng(cfg.seed)
    label = rng.integers(0, cfg.classes, cfg.spectra)
    centre = rng.uniform(100, cfg.points - 100, (cfg.classes, 5))
    axis = np.arange(cfg.points, dtype="float32")
    peaks = np.exp(-0.5 * ((axis - centre[..., None]) / 9.0) ** 2).sum(1)
    spectra = peaks[label] * 400 + rng.normal(0, 25, (cfg.spectra, cfg.points)) + axis * 0.2
    with h5py.File(path, "w") as out:
        out.create_dataset("spectra", data=spectra.round().astype("float32"), chunks=(cfg.piece, cfg.points),
                           compression="gzip", compression_opts=1)
        out["label"] = label


class Spectra(Dataset):
    def __init__(self, path):
        self.path = path
        self.table = None
        with h5py.File(path) as source:
            self.label = source["label"][:]
            points = source["spectra"].shape[1]
        self.slope = np.linspace(-1, 1, points)

    def __len__(self):
        return len(self.label)

    def without_baseline(self, row):
        row = row - self.slope * (np.median(row[-200:]) - np.median(row[:200])) / 2
        padded = np.pad(row, 15, mode="edge")
        around = np.lib.stride_tricks.sliding_window_view(padded, 31)
        return np.median(around, axis=-1) - np.median(row)

    def __getitem__(self, index):
        if self.table is None:
            self.table = h5py.File(self.path)["spectra"]
        row = self.table[index]
        clean = self.without_baseline(row.astype("float64"))
        clean = clean / (np.abs(clean).max() + 1e-6)
        return torch.from_numpy(clean.astype("float32"))[None], int(self.label[index])


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 32, 9, stride=2, padding=4), nn.ReLU(),
            nn.Conv1d(32, 64, 9, stride=2, padding=4), nn.ReLU(),
            nn.AdaptiveAvgPool1d(16), nn.Flatten(), nn.Linear(1024, classes))

    def forward(self, x):
        return self.body(x)


def main(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="raman-")
    path = os.path.join(folder, "raman.h5")
    write_file(path, cfg)
    data = Spectra(path)
    order = RandomSampler(data, generator=torch.Generator().manual_seed(cfg.seed))
    loader = DataLoader(data, cfg.batch, sampler=order, num_workers=cfg.workers, drop_last=True)
    model = Net(cfg.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    count = 0
    for epoch in range(cfg.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
            if count == 5:
                start = time.perf_counter()
        print(f"[{epoch}] {loss.item():.3f}")
    took = time.perf_counter() - start
    shutil.rmtree(folder)
    print(f"throughput: {(count - 5) * cfg.batch / took:.1f} samples/s")


main(Config())
