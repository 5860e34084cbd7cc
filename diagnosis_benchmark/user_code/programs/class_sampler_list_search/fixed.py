import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

cfg = dict(images=80_000, classes=2_000, dim=256, classes_per_batch=12, images_per_class=8, steps=100, lr=1e-3)


class Embeddings(Dataset):
    """Backbone features of product photos, precomputed once; a projection head is learnt on top of them."""

    def __init__(self):
        rng = np.random.default_rng(11)
        self.ys = rng.permutation(np.arange(cfg["images"]) % cfg["classes"]).tolist()
        centres = rng.standard_normal((cfg["classes"], cfg["dim"]), dtype=np.float32)
        self.xs = centres[self.ys] + 0.5 * rng.standard_normal((cfg["images"], cfg["dim"]), dtype=np.float32)

    def __len__(self):
        return len(self.ys)

    def __getitem__(self, i):
        return self.xs[i] + np.random.normal(0, 0.1, cfg["dim"]).astype(np.float32), self.ys[i]


class BalancedBatches(Sampler):
    """P classes with K images each in every batch, as proxy and triplet losses need them."""

    def __init__(self, labels, steps):
        self.labels = np.array(labels)
        self.classes = sorted(set(labels))
        self.steps = steps
        self.random = random.Random(5)

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            batch = []
            for cls in self.random.sample(self.classes, cfg["classes_per_batch"]):
                members = np.nonzero(self.labels == cls)[0]
                batch.extend(self.random.sample(members.tolist(), cfg["images_per_class"]))
            yield batch


class ProxyAnchor(nn.Module):
    def __init__(self, classes, dim, margin=0.1, alpha=16.0):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(classes, dim))
        self.margin, self.alpha = margin, alpha

    def forward(self, z, y):
        cos = F.normalize(z) @ F.normalize(self.proxies).T
        own = F.one_hot(y, cos.shape[1]).bool()
        pos = torch.where(own, torch.exp(-self.alpha * (cos - self.margin)), 0.0).sum(0)
        neg = torch.where(own, 0.0, torch.exp(self.alpha * (cos + self.margin))).sum(0)
        return torch.log1p(pos)[own.any(0)].mean() + torch.log1p(neg).mean()


torch.manual_seed(0)
torch.set_num_threads(1)
dataset = Embeddings()
loader = DataLoader(dataset, batch_sampler=BalancedBatches(dataset.ys, cfg["steps"]), num_workers=1)

head = nn.Sequential(nn.Linear(cfg["dim"], 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))
criterion = ProxyAnchor(cfg["classes"], 128)
optimizer = torch.optim.AdamW([*head.parameters(), *criterion.parameters()], lr=cfg["lr"])

n, t0 = 0, time.perf_counter()
for step, (x, y) in enumerate(loader):
    loss = criterion(head(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    n += y.numel()
    if step % 20 == 0:
        print(f"[{step:4d}] loss={loss.item():.3f}  {n / (time.perf_counter() - t0):.0f} img/s")

print(f"throughput: {n / (time.perf_counter() - t0):.1f} samples/s")
