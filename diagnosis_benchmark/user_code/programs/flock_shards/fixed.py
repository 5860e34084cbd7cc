# Bird calls: which of five species sings in this half second?
import fcntl
import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SPECIES = ["wren", "robin", "dunnock", "siskin", "serin"]
SHARDS, PER_SHARD = 30, 80
RATE = 4000
SEEK = 0.0035          # the archive sits on a shelf of slow disks

work = tempfile.mkdtemp(prefix="birds_")


def record():
    rng = np.random.default_rng(2024)
    clock = np.arange(RATE // 2) / RATE
    for shard in range(SHARDS):
        toc, body = [], bytearray()
        for _ in range(PER_SHARD):
            bird = int(rng.integers(len(SPECIES)))
            pitch = 300 + 250 * bird + rng.normal(0, 30)
            call = np.sin(2 * np.pi * pitch * clock) * rng.uniform(0.3, 1) + rng.normal(0, 0.4, len(clock))
            raw = (call * 8000).astype(np.int16).tobytes()
            toc.append([len(body), len(raw), bird])
            body += raw
        with open(f"{work}/{shard:02d}.pcm", "wb") as out:
            out.write(body)
        with open(f"{work}/{shard:02d}.json", "w") as out:
            json.dump(toc, out)
        for name in (f"{shard:02d}", "archive"):
            open(f"{work}/{name}.lock", "w").close()


@contextmanager
def held(name):
    handle = os.open(f"{work}/{name}.lock", os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class Calls(Dataset):
    def __init__(self):
        self.toc = []
        for shard in range(SHARDS):
            with open(f"{work}/{shard:02d}.json") as f:
                self.toc += [(shard, *entry) for entry in json.load(f)]
        self.window = np.hanning(256).astype(np.float32)

    def __len__(self):
        return len(self.toc)

    def fetch(self, shard, start, size):
        time.sleep(SEEK)
        with open(f"{work}/{shard:02d}.pcm", "rb") as pcm:
            pcm.seek(start)
            return pcm.read(size)

    def __getitem__(self, i):
        shard, start, size, bird = self.toc[i]
        with held(f"{shard:02d}"):
            raw = self.fetch(shard, start, size)
        wave = np.frombuffer(raw, np.int16).astype(np.float32) / 8000
        frames = np.lib.stride_tricks.sliding_window_view(wave, 256)[::64] * self.window
        return torch.from_numpy(np.log1p(np.abs(np.fft.rfft(frames)).astype(np.float32))), bird


record()
torch.set_num_threads(1)
torch.manual_seed(1)
loader = DataLoader(Calls(), batch_size=8, shuffle=True, num_workers=4)
net = torch.nn.Sequential(
    torch.nn.Unflatten(1, (1, -1)),
    torch.nn.Conv2d(1, 12, 5, stride=(1, 2)), torch.nn.ReLU(),
    torch.nn.Conv2d(12, 16, 3, stride=2), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(6), torch.nn.Flatten(),
    torch.nn.Linear(576, len(SPECIES)),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)

n = 0
right = 0
for spectra, birds in loader:
    scores = net(spectra)
    loss = torch.nn.functional.cross_entropy(scores, birds)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right += int((scores.argmax(1) == birds).sum())
    n += 1
    if n == 5:
        t0 = time.perf_counter()
t1 = time.perf_counter()
shutil.rmtree(work)
print(f"right while training: {right / (8 * n):.2f} of the calls")
print(f"throughput: {8 * (n - 5) / (t1 - t0):.1f} samples/s")
