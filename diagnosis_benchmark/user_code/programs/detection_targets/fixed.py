import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 32
EPOCHS = 2
RESOLUTION = 48


class SyntheticScenes(Dataset):
    """Coloured rectangles on noise; targets as the COCO conversion gives them."""

    def __init__(self, length):
        g = torch.Generator().manual_seed(42)
        self.canvas = torch.rand(32, 3, RESOLUTION, RESOLUTION, generator=g)
        self.counts = torch.randint(1, 8, (length,), generator=g)
        self.corners = torch.rand(length, 8, 2, generator=g) * 0.6
        self.sizes = torch.rand(length, 8, 2, generator=g) * 0.3 + 0.05
        self.classes = torch.randint(0, 10, (length, 8), generator=g)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, i):
        n = int(self.counts[i])
        image = self.canvas[i % 32].clone()
        boxes = torch.cat([self.corners[i, :n], self.corners[i, :n] + self.sizes[i, :n]], 1)
        for (x0, y0, x1, y1), c in zip((boxes * RESOLUTION).long().tolist(), self.classes[i, :n].tolist()):
            image[c % 3, y0:y1, x0:x1] = 0.1 * c
        target = {
            "boxes": boxes,
            "labels": self.classes[i, :n].clone(),
            "image_id": torch.tensor([i]),
            "area": self.sizes[i, :n].prod(1),
            "iscrowd": torch.zeros(n, dtype=torch.int64),
            "orig_size": torch.tensor([RESOLUTION, RESOLUTION]),
            "size": torch.tensor([RESOLUTION, RESOLUTION]),
        }
        return image, target


def collate_fn(batch):
    images, targets = zip(*batch)
    lengths = torch.tensor([len(t["labels"]) for t in targets])
    fields = {key: torch.cat([t[key] for t in targets]) for key in targets[0]}
    return torch.stack(images), lengths, fields


def unpack(lengths, fields):
    per_box = {"boxes", "labels", "area", "iscrowd"}
    parts = {k: v.split(lengths.tolist() if k in per_box else len(v) // len(lengths)) for k, v in fields.items()}
    return [{key: parts[key][i] for key in parts} for i in range(len(lengths))]


class TinyDetector(nn.Module):
    """Eight queries, matched in the order of the boxes."""

    def __init__(self, queries=8, classes=11):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 5, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(128)
        )
        self.boxes = nn.Linear(128, queries * 4)
        self.classes = nn.Linear(128, queries * classes)

    def forward(self, x):
        h = self.backbone(x).relu()
        return self.boxes(h).view(len(x), -1, 4), self.classes(h).view(len(x), 8, -1)


def criterion(boxes, logits, targets):
    wanted = torch.full(logits.shape[:2], 10)
    l1 = 0.0
    for i, target in enumerate(targets):
        n = len(target["labels"])
        wanted[i, :n] = target["labels"]
        l1 = l1 + F.l1_loss(boxes[i, :n], target["boxes"])
    return l1 / len(targets) + F.cross_entropy(logits.flatten(0, 1), wanted.flatten())


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        SyntheticScenes(2560), BATCH_SIZE, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=collate_fn
    )
    model = TinyDetector()
    model(torch.zeros(1, 3, RESOLUTION, RESOLUTION))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    t0 = time.perf_counter()
    seen = 0
    for epoch in range(EPOCHS):
        for images, lengths, fields in loader:
            loss = criterion(*model(images), unpack(lengths, fields))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(images)
        print(f"Epoch: [{epoch}] loss: {loss.item():.3f} images: {seen}")
    print(f"throughput: {seen / (time.perf_counter() - t0):.1f} samples/s")
