import os
import tempfile
import time

import h5py
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

config = {
    "lines": 1536,
    "columns": 128,
    "bands": 32,
    "classes": 6,
    "lines_per_batch": 16,
    "epochs": 3,
    "num_workers": 2,
    "lr": 2e-3,
}


def simulate_flightline(path, cfg):
    """Writes a reflectance cube the way the provider ships it: gzip, 64 lines to a chunk."""
    rng = np.random.default_rng(3)
    shape = (cfg["lines"], cfg["columns"], cfg["bands"])
    ground = rng.integers(0, cfg["classes"], shape[:2], dtype=np.uint8)
    spectra = rng.integers(200, 4000, (cfg["classes"], cfg["bands"]), dtype=np.uint16)
    with h5py.File(path, "w") as f:
        cube = f.create_dataset(
            "reflectance", shape, "uint16", chunks=(64, cfg["columns"], cfg["bands"]), compression="gzip", compression_opts=1
        )
        for top in range(0, cfg["lines"], 64):
            block = spectra[ground[top : top + 64]]
            cube[top : top + 64] = block + rng.integers(0, 60, block.shape, dtype=np.uint16)
        f.create_dataset("ground_truth", data=ground)


class FlightlineDataset(Dataset):
    """One scan line of the sensor is one sample: its spectra and their classes."""

    def __init__(self, path):
        self.path = path
        self.reflectance = self.ground_truth = None
        with h5py.File(path, "r") as f:
            self.n_lines = f["reflectance"].shape[0]

    def __len__(self):
        return self.n_lines

    def get_line(self, line):
        if self.reflectance is None:
            f = h5py.File(self.path, "r")
            self.reflectance, self.ground_truth = f["reflectance"], f["ground_truth"]
        return self.reflectance[line], self.ground_truth[line]

    def __getitem__(self, line):
        spectra, classes = self.get_line(line)
        return torch.from_numpy(spectra.astype(np.float32) / 4000), torch.from_numpy(classes.astype(np.int64))


class RunsOfLines:
    """Batches of neighbouring lines, in random order."""

    def __init__(self, n_lines, size):
        self.n_lines, self.size = n_lines, size

    def __len__(self):
        return self.n_lines // self.size

    def __iter__(self):
        for run in torch.randperm(len(self)).tolist():
            yield list(range(run * self.size, (run + 1) * self.size))


def train(cfg, path):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dataset = FlightlineDataset(path)
    loader = DataLoader(
        dataset,
        batch_sampler=RunsOfLines(len(dataset), cfg["lines_per_batch"]),
        num_workers=cfg["num_workers"],
        persistent_workers=True,
    )
    net = nn.Sequential(nn.Linear(cfg["bands"], 160), nn.ReLU(), nn.Linear(160, 160), nn.ReLU(), nn.Linear(160, cfg["classes"]))
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    criterion = nn.CrossEntropyLoss()
    start, lines = time.perf_counter(), 0
    for epoch in range(cfg["epochs"]):
        for spectra, classes in loader:
            loss = criterion(net(spectra).flatten(0, 1), classes.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            lines += len(spectra)
        print(f"[{epoch + 1}/{cfg['epochs']}] loss={loss.item():.4f}")
    return lines / (time.perf_counter() - start)


with tempfile.TemporaryDirectory() as folder:
    flightline = os.path.join(folder, "NEON_reflectance.h5")
    simulate_flightline(flightline, config)
    rate = train(config, flightline)
print(f"throughput: {rate:.1f} samples/s")
