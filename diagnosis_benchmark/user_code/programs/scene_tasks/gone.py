"""Shared trunk, two heads: scene class (main data) and surface normals' tilt (a smaller auxiliary set)."""
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NpzFolder(Dataset):
    def __init__(self, folder, key):
        self.files = sorted(Path(folder).glob("*.npz"))
        self.key = key

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as z:
            return z["image"].astype(np.float32) / 255.0, z[self.key]


class Trunk(nn.Module):
    def __init__(self, classes=10, c=24):
        super().__init__()
        self.shared = nn.Sequential(
            nn.Conv2d(3, c, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(c, 2 * c, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * c, 2 * c, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.scene = nn.Linear(2 * c, classes)
        self.tilt = nn.Linear(2 * c, 2)


class MultiTaskTrainer:
    def __init__(self, model, main_loader, aux_loader, lr=1e-3, aux_weight=0.3):
        self.model, self.main_loader, self.aux_loader = model, main_loader, aux_loader
        self.aux_weight = aux_weight
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=60, gamma=0.5)
        self.step, self.samples, self.begun = 0, 0, None
        self.ready = [batch for _ in range(4) for batch in aux_loader]

    def losses(self, main_batch, aux_batch):
        image, scene = main_batch
        view, tilt = aux_batch
        features = self.model.shared(torch.cat([image, view]))
        first = nn.functional.cross_entropy(self.model.scene(features[: len(image)]), scene)
        second = nn.functional.mse_loss(self.model.tilt(features[len(image) :]), tilt)
        return first, second

    def epoch(self):
        for main_batch in self.main_loader:
            aux_batch = self.ready[self.step % len(self.ready)]
            first, second = self.losses(main_batch, aux_batch)
            self.optimizer.zero_grad(set_to_none=True)
            (first + self.aux_weight * second).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.begun is not None:
                self.samples += len(main_batch[0]) + len(aux_batch[0])
            elif self.step == 5:
                self.begun = time.perf_counter()
        print(f"step {self.step}: scene {first.item():.3f}  tilt {second.item():.3f}", flush=True)

    def fit(self, epochs):
        for _ in range(epochs):
            self.epoch()
        return self.samples / (time.perf_counter() - self.begun)


def write(folder, count, key, label, rng):
    folder.mkdir()
    for n in range(count):
        image = rng.integers(0, 256, (3, 32, 32), dtype=np.uint8)
        np.savez(folder / f"{n:05d}.npz", image=image, **{key: label()})


root = Path(tempfile.mkdtemp(prefix="scenes_"))
rng = np.random.default_rng(44)
torch.manual_seed(44)
torch.set_num_threads(1)
write(root / "scenes", 800, "scene", lambda: rng.integers(10), rng)
write(root / "tilts", 320, "tilt", lambda: rng.standard_normal(2).astype(np.float32), rng)
trainer = MultiTaskTrainer(
    Trunk(),
    DataLoader(NpzFolder(root / "scenes", "scene"), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True),
    DataLoader(NpzFolder(root / "tilts", "tilt"), batch_size=8, shuffle=True, num_workers=1),
)
rate = trainer.fit(epochs=3)
del trainer
shutil.rmtree(root)
print(f"throughput: {rate:.1f} samples/s")
