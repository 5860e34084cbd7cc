"""Segment land cover in small aerial tiles and follow the mean IoU of the training batches."""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("water", "forest", "field", "road", "roof", "bare")


class Tiles(Dataset):
    """Blobs of land cover with colours of their own and some noise."""

    def __init__(self, count, side=48, seed=11):
        rng = np.random.default_rng(seed)
        coarse = rng.integers(0, len(CLASSES), (count, side // 8, side // 8))
        self.masks = coarse.repeat(8, axis=1).repeat(8, axis=2)
        self.palette = rng.random((len(CLASSES), 3)).astype(np.float32)

    def __len__(self):
        return len(self.masks)

    def __getitem__(self, index):
        mask = self.masks[index]
        noise = np.random.default_rng(index).normal(0, 0.2, (*mask.shape, 3)).astype(np.float32)
        return torch.from_numpy(self.palette[mask] + noise).permute(2, 0, 1), torch.from_numpy(mask)


class ConfusionMeter:
    def __init__(self, classes):
        self.classes = classes
        self.reset()

    def reset(self):
        self.counts = torch.zeros(self.classes, self.classes, dtype=torch.long)

    def add(self, predicted, target):
        for p, t in zip(predicted.flatten(), target.flatten()):
            self.counts[t, p] += 1

    def mean_iou(self):
        hit = self.counts.diag().float()
        union = self.counts.sum(0) + self.counts.sum(1) - hit
        return (hit / union.clamp(min=1)).mean().item()


def block(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())


class SmallUNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down1 = block(3, 24)
        self.down2 = block(24, 48)
        self.bottom = block(48, 48)
        self.up = block(48 + 24, 24)
        self.head = nn.Conv2d(24, classes, 1)

    def forward(self, x):
        skip = self.down1(x)
        x = self.bottom(self.down2(nn.functional.max_pool2d(skip, 2)))
        x = nn.functional.interpolate(x, scale_factor=2)
        return self.head(self.up(torch.cat([x, skip], dim=1)))


class Trainer:
    def __init__(self, model, loader, epochs):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.meter = ConfusionMeter(len(CLASSES))
        self.seen = 0

    def step(self, tiles, masks):
        logits = self.model(tiles)
        loss = self.criterion(logits, masks)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return logits.detach().argmax(1), loss.item()

    def fit(self):
        for epoch in range(self.epochs):
            self.meter.reset()
            for tiles, masks in self.loader:
                predicted, loss = self.step(tiles, masks)
                self.meter.add(predicted, masks)
                self.seen += len(tiles)
            print(f"epoch {epoch}: loss {loss:.3f} mIoU {self.meter.mean_iou():.3f}")


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    loader = DataLoader(Tiles(140), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)
    trainer = Trainer(SmallUNet(len(CLASSES)), loader, epochs=2)
    start = time.perf_counter()
    trainer.fit()
    print(f"throughput: {trainer.seen / (time.perf_counter() - start):.1f} samples/s")
