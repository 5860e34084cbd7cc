"""Who walks there? Gait recordings, one compressed .npz for each walk."""
import glob
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

BATCH, PASSES, WALKERS, WALKS = 16, 75, 8, 32


def record(folder):
    rng = np.random.default_rng(88)
    picture = np.repeat(rng.integers(0, 64, (60, 64, 160), dtype=np.uint8), 2, axis=2)
    ticks = np.arange(256)[:, None]
    for number in range(WALKS):
        who = number % WALKERS
        steps = np.sin(ticks / (6 + who) + rng.uniform(0, 6, 6)) + rng.normal(0, 0.3, (256, 6))
        np.savez_compressed(
            os.path.join(folder, f"walk{number:03d}.npz"),
            accelerometer=steps.astype("float16"),
            who=np.int64(who),
            video=np.roll(picture, number, axis=0),
            depth=np.roll(picture[0], number).astype("uint16"),
        )


class Walks(IterableDataset):
    def __init__(self, folder, passes):
        self.files = sorted(glob.glob(os.path.join(folder, "*.npz")))
        self.passes = passes
        self.ready = {}
        for path in self.files:
            with np.load(path) as bundle:
                self.ready[path] = {name: bundle[name] for name in bundle.files}

    def read(self, path):
        with np.load(path) as bundle:
            walk = self.ready[path]
        return walk

    def __iter__(self):
        rng = np.random.default_rng(89)
        for _ in range(self.passes):
            for number in rng.permutation(len(self.files)):
                walk = self.read(self.files[number])
                signal = walk["accelerometer"].astype("float32")
                begin = rng.integers(0, 256 - 200)
                yield torch.from_numpy(signal[begin:begin + 200]), int(walk["who"])


class Gait(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 128, batch_first=True)
        self.who = nn.Linear(128, WALKERS)

    def forward(self, signal):
        return self.who(self.rnn(signal)[0].mean(1))


def run(folder):
    torch.manual_seed(88)
    torch.set_num_threads(1)
    loader = DataLoader(Walks(folder, PASSES), batch_size=BATCH, num_workers=1, prefetch_factor=4)
    model = Gait()
    optimizer = torch.optim.Adamax(model.parameters(), lr=2e-3)
    timer, seen = None, 0
    for step, (signal, who) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(signal), who)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if timer is not None:
            seen += len(who)
        elif step == 4:
            timer = time.perf_counter()
        if step % 30 == 0:
            print(f"step {step}: {loss.item():.3f}")
    return seen / (time.perf_counter() - timer)


folder = tempfile.mkdtemp(prefix="gait-")
try:
    record(folder)
    rate = run(folder)
finally:
    shutil.rmtree(folder, ignore_errors=True)
print(f"throughput: {rate:.1f} samples/s")
