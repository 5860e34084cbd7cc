"""Little grey images of ten kinds of pattern, as PNG files in memory; each read takes its time, as from a store."""

import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

KINDS, SIDE = 10, 28


class LittleImages(Dataset):
    def __init__(self, images, seed=0, read_ms=1.5):
        draw = np.random.default_rng(seed)
        patterns = np.random.default_rng(7).integers(0, 256, (KINDS, 7, 7), dtype=np.uint8)
        self.labels = draw.integers(0, KINDS, images)
        self.read_ms = read_ms
        self.files = []
        for label in self.labels:
            image = np.array(Image.fromarray(patterns[label]).resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.int16)
            file = io.BytesIO()
            noisy = np.clip(image + draw.normal(0, 40, image.shape), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(file, "PNG")
            self.files.append(file.getvalue())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        time.sleep(self.read_ms / 1000)
        image = Image.open(io.BytesIO(self.files[index]))
        if torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(image)).float()[None] / 255, int(self.labels[index])


def net():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(8 * 49, KINDS)
    )  # fmt: skip
