"""Predict open chromatin from 256 bases around the intervals of a BED file."""

import csv
import random
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_INTERVALS = 24_000
WIDTH = 256
EPOCH_SAMPLES = 768
EPOCHS = 3

random.seed(0)
torch.manual_seed(0)
folder = Path(tempfile.mkdtemp(prefix="chromatin-"))
bed_path = folder / "peaks.bed"

rng = np.random.default_rng(0)
genome = {f"chr{n}": rng.integers(0, 4, 400_000, dtype=np.uint8) for n in range(1, 6)}
with open(bed_path, "w", newline="") as out:
    writer = csv.writer(out, delimiter="\t")
    for n in range(N_INTERVALS):
        chrom = f"chr{1 + n % 5}"
        start = random.randrange(0, 400_000 - WIDTH)
        writer.writerow([chrom, start, start + WIDTH, f"peak_{n}", random.randint(0, 1000), "+-"[n % 2], n % 3 == 0])


class PeakDataset(Dataset):
    def __init__(self, bed, genome, chosen):
        self.bed = bed
        self.genome = genome
        self.chosen = chosen
        self.eye = np.eye(4, dtype=np.float32)

    def __len__(self):
        return len(self.chosen)

    def interval(self, wanted):
        with open(self.bed, newline="") as handle:
            for number, row in enumerate(csv.reader(handle, delimiter="\t")):
                if number == wanted:
                    return row
        raise IndexError(wanted)

    def __getitem__(self, i):
        chrom, start, end, _, score, strand, open_here = self.interval(self.chosen[i])
        bases = self.genome[chrom][int(start) : int(end)]
        if strand == "-":
            bases = 3 - bases[::-1]
        onehot = self.eye[bases].T
        return torch.from_numpy(np.ascontiguousarray(onehot)), torch.tensor([open_here == "True", int(score) > 500]).float()


chosen = random.sample(range(N_INTERVALS), EPOCH_SAMPLES)
loader = DataLoader(
    PeakDataset(bed_path, genome, chosen), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
)

torch.set_num_threads(1)
model = nn.Sequential(
    nn.Conv1d(4, 96, 15, padding=7),
    nn.ReLU(),
    nn.MaxPool1d(2),
    nn.Conv1d(96, 128, 7, padding=3),
    nn.ReLU(),
    nn.MaxPool1d(4),
    nn.Flatten(),
    nn.Linear(128 * 32, 64),
    nn.ReLU(),
    nn.Linear(64, 2),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss()

seen = 0
began = time.perf_counter()
for epoch in range(EPOCHS):
    total = 0.0
    for onehot, label in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(onehot), label)
        loss.backward()
        optimizer.step()
        total += loss.item()
        seen += len(onehot)
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")
elapsed = time.perf_counter() - began

shutil.rmtree(folder)
print(f"throughput: {seen / elapsed:.1f} samples/s")
