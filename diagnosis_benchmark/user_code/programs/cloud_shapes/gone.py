"""Classify scanned shapes from points with estimated normals."""
import argparse
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def scan(kind, points, rng):
    xyz = rng.normal(size=(points, 3))
    if kind == 0:
        xyz /= np.linalg.norm(xyz, axis=1, keepdims=True)
    elif kind == 1:
        xyz /= np.abs(xyz).max(1, keepdims=True)
    elif kind == 2:
        xyz[:, :2] /= np.linalg.norm(xyz[:, :2], axis=1, keepdims=True)
        xyz[:, 2] = rng.uniform(-1, 1, points)
    else:
        xyz[:, 2] = 0.3 * np.sin(3 * xyz[:, 0])
    return (xyz * rng.uniform(0.7, 1.3, 3) + rng.normal(0, 0.02, (points, 3))).astype("float32")


class Shapes(Dataset):
    def __init__(self, count, points, keep, seed):
        rng = np.random.default_rng(seed)
        self.kinds = rng.integers(0, 4, count)
        self.clouds = [scan(kind, points, rng) for kind in self.kinds]
        self.keep = keep
        self.ready = [self.gaps(cloud) for cloud in self.clouds]

    def gaps(self, cloud):
        gap = ((cloud - cloud[0]) ** 2).sum(-1)
        found = []
        for _ in range(self.keep):
            found.append(gap)
            gap = np.minimum(gap, ((cloud - cloud[gap.argmax()]) ** 2).sum(-1))
        return found

    def __len__(self):
        return len(self.clouds)

    def spread(self, number):
        cloud = self.clouds[number]
        chosen = [0]
        while len(chosen) < self.keep:
            gap = self.ready[number][len(chosen) - 1]
            chosen.append(int(gap.argmax()))
        return chosen

    def normals(self, cloud, near=24):
        squared = (cloud ** 2).sum(1)
        apart = squared[:, None] + squared - 2 * cloud @ cloud.T
        around = cloud[np.argpartition(apart, near, axis=1)[:, :near]]
        around = around - around.mean(1, keepdims=True)
        spread = around.transpose(0, 2, 1) @ around
        return np.linalg.eigh(spread)[1][:, :, 0]

    def __getitem__(self, number):
        cloud = self.clouds[number]
        normals = self.normals(cloud)
        chosen = self.spread(number)
        features = np.concatenate([cloud[chosen], normals[chosen]], axis=1)
        angle = np.random.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        features[:, 0:2] = features[:, 0:2] @ turn
        features[:, 3:5] = features[:, 3:5] @ turn
        return torch.from_numpy(features.astype("float32")), int(self.kinds[number])


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.local = nn.Sequential(nn.Linear(6, 256), nn.ReLU(), nn.Linear(256, 768), nn.ReLU(),
                                   nn.Linear(768, 1024))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, points):
        return self.head(self.local(points).amax(1))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--shapes", type=int, default=640)
    options.add_argument("--points", type=int, default=400)
    options.add_argument("--keep", type=int, default=22)
    options.add_argument("--batch-size", type=int, default=8)
    options.add_argument("--epochs", type=int, default=3)
    options = options.parse_args()

    torch.manual_seed(9)
    np.random.seed(9)
    torch.set_num_threads(1)
    data = Shapes(options.shapes, options.points, options.keep, 9)
    loader = DataLoader(data, batch_size=options.batch_size, shuffle=True, num_workers=0)
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    steps, begin = 0, None
    for epoch in range(options.epochs):
        right = 0
        for points, kind in loader:
            scores = model(points)
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, kind).backward()
            optimizer.step()
            right += int((scores.argmax(1) == kind).sum())
            steps += 1
            if steps == 5:
                begin = time.perf_counter()
        print(f"epoch {epoch}: {right / len(data):.2%} right")
    print(f"throughput: {(steps - 5) * options.batch_size / (time.perf_counter() - begin):.1f} samples/s")


main()
