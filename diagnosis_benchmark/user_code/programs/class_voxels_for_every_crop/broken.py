"""Patch-wise organ segmentation: crops centred on a voxel of a randomly drawn class."""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    cases: int = 4
    shape: tuple = (128, 192, 192)
    classes: int = 4
    patch: int = 24
    crops_per_case: int = 120
    batch_size: int = 6


def simulate_scans(folder, s):
    rng = np.random.default_rng(11)
    z, y, x = np.ogrid[: s.shape[0], : s.shape[1], : s.shape[2]]
    noise = rng.normal(0, 60, s.shape).astype(np.int16)
    for case in range(s.cases):
        organs = np.zeros(s.shape, np.uint8)
        for organ in range(1, s.classes):
            c = [rng.integers(d // 4, 3 * d // 4) for d in s.shape]
            r = 14 + 9 * organ
            organs[(z - c[0]) ** 2 + (y - c[1]) ** 2 + (x - c[2]) ** 2 < r * r] = organ
        np.save(f"{folder}/{case:02d}_image.npy", np.roll(noise, 5 * case, 1) + organs.astype(np.int16) * 90)
        np.save(f"{folder}/{case:02d}_label.npy", organs)


class RandCropByClass:
    def __init__(self, patch, classes):
        self.patch, self.classes = patch, classes

    def class_indices(self, label):
        flat = np.asarray(label).reshape(-1)
        return [np.flatnonzero(flat == c) for c in range(self.classes)]

    def __call__(self, image, label, rng):
        indices = self.class_indices(label)
        wanted = int(rng.integers(self.classes))
        voxel = np.unravel_index(rng.choice(indices[wanted]), label.shape)
        low = np.clip(np.array(voxel) - self.patch // 2, 0, np.array(label.shape) - self.patch)
        window = tuple(slice(k, k + self.patch) for k in low)
        return np.array(image[window]), np.array(label[window])


class Scans(Dataset):
    def __init__(self, folder, s):
        self.paths = [str(path) for path in sorted(Path(folder).glob("*_image.npy"))]
        self.crop = RandCropByClass(s.patch, s.classes)
        self.crops_per_case = s.crops_per_case

    def __len__(self):
        return len(self.paths) * self.crops_per_case

    def __getitem__(self, i):
        path = self.paths[i % len(self.paths)]
        image = np.load(path, mmap_mode="r")
        label = np.load(path.replace("_image", "_label"), mmap_mode="r")
        image, label = self.crop(image, label, np.random.default_rng(i))
        image = np.clip(image.astype(np.float32) / 200, -2, 2)
        return torch.from_numpy(image)[None], torch.from_numpy(label.astype(np.int64))


def unit(a, b, stride=1):
    return nn.Sequential(nn.Conv3d(a, b, 3, stride, 1), nn.InstanceNorm3d(b), nn.LeakyReLU())

class SegNet(nn.Module):
    def __init__(self, classes, width=6):
        super().__init__()
        self.a, self.b, self.c = unit(1, width), unit(width, 2 * width, 2), unit(2 * width, 4 * width, 2)
        self.up1 = nn.ConvTranspose3d(4 * width, 2 * width, 2, 2)
        self.up2, self.head = nn.ConvTranspose3d(2 * width, width, 2, 2), nn.Conv3d(width, classes, 1)

    def forward(self, x):
        b = self.b(a := self.a(x))
        return self.head(a + self.up2(b + self.up1(self.c(b))))


def dice_ce(logits, label):
    p = logits.softmax(1)
    y = nn.functional.one_hot(label, p.shape[1]).movedim(-1, 1)
    return nn.functional.cross_entropy(logits, label) - 2 * (p * y).sum() / (p + y).sum()


def train(folder, s):
    start = time.perf_counter()
    loader = DataLoader(Scans(folder, s), s.batch_size, shuffle=True, num_workers=2)
    net = SegNet(s.classes)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    patches = 0
    for step, (image, label) in enumerate(loader):
        loss = dice_ce(net(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        patches += len(image)
        if step % 30 == 29:
            print(f"{step + 1}/{len(loader)}: {loss.item():.4f}")
    return patches / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = Settings()
    with tempfile.TemporaryDirectory() as folder:
        simulate_scans(folder, settings)
        print(f"throughput: {train(folder, settings):.1f} samples/s")
