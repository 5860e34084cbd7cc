# %% Segmentation of small lesions, trained on augmented patches of a few volumes
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH, VOLUMES = 112, 36, 6
PATCHES_PER_VOLUME, BATCH, EPOCHS = 90, 4, 2
torch.manual_seed(0)
torch.set_num_threads(1)


# %% data
def make_volume(seed):
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((SIDE, SIDE, SIDE), dtype=np.float32)
    label = np.zeros((SIDE, SIDE, SIDE), np.uint8)
    for _ in range(2):
        z, y, x = rng.integers(PATCH // 2, SIDE - PATCH // 2, 3)
        label[z - 3 : z + 3, y - 3 : y + 3, x - 3 : x + 3] = 1
    return torch.from_numpy(image + np.float32(1.5) * label), torch.from_numpy(label)


class PatchDataset(Dataset):
    def __init__(self, volumes, per_volume):
        self.volumes = volumes
        self.per_volume = per_volume
        self.lesions = [label.nonzero().numpy() for _, label in volumes]

    def __len__(self):
        return len(self.volumes) * self.per_volume

    def random_corner(self, rng, lesion):
        centre = lesion[rng.integers(len(lesion))] - rng.integers(PATCH // 3, PATCH - PATCH // 3, 3)
        return centre.clip(0, SIDE - PATCH)

    def extract(self, rng, image, label, corner):
        z, y, x = corner
        cut = (slice(z, z + PATCH), slice(y, y + PATCH), slice(x, x + PATCH))
        angle, zoom = rng.uniform(-0.3, 0.3), rng.uniform(0.9, 1.1)
        cos, sin = zoom * np.cos(angle), zoom * np.sin(angle)
        matrix = torch.tensor([[[cos, -sin, 0, 0], [sin, cos, 0, 0], [0, 0, zoom, 0]]], dtype=torch.float32)
        grid = F.affine_grid(matrix, (1, 1, PATCH, PATCH, PATCH), align_corners=False)
        patch = F.grid_sample(image[cut][None, None], grid, align_corners=False)[0]
        target = F.grid_sample(label[cut][None, None].float(), grid, mode="nearest", align_corners=False)[0]
        patch = patch * rng.uniform(0.8, 1.2) + rng.normal(0, 0.1)
        return (patch - patch.mean()) / patch.std(), target

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        image, label = self.volumes[i % len(self.volumes)]
        corner = self.random_corner(rng, self.lesions[i % len(self.volumes)])
        return self.extract(rng, image, label, corner)


# %% model
def block(inside, outside):
    return nn.Sequential(nn.Conv3d(inside, outside, 3, padding=1), nn.InstanceNorm3d(outside), nn.LeakyReLU(0.1))


class SmallUNet(nn.Module):
    def __init__(self, width=9):
        super().__init__()
        self.down = nn.Sequential(nn.MaxPool3d(2), block(1, width), nn.MaxPool3d(2), block(width, 2 * width))
        self.up = nn.Sequential(block(2 * width, width), nn.Upsample(scale_factor=2), nn.Conv3d(width, 1, 1))

    def forward(self, x):
        return F.interpolate(self.up(self.down(x)), x.shape[2:], mode="trilinear")


# %% training
dataset = PatchDataset([make_volume(seed) for seed in range(VOLUMES)], PATCHES_PER_VOLUME)
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
model = SmallUNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
seen, began = 0, time.perf_counter()
for epoch in range(EPOCHS):
    for step, (patches, targets) in enumerate(loader):
        logits = model(patches)
        loss = F.binary_cross_entropy_with_logits(logits, targets, pos_weight=torch.tensor(20.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(patches)
        if step % 20 == 0:
            print(f"{epoch}/{step}: {loss.item():.4f}")
print(f"throughput: {seen / (time.perf_counter() - began):.1f} samples/s")
