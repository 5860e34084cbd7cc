"""Two folds of a cross validation at once: sea-ice type from radar tiles."""
import io
import os
import shutil
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset, Subset

SIZE, BANDS, TYPES = 96, 3, 4
TILES, FOLDS = 960, 2


def unfilter(raw, width):
    """Undo the per-row difference coding of the tile format."""
    rows = np.frombuffer(raw, np.uint8).reshape(-1, width)
    out = np.empty(rows.shape, np.uint8)
    line = np.zeros(width, np.uint8)
    for y, row in enumerate(rows):
        line = line + np.cumsum(row, dtype=np.uint8)
        out[y] = line
    return out


def filtered(tile):
    rows = np.diff(tile, axis=0, prepend=np.zeros((1, tile.shape[1]), np.uint8))
    return np.diff(rows, axis=1, prepend=np.zeros((len(rows), 1), np.uint8))


def speckle(tile, passes=3):
    """Lee filter, window 5, repeated."""
    img = tile.astype(np.float64)
    for _ in range(passes):
        padded = np.pad(img, 2, mode="edge")
        views = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
        mean, var = views.mean((2, 3)), views.var((2, 3))
        img = mean + var / (var + 90.0) * (img - mean)
    return img.astype(np.float32)


def write_tiles(folder):
    rng = np.random.default_rng(31)
    ramp = np.linspace(0, 60, SIZE)
    with open(os.path.join(folder, "tiles.bin"), "wb") as sink:
        for n in range(120):
            kind = n % TYPES
            tile = ramp[:, None] * kind / 3 + rng.gamma(2.0 + kind, 12, (SIZE, SIZE))
            body = zlib.compress(filtered(tile.clip(0, 255).astype(np.uint8)).tobytes(), 1)
            sink.write(struct.pack("<II", len(body), kind) + body)


class Tiles(Dataset):
    def __init__(self, folder):
        self.path = os.path.join(folder, "tiles.bin")
        self.where = []
        with open(self.path, "rb") as source:
            while head := source.read(8):
                size, kind = struct.unpack("<II", head)
                self.where.append((source.tell(), size, kind))
                source.seek(size, io.SEEK_CUR)

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        at, size, kind = self.where[index % len(self.where)]
        with open(self.path, "rb") as source:
            source.seek(at)
            tile = unfilter(zlib.decompress(source.read(size)), SIZE)
        tile = np.roll(tile, index % 17, axis=1)
        calm = speckle(tile)
        return torch.from_numpy(np.stack([tile / 255, calm / 255, np.abs(tile - calm) / 64]).astype(np.float32)), kind


def fold(number, folder):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    mine = [i for i in range(TILES) if i % 5 != number]
    loader = DataLoader(Subset(Tiles(folder), mine), batch_size=8, shuffle=True, num_workers=2)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(BANDS, 16, 5, stride=3), torch.nn.ReLU(),
        torch.nn.Conv2d(16, 24, 3), torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(4), torch.nn.Flatten(), torch.nn.Linear(384, TYPES),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    stamps = []
    for tiles, kinds in loader:
        loss = torch.nn.functional.cross_entropy(net(tiles), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stamps.append(time.perf_counter())
    if number == 0:
        print(f"fold 0, {len(stamps)} steps, last loss {loss.item():.3f}")
        print(f"throughput: {(len(mine) - 40) / (stamps[-1] - stamps[4]):.1f} samples/s", flush=True)


if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="seaice")
    write_tiles(folder)
    try:
        mp.start_processes(fold, args=(folder,), nprocs=FOLDS, start_method="fork")
    finally:
        shutil.rmtree(folder)
