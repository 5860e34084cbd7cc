# %% Dirt on camera lenses: regress how much of the glass is covered
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(42)
HEIGHT, WIDTH, SHOTS, BATCH, EPOCHS = 288, 384, 720, 12, 5
here = Path(tempfile.mkdtemp(prefix="lens_"))

# %% A few hundred shots on disk, as the camera writes them: raw bytes, three planes
rng = np.random.default_rng(6)
street = rng.integers(0, 220, (8, 3, HEIGHT, WIDTH), dtype=np.uint8)
covered = rng.uniform(0, 0.8, SHOTS).astype(np.float32)
rolls = np.memmap(here / "shots.raw", np.uint8, "w+", shape=(SHOTS // 6, 3, HEIGHT, WIDTH))
for n in range(len(rolls)):
    rolls[n] = street[n % 8]
    rolls[n, :, : int(covered[n] * HEIGHT)] //= 3
rolls.flush()


# %% Dataset and collate
class Shots(Dataset):
    def __init__(self, path):
        self.raw = np.memmap(path, np.uint8, "r", shape=rolls.shape)

    def __len__(self):
        return SHOTS

    def __getitem__(self, n):
        shot = self.raw[n % len(self.raw)]
        if n % 2:
            shot = shot[:, :, ::-1]
        return shot, covered[n % len(self.raw)]


def to_batch(samples):
    shots = np.stack([shot for shot, _ in samples])
    target = torch.tensor([float(share) for _, share in samples])
    return torch.from_numpy(shots), target


# %% A small net that looks at every eighth pixel and at row means
class Cover(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(3, 24, 4, stride=4), nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
            nn.Conv2d(48, 48, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
        )
        self.say = nn.Linear(48 * 9, 1)

    def forward(self, shots):
        shots = shots[:, :, ::3, ::3].float() / 255
        return self.say(self.eyes(shots).flatten(1)).squeeze(1).sigmoid()


net = Cover()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
loader = DataLoader(Shots(here / "shots.raw"), BATCH, shuffle=True, num_workers=1,
                    collate_fn=to_batch, persistent_workers=True)

# %% Train
count = 0
for epoch in range(EPOCHS):
    for shots, target in loader:
        loss = nn.functional.mse_loss(net(shots), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        count += 1
        if count == 5:
            tic = time.perf_counter()
    print(f"epoch {epoch}  mse {loss.item():.4f}")
toc = time.perf_counter()

# %% Done
shutil.rmtree(here)
print(f"throughput: {(count - 5) * BATCH / (toc - tic):.1f} samples/s")
