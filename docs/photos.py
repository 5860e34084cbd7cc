"""The training of docs/start.md: a small net on photographs in a folder for each class.

python photos.py data/photos --workers 1
"""

from __future__ import annotations

import argparse

import torch
import torchvision
from torchvision.transforms import v2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    asked = parser.parse_args()

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transform = v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
    )
    photos = torchvision.datasets.ImageFolder(asked.folder, transform)
    loader = torch.utils.data.DataLoader(
        photos,
        asked.batch_size,
        shuffle=True,
        num_workers=asked.workers,
        persistent_workers=asked.workers > 0,
        drop_last=True,
    )
    net = torchvision.models.mobilenet_v3_small(num_classes=len(photos.classes)).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(asked.epochs):
        total = torch.zeros((), device=device)
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {float(total) / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
