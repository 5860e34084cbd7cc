"""Sort holiday photos into ten albums with a small network that looks at 112 x 112 thumbnails."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def take_photos(folder: Path, count: int, size: tuple[int, int]) -> list[Path]:
    rng = np.random.default_rng(7)
    paths = []
    for number in range(count):
        coarse = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        path = folder / f"IMG_{number:04d}.jpg"
        Image.fromarray(coarse).resize(size, Image.BILINEAR).save(path, quality=88)
        paths.append(path)
    return paths


class Photos(Dataset):
    def __init__(self, paths: list[Path], side: int):
        self.paths = paths
        self.side = side

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[index]) as photo:
            photo = photo.convert("RGB")
        photo = photo.resize((self.side, self.side), Image.BILINEAR)
        pixels = np.asarray(photo, dtype=np.float32) / 255.0
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous(), index % 10


class AlbumNet(nn.Module):
    def __init__(self, albums: int = 10):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 5, stride=2, padding=2)
        self.body = nn.Conv2d(24, 48, 3, stride=2, padding=1)
        self.top = nn.Conv2d(48, 64, 3, stride=2, padding=1)
        self.head = nn.Linear(64, albums)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        x = F.relu(self.body(x))
        x = F.relu(self.top(x))
        return self.head(x.mean((2, 3)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(7)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="albums-"))
    try:
        paths = take_photos(folder, args.photos, (1600, 1200))
        loader = DataLoader(
            Photos(paths, 112),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
            prefetch_factor=4,
        )
        net = AlbumNet()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
        seen, began = 0, time.perf_counter()
        for epoch in range(args.epochs):
            losses = []
            for pixels, album in loader:
                loss = F.cross_entropy(net(pixels), album)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                seen += len(pixels)
            if epoch % 6 == 0:
                print(f"epoch {epoch:3d}  loss {np.mean(losses):.3f}")
        rate = seen / (time.perf_counter() - began)
    finally:
        shutil.rmtree(folder)
    print(f"throughput: {rate:.1f} samples/s")


if __name__ == "__main__":
    main()
