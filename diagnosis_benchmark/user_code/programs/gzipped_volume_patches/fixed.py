# Patch-based CT segmentation: 3-D U-Net-like net, random crops from compressed volumes.
import argparse
import gzip
import shutil
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEADER = struct.Struct("<4sHHH")


def write_volume(path, voxels):
    with gzip.open(path, "wb", compresslevel=1) as f:
        f.write(HEADER.pack(b"vol1", *voxels.shape))
        f.write(voxels.tobytes())


def read_volume(path):
    with gzip.open(path, "rb") as f:
        raw = f.read()
    _, d, h, w = HEADER.unpack_from(raw)
    return np.frombuffer(raw, np.int16, offset=HEADER.size).reshape(d, h, w)


def unpack(path):
    target = path.with_suffix(".npy")
    np.save(target, read_volume(path))
    return np.load(target, mmap_mode="r")


def synthesize(folder, cases, shape):
    rng = np.random.default_rng(3)
    zz, yy, xx = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in shape), indexing="ij")
    noise = rng.integers(-16, 16, shape, dtype=np.int16)
    for case in range(cases):
        c = rng.uniform(-0.4, 0.4, 3)
        organ = ((zz - c[0]) ** 2 + (yy - c[1]) ** 2 + (xx - c[2]) ** 2) < 0.2
        write_volume(folder / f"case_{case:02d}.vol.gz", noise + organ.astype(np.int16) * 60 - 20)


class PatchDataset(Dataset):
    def __init__(self, folder, patch, patches_per_case):
        self.volumes = [unpack(path) for path in sorted(Path(folder).glob("*.vol.gz"))]
        self.patch = patch
        self.patches_per_case = patches_per_case

    def __len__(self):
        return len(self.volumes) * self.patches_per_case

    def __getitem__(self, index):
        volume = self.volumes[index % len(self.volumes)]
        rng = np.random.default_rng(index)
        lo = [int(rng.integers(0, n - self.patch)) for n in volume.shape]
        crop = volume[tuple(slice(a, a + self.patch) for a in lo)].astype(np.float32)
        return torch.from_numpy(crop / 64.0)[None], torch.from_numpy((crop > 10).astype(np.float32))[None]


class SmallUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, width, 3, padding=1), nn.ReLU())
        self.mid = nn.Sequential(nn.MaxPool3d(2), nn.Conv3d(width, 2 * width, 3, padding=1), nn.ReLU(),
                                 nn.Upsample(scale_factor=2))
        self.head = nn.Conv3d(3 * width, 1, 1)

    def forward(self, x):
        a = self.down(x)
        return self.head(torch.cat([a, self.mid(a)], 1))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = SmallUNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.samples = 0

    def fit(self, loader):
        for epoch in range(self.args.epochs):
            running = 0.0
            for x, y in loader:
                running += self.training_step(x, y)
            print(f"epoch {epoch}: loss {running / len(loader):.4f}", flush=True)

    def training_step(self, x, y):
        loss = self.loss_fn(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.samples += x.shape[0]
        return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="ct_"))
    try:
        synthesize(folder, 5, (72, 160, 160))
        trainer = Trainer(args)
        began = time.perf_counter()
        dataset = PatchDataset(folder, patch=24, patches_per_case=24)
        loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=2,
                            persistent_workers=True)
        trainer.fit(loader)
        print(f"throughput: {trainer.samples / (time.perf_counter() - began):.1f} samples/s")
    finally:
        shutil.rmtree(folder)
