"""Energies of small periodic cells; batches are filled up to a number of atoms, not of structures."""
import pickle
import tempfile
import time

import lmdb
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

CUTOFF = 3.2
SHIFTS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)


def write_structures(folder, count):
    rng = np.random.default_rng(2)
    sizes = rng.integers(12, 64, count).tolist()
    with lmdb.open(folder + "/structures.lmdb", map_size=1 << 28, subdir=False) as env, env.begin(write=True) as txn:
        for number, atoms in enumerate(sizes):
            edge = (atoms * 14.0) ** (1 / 3)
            record = {"natoms": atoms, "cell": np.eye(3) * edge, "positions": rng.random((atoms, 3)) * edge,
                      "numbers": rng.integers(1, 30, atoms), "energy": float(rng.normal(-3.0 * atoms, 1.0))}
            txn.put(str(number).encode(), pickle.dumps(record, protocol=5))
    np.savez(folder + "/metadata.npz", natoms=sizes)


class LmdbStructures(Dataset):
    def __init__(self, folder):
        self.path = folder + "/structures.lmdb"
        self.metadata = dict(np.load(folder + "/metadata.npz"))
        self.env = None

    def __len__(self):
        return len(self.metadata["natoms"])

    def __getitem__(self, index):
        if self.env is None:
            self.env = lmdb.open(self.path, subdir=False, readonly=True, lock=False, readahead=False)
        record = pickle.loads(self.env.begin().get(str(index).encode()))
        record["edges"], record["lengths"] = self.neighbours(record["positions"], record["cell"])
        return record

    def neighbours(self, positions, cell):
        images = positions + (SHIFTS @ cell)[:, None]
        distance = np.linalg.norm(images[:, None] - positions[None, :, None], axis=-1)
        bonded = (distance < CUTOFF) & (distance > 1e-6)
        return np.stack(np.nonzero(bonded)[1:]), distance[bonded]


class AtomBudgetSampler(Sampler):
    def __init__(self, dataset, max_atoms):
        self.dataset, self.max_atoms = dataset, max_atoms

    def __iter__(self):
        batch, atoms = [], 0
        for index in np.random.permutation(len(self.dataset)).tolist():
            size = self.dataset.metadata["natoms"][index]
            if batch and atoms + size > self.max_atoms:
                yield batch
                batch, atoms = [], 0
            batch, atoms = batch + [index], atoms + size
        yield batch


def collate(records):
    starts = np.cumsum([0] + [r["natoms"] for r in records[:-1]])
    return {
        "numbers": torch.from_numpy(np.concatenate([r["numbers"] for r in records])),
        "edges": torch.from_numpy(np.concatenate([r["edges"] + s for r, s in zip(records, starts)], axis=1)),
        "lengths": torch.from_numpy(np.concatenate([r["lengths"] for r in records]).astype(np.float32)),
        "graph": torch.repeat_interleave(torch.arange(len(records)), torch.tensor([r["natoms"] for r in records])),
        "energy": torch.tensor([r["energy"] / r["natoms"] for r in records]),
        "natoms": torch.tensor([r["natoms"] for r in records], dtype=torch.float32),
    }


class Potential(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embed, self.readout = nn.Embedding(32, width), nn.Linear(width, 1)
        self.centres = nn.Parameter(torch.linspace(0.5, CUTOFF, 16), requires_grad=False)
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(layers))
        self.updates = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, batch):
        h, (centre, other) = self.embed(batch["numbers"]), batch["edges"]
        radial = torch.exp(-8.0 * (batch["lengths"][:, None] - self.centres) ** 2)
        for filt, update in zip(self.filters, self.updates):
            h = h + torch.relu(update(torch.zeros_like(h).index_add(0, centre, h[other] * filt(radial))))
        return torch.zeros(len(batch["energy"])).index_add(0, batch["graph"], self.readout(h).squeeze(1)) / batch["natoms"]


def main():
    torch.manual_seed(2)
    np.random.seed(2)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="cells") as folder:
        write_structures(folder, 1400)
        data = LmdbStructures(folder)
        loader = DataLoader(data, batch_sampler=AtomBudgetSampler(data, max_atoms=900), collate_fn=collate,
                            num_workers=2, persistent_workers=True)
        model = Potential()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        begin, seen = time.perf_counter(), 0
        for epoch in range(3):
            for batch in loader:
                loss = nn.functional.huber_loss(model(batch), batch["energy"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(batch["energy"])
            print(f"epoch {epoch} huber {loss.item():.4f} structures {seen}")
        elapsed = time.perf_counter() - begin
    print(f"throughput: {seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
