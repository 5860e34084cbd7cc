"""Roof or no roof: patches of aerial photographs, turned at random."""
import os
import random
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import ColorJitter

SIDE, PATCH = 240, 96


class Turn:
    """Rotate a photograph and cut a patch from its middle."""

    def __call__(self, photo):
        turned = photo.rotate(random.uniform(0, 360), Image.Resampling.BICUBIC)
        corner = (SIDE - PATCH) // 2
        return turned.crop((corner, corner, corner + PATCH, corner + PATCH))


class Photos(Dataset):
    def __init__(self, folder, count, views):
        self.views = views
        self.paths, self.roof = [], []
        rng = np.random.default_rng(12)
        for number in range(count):
            ground = Image.fromarray(rng.integers(60, 190, (40, 40, 3), dtype=np.uint8))
            ground = ground.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            if number % 2:
                ground.paste((170, 70, 60), (85, 95, 155, 150))
            path = os.path.join(folder, f"{number:04d}.jpg")
            ground.save(path, quality=88)
            self.paths.append(path)
            self.roof.append(number % 2)
        self.turn = Turn()
        self.colour = ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.03)

    def __len__(self):
        return len(self.paths) * self.views

    def __getitem__(self, index):
        index %= len(self.paths)
        photo = Image.open(self.paths[index]).convert("RGB")
        patch = self.turn(photo)
        patch = self.colour(patch.filter(ImageFilter.MedianFilter(3))).filter(ImageFilter.UnsharpMask(2, 80))
        array = np.array(patch, dtype="float32").transpose(2, 0, 1)
        return torch.from_numpy(array / 127.5 - 1), self.roof[index]


class Trainer:
    def __init__(self, loader, lr):
        self.loader = loader
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(), nn.BatchNorm2d(16),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.BatchNorm2d(32),
            nn.Conv2d(32, 48, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 2))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        self.step = 0
        self.start = None

    def epoch(self):
        total = 0.0
        for patches, roof in self.loader:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(patches), roof)
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            self.step += 1
            if self.step == 5:
                self.start = time.perf_counter()
        return total / len(self.loader)


with tempfile.TemporaryDirectory(prefix="aerial-") as folder:
    torch.manual_seed(12)
    random.seed(12)
    torch.set_num_threads(1)
    photos = Photos(folder, count=200, views=18)
    loader = DataLoader(photos, batch_size=16, shuffle=True, num_workers=3, drop_last=True)
    trainer = Trainer(loader, lr=0.02)
    print("loss", round(trainer.epoch(), 4))
    seconds = time.perf_counter() - trainer.start
print(f"throughput: {(trainer.step - 5) * 16 / seconds:.1f} samples/s")
