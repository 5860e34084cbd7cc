"""Energies of small molecules from structures that lie in one archive."""

import argparse
import io
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ATOMS = 24


def write_archive(path, count):
    rng = np.random.default_rng(7)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for i in range(count):
            positions = rng.normal(size=(ATOMS, 3)).astype(np.float32)
            species = rng.integers(0, 5, ATOMS)
            buffer = io.BytesIO()
            np.savez(buffer, positions=positions, species=species, energy=np.float32((positions**2).sum() / ATOMS))
            archive.writestr(f"structures/{i:06d}.npz", buffer.getvalue())


class DiskDataset(Dataset):
    def __init__(self, path):
        self.path = path
        self.archive = None
        with zipfile.ZipFile(path) as archive:
            self.names = sorted(n for n in archive.namelist() if n.endswith(".npz"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        raw = self.archive.read(self.names[index])
        system = np.load(io.BytesIO(raw))
        return (
            torch.from_numpy(system["positions"]),
            torch.from_numpy(system["species"]),
            torch.tensor(float(system["energy"])),
        )


class Potential(nn.Module):
    """Pairwise messages between all atoms, summed to one energy."""

    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.edge = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.node = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, positions, species):
        distance = torch.cdist(positions, positions).unsqueeze(-1)
        messages = self.edge(distance) * self.embed(species).unsqueeze(1)
        return self.node(messages.mean(2)).sum(1).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--structures", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    write_archive(folder / "train.zip", args.structures)
    loader = DataLoader(
        DiskDataset(folder / "train.zip"),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=True,
    )
    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    seen = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for positions, species, energy in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(positions, species), energy)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(energy)
            seen += len(energy)
        print(f"epoch {epoch}: mse {total / len(loader.dataset):.4f}")
    seconds = time.perf_counter() - start
    shutil.rmtree(folder)
    print(f"throughput: {seen / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
