"""Land-cover classification of multispectral patches; flips, rotation and zoom are drawn in the collate function."""
from dataclasses import dataclass
import math
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Options:
    bands: int = 12
    patch: int = 64
    scene: int = 768
    samples: int = 4800
    batch: int = 32
    classes: int = 6
    workers: int = 1
    seed: int = 21


class ScenePatches(Dataset):
    def __init__(self, options):
        rng = np.random.default_rng(options.seed)
        coarse = rng.normal(0, 1, (options.bands, options.scene // 32 + 1, options.scene // 32 + 1)).astype(np.float32)
        ground = F.interpolate(torch.from_numpy(coarse)[None], (options.scene, options.scene), mode="bilinear")[0]
        self.reflectance = (ground.numpy() * 800 + 3000).astype(np.uint16)
        self.corners = rng.integers(0, options.scene - options.patch, (options.samples, 2))
        self.patch, self.classes = options.patch, options.classes

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        y, x = self.corners[index]
        window = self.reflectance[:, y:y + self.patch, x:x + self.patch].astype(np.float32)
        brightest = window.mean(axis=(1, 2))[:self.classes].argmax()
        return torch.from_numpy(window / 10000.0), int(brightest)


class AugmentingCollate:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def draw(self):
        turn, zoom = self.random.uniform(-math.pi, math.pi), self.random.uniform(0.8, 1.2)
        flip = self.random.choice([-1.0, 1.0])
        cos, sin = math.cos(turn) * zoom, math.sin(turn) * zoom
        return [[cos * flip, -sin, 0.0], [sin * flip, cos, 0.0]]

    def __call__(self, samples):
        images = torch.stack([image for image, _ in samples])
        labels = torch.tensor([label for _, label in samples])
        thetas = torch.tensor([self.draw() for _ in samples], dtype=torch.float32)
        for image, theta in zip(images, thetas):
            for band in range(len(image)):
                image[band] = self.warp(image[None, band:band + 1], theta[None])[0, 0]
        return images, labels

    def warp(self, images, thetas):
        grid = F.affine_grid(thetas, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


class BandNet(nn.Module):
    def __init__(self, bands, classes, width=16):
        super().__init__()
        self.stem = nn.Conv2d(bands, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.head(x.mean((2, 3)))


def epoch_of_training(model, loader, optimizer):
    seen = 0
    for step, (images, labels) in enumerate(loader, 1):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(labels)
        if step % 30 == 0:
            print(f"{seen:5d} patches, loss {loss.item():.4f}", flush=True)
    return seen


def main(options):
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    dataset = ScenePatches(options)
    loader = DataLoader(dataset, batch_size=options.batch, shuffle=True, num_workers=options.workers,
                        collate_fn=AugmentingCollate(options.seed + 1), prefetch_factor=4, persistent_workers=True)
    model = BandNet(options.bands, options.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    start = time.perf_counter()
    seen = epoch_of_training(model, loader, optimizer)
    print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main(Options())
