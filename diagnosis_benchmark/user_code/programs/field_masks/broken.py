#!/usr/bin/env python3
# Crop-field segmentation on tiles cut from a larger scene.
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 6
TILE = 64


class Tiles(Dataset):
    def __init__(self, folder):
        self.scenes = np.load(os.path.join(folder, "scenes.npy"), mmap_mode="r")
        self.masks = np.load(os.path.join(folder, "masks.npy"), mmap_mode="r")
        self.per_scene = 24

    def __len__(self):
        return len(self.scenes) * self.per_scene

    def __getitem__(self, i):
        scene = i // self.per_scene
        top, left = np.random.default_rng(i).integers(0, self.scenes.shape[2] - TILE, 2)
        window = np.s_[top : top + TILE, left : left + TILE]
        image = torch.from_numpy(self.scenes[scene][(slice(None),) + window].astype(np.float32))
        mask = torch.from_numpy(self.masks[scene][window].astype(np.int64))
        return image / 255.0, mask


class Down(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

    def forward(self, x):
        return self.body(x)


class SmallUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.one, self.two, self.three = Down(4, width), Down(width, 2 * width), Down(2 * width, 4 * width)
        self.up_two, self.up_one = Down(6 * width, 2 * width), Down(3 * width, width)
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        a = self.one(x)
        b = self.two(F.max_pool2d(a, 2))
        c = self.three(F.max_pool2d(b, 2))
        b = self.up_two(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        return self.out(self.up_one(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))


def outline(binary):
    padded = np.pad(binary, 1, mode="edge")
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return binary & ~inner


def widen(binary, radius):
    grown = np.zeros_like(binary)
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            grown |= np.roll(np.roll(binary, dy, 0), dx, 1)
    return grown


def boundary_f1(predicted, wanted, radius=1):
    scores = []
    for p, w in zip(predicted, wanted):
        for c in range(CLASSES):
            edge_p, edge_w = outline(p == c), outline(w == c)
            hit_p = (edge_p & widen(edge_w, radius)).sum() / max(edge_p.sum(), 1)
            hit_w = (edge_w & widen(edge_p, radius)).sum() / max(edge_w.sum(), 1)
            scores.append(2 * hit_p * hit_w / max(hit_p + hit_w, 1e-9))
    return float(np.mean(scores))


class Run:
    def __init__(self, folder, batch=8, epochs=6):
        self.model = SmallUNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(Tiles(folder), batch_size=batch, shuffle=True, num_workers=1, persistent_workers=True)
        self.epochs = epochs
        self.history = []

    def go(self):
        start, tiles = None, 0
        for epoch in range(self.epochs):
            for image, mask in self.loader:
                logits = self.model(image)
                loss = F.cross_entropy(logits, mask)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                f1 = boundary_f1(logits.argmax(1).numpy(), mask.numpy())
                self.history.append((loss.item(), f1))
                if start is not None:
                    tiles += len(mask)
                elif len(self.history) == 5:
                    start = time.perf_counter()
            print(f"epoch {epoch}: loss {self.history[-1][0]:.3f}  boundary F1 {self.history[-1][1]:.3f}", flush=True)
        return tiles / (time.perf_counter() - start)


def paint(folder, rng):
    masks = np.kron(rng.integers(0, CLASSES, (12, 16, 16)), np.ones((16, 16), dtype=np.int64)).astype(np.uint8)
    tint = rng.integers(40, 210, (CLASSES, 4))
    scenes = tint[masks].transpose(0, 3, 1, 2) + rng.integers(-25, 26, (12, 4, 256, 256))
    np.save(os.path.join(folder, "scenes.npy"), scenes.clip(0, 255).astype(np.uint8))
    np.save(os.path.join(folder, "masks.npy"), masks)


with tempfile.TemporaryDirectory(prefix="fields_") as folder:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    paint(folder, np.random.default_rng(3))
    run = Run(folder)
    rate = run.go()
    del run
print(f"throughput: {rate:.1f} samples/s")
