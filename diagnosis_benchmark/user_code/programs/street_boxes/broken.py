"""Centre-point detector on synthetic street scenes with ragged COCO-style targets."""
import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ["car", "van", "bike", "person", "dog"]
EDGE, STRIDE = 96, 4


def make_scenes(folder, count, seed):
    rng = np.random.default_rng(seed)
    annotations = {}
    frames = np.lib.format.open_memmap(os.path.join(folder, "frames.npy"), "w+", np.uint8, (count, 3, EDGE, EDGE))
    for n in range(count):
        frames[n] = rng.integers(0, 60, (3, EDGE, EDGE))
        objects = []
        for _ in range(int(rng.integers(3, 9))):
            w, h = (int(v) for v in rng.integers(5, 18, 2))
            x, y = int(rng.integers(0, EDGE - w)), int(rng.integers(0, EDGE - h))
            kind = int(rng.integers(len(KINDS)))
            frames[n, :, y : y + h, x : x + w] = 60 + 35 * kind
            objects.append({"bbox": [x, y, w, h], "category_id": kind})
        annotations[n] = objects
    with open(os.path.join(folder, "instances.json"), "w") as f:
        json.dump(annotations, f)


class Streets(Dataset):
    def __init__(self, folder):
        self.frames = np.load(os.path.join(folder, "frames.npy"), mmap_mode="r")
        with open(os.path.join(folder, "instances.json")) as f:
            self.annotations = json.load(f)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        image = torch.from_numpy(self.frames[i].astype(np.float32) / 255.0)
        objects = self.annotations[str(i)]
        target = [(torch.tensor(o["bbox"]), torch.tensor(o["category_id"])) for o in objects]
        return image, target


def collate(samples):
    images, targets = zip(*samples)
    return torch.stack(images), targets


class CentreNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU(),
        )
        self.heat = nn.Conv2d(2 * width, len(KINDS), 1)
        self.size = nn.Conv2d(2 * width, 2, 1)

    def forward(self, x):
        x = self.body(x)
        return self.heat(x), self.size(x)


def detection_loss(heat, size, targets):
    boxes = torch.stack([bbox for t in targets for bbox, _ in t]).float()
    kinds = torch.stack([kind for t in targets for _, kind in t])
    image = torch.repeat_interleave(torch.arange(len(targets)), torch.tensor([len(t) for t in targets]))
    cx = ((boxes[:, 0] + boxes[:, 2] / 2) / STRIDE).long()
    cy = ((boxes[:, 1] + boxes[:, 3] / 2) / STRIDE).long()
    wanted = torch.zeros_like(heat)
    wanted[image, kinds, cy, cx] = 1.0
    heat_loss = nn.functional.binary_cross_entropy_with_logits(heat, wanted, pos_weight=torch.tensor(20.0))
    return heat_loss + 0.1 * nn.functional.l1_loss(size[image, :, cy, cx], boxes[:, 2:] / STRIDE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=480)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    opts = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="streets_") as folder:
        make_scenes(folder, opts.scenes, 31)
        loader = DataLoader(Streets(folder), batch_size=opts.batch, shuffle=True, collate_fn=collate,
                            num_workers=opts.workers, persistent_workers=True)
        net = CentreNet()
        optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
        step = scenes = 0
        for epoch in range(opts.epochs):
            for images, targets in loader:
                loss = detection_loss(*net(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step == 5:
                    mark = time.perf_counter()
                elif step > 5:
                    scenes += len(images)
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        rate = scenes / (time.perf_counter() - mark)
        del loader
    print(f"throughput: {rate:.1f} samples/s")


main()
