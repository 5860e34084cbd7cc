import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NUM_SHARDS = 48
PER_SHARD = 48
BATCH_SIZE = 16
NUM_WORKERS = 4


def make_shards(folder):
    rng = np.random.default_rng(1)
    for i in range(NUM_SHARDS):
        features = rng.normal(size=(PER_SHARD, 80, 60)).astype(np.float32)
        np.save(os.path.join(folder, f"train-{i:04d}.npy"), features)


class FileCache:
    """Files of the network share, copied to the local disk when they are wanted."""

    piece = 64 * 1024

    def __init__(self, source, folder):
        self.source = source
        self.folder = folder

    @contextmanager
    def lock(self, name):
        with open(os.path.join(self.folder, "cache.lock"), "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def get_file(self, name):
        local = os.path.join(self.folder, name)
        with self.lock(name):
            if not os.path.exists(local):
                self.copy(os.path.join(self.source, name), local)
        return local

    def copy(self, remote, local):
        with open(remote, "rb") as src, open(local + ".part", "wb") as dst:
            while piece := src.read(self.piece):
                time.sleep(0.015)  # the share is in another building
                dst.write(piece)
        os.rename(local + ".part", local)

    def release(self, name):
        os.remove(os.path.join(self.folder, name))


class Utterances(IterableDataset):
    def __init__(self, cache, names):
        self.cache = cache
        self.names = names

    def __iter__(self):
        info = get_worker_info()
        mine = self.names[info.id :: info.num_workers] if info else self.names
        for name in mine:
            features = np.load(self.cache.get_file(name))
            for row in features:
                row = (row - row.mean(1, keepdims=True)) / row.std(1, keepdims=True)
                yield torch.from_numpy(row), int(row.argmax() % 30)
            self.cache.release(name)


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Conv1d(80, 160, 5),
    nn.ReLU(),
    nn.Conv1d(160, 160, 5),
    nn.ReLU(),
    nn.AdaptiveMaxPool1d(1),
    nn.Flatten(),
    nn.Linear(160, 30),
)


def main(share, local):
    dataset = Utterances(FileCache(share, local), sorted(os.listdir(share)))
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=NUM_WORKERS)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    t0, frames = time.perf_counter(), 0
    for step, (features, label) in enumerate(loader):
        opt.zero_grad()
        loss = F.cross_entropy(model(features), label)
        loss.backward()
        opt.step()
        frames += len(features)
        if step % 30 == 0:
            print(f"step {step}, ce {loss.item():.3f}, elapsed {time.perf_counter() - t0:.1f}s")
    print(f"throughput: {frames / (time.perf_counter() - t0):.1f} samples/s")


if __name__ == "__main__":
    share, local = tempfile.mkdtemp(), tempfile.mkdtemp()
    try:
        make_shards(share)
        main(share, local)
    finally:
        shutil.rmtree(share)
        shutil.rmtree(local)
