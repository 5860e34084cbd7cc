"""Bottom-up pose estimation: confidence maps of joints and part affinity fields from photographs."""
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

LIMBS = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 5), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10), (1, 11), (11, 12), (12, 13)]
JOINTS, PEOPLE, STRIDE = 14, 10, 4


class HeatmapGenerator:
    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, keypoints, size):
        maps = np.zeros((len(keypoints), JOINTS + 1, size, size), np.float32)
        for n, people in enumerate(keypoints):
            for person in people:
                for j, (x, y) in enumerate(person):
                    xs, ys = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5)
                    exponent = ((xs - x) ** 2 + (ys - y) ** 2) / (2 * self.sigma**2)
                    maps[n, j] += np.where(exponent <= 4.6, np.exp(-exponent), 0)
            maps[n] = maps[n].clip(max=1)
            maps[n, JOINTS] = 1 - maps[n, :JOINTS].max(0)
        return maps


class FieldGenerator:
    def __init__(self, thickness):
        self.thickness = thickness

    def __call__(self, keypoints, size):
        fields = np.zeros((len(keypoints), 2 * len(LIMBS), size, size), np.float32)
        for n, people in enumerate(keypoints):
            for person in people:
                for k, (a, b) in enumerate(LIMBS):
                    cols, rows = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5)
                    limb = person[b] - person[a]
                    length = max(float(np.hypot(*limb)), 1e-3)
                    ux, uy = limb / length
                    dx, dy = cols - person[a, 0], rows - person[a, 1]
                    along = dx * ux + dy * uy
                    aside = np.abs(dx * uy - dy * ux)
                    on_limb = (along >= 0) & (along <= length) & (aside <= self.thickness)
                    fields[n, 2 * k][on_limb] = ux
                    fields[n, 2 * k + 1][on_limb] = uy
        return fields


class People(Dataset):
    """Photographs kept as JPEG, keypoints in pixels."""

    def __init__(self, count, side):
        rng = np.random.default_rng(4)
        self.keypoints = rng.uniform(8, side - 8, (count, PEOPLE, JOINTS, 2)).astype(np.float32)
        self.side, self.photos = side, []
        for points in self.keypoints:
            picture = rng.integers(0, 120, (side // 8, side // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
            for x, y in points.reshape(-1, 2).astype(int):
                picture[y - 2 : y + 2, x - 2 : x + 2] = 250
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "jpeg", quality=88)
            self.photos.append(file.getvalue())

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, index):
        photo = np.asarray(Image.open(io.BytesIO(self.photos[index])))
        points = self.keypoints[index].copy()
        if torch.rand(()) < 0.5:
            photo = photo[:, ::-1]
            points[..., 0] = self.side - points[..., 0]
        photo = torch.from_numpy(photo.transpose(2, 0, 1).astype(np.float32) / 255 - 0.5)
        return photo, torch.from_numpy(points / STRIDE)


class PoseNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
        )
        self.maps, self.fields = nn.Conv2d(width, JOINTS + 1, 1), nn.Conv2d(width, 2 * len(LIMBS), 1)

    def forward(self, photos):
        features = self.trunk(photos)
        return self.maps(features), self.fields(features)


def fit(epochs=3, batch_size=12, side=160):
    torch.manual_seed(4)
    torch.set_num_threads(1)
    people = People(300, side)
    heatmap_generator, field_generator = HeatmapGenerator(sigma=1.8), FieldGenerator(thickness=1.0)
    loader = DataLoader(people, batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    net = PoseNet()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    seen, started = 0, time.perf_counter()
    for epoch in range(epochs):
        for photos, points in loader:
            heatmaps = torch.from_numpy(heatmap_generator(points.numpy(), side // STRIDE))
            fields = torch.from_numpy(field_generator(points.numpy(), side // STRIDE))
            said_maps, said_fields = net(photos)
            loss = nn.functional.mse_loss(said_maps, heatmaps) + nn.functional.mse_loss(said_fields, fields)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(photos)
        print(f"epoch {epoch + 1}/{epochs} loss {loss.item():.4f}")
    return seen / (time.perf_counter() - started)


if __name__ == "__main__":
    print(f"throughput: {fit():.1f} samples/s")
