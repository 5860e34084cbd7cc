"""The training of docs/start.md: a small net learns which way up photographs are, from any folder with JPEG files.

python photos.py data/voc --workers 1
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2


class Photos(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Each photograph, turned by 0 to 3 quarters of a circle, and by how many."""

    def __init__(self, folder: str, limit: int | None) -> None:
        self.files = sorted(str(file) for file in Path(folder).rglob("*.jpg"))[:limit]
        if not self.files:
            raise SystemExit(f"there is no .jpg file in {folder}")
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(64, antialias=True), v2.ColorJitter(0.2, 0.2), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        quarters = int(torch.randint(4, ()))
        image = self.transform(decode_image(self.files[index], ImageReadMode.RGB))
        return torch.rot90(image, quarters, (1, 2)), quarters


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--limit", type=int, help="use so many photographs only")
    asked = parser.parse_args()

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loader = torch.utils.data.DataLoader(
        Photos(asked.folder, asked.limit),
        asked.batch_size,
        shuffle=True,
        num_workers=asked.workers,
        persistent_workers=asked.workers > 0,
        drop_last=True,
    )
    net = torchvision.models.mobilenet_v3_small(num_classes=4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(asked.epochs):
        total = torch.zeros((), device=device)
        for images, quarters in loader:
            loss = torch.nn.functional.cross_entropy(net(images.to(device)), quarters.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {float(total) / len(loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
