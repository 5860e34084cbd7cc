"""Seedling classifier: small RGB thumbnails kept in one archive."""
import argparse
import io
import os
import shutil
import tempfile
import time
import zipfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


def make_archive(path, count, side, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 6, count)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for i in range(count):
            base = rng.integers(0, 200, (8, 8, 3), dtype=np.uint8)
            base[:, :, labels[i] % 3] += 40
            picture = Image.fromarray(base).resize((side, side), Image.NEAREST)
            buffer = io.BytesIO()
            picture.save(buffer, "PNG", compress_level=1)
            out.writestr(f"bed{i % 17:02d}/plant_{i:05d}.png", buffer.getvalue())
    return labels


class Seedlings(Dataset):
    def __init__(self, path, labels):
        self.ready = [zipfile.ZipFile(path) for _ in range(4)]
        self.labels = torch.as_tensor(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        info = get_worker_info()
        archive = self.ready[info.id if info else 0]
        raw = archive.read(f"bed{i % 17:02d}/plant_{i:05d}.png")
        picture = np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))
        tensor = torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255
        if torch.rand(()) < 0.5:
            tensor = tensor.flip(-1)
        return tensor, self.labels[i]


def network():
    return nn.Sequential(
        nn.Conv2d(3, 20, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(48, 6))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1620)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(4)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="seedlings-")
    try:
        path = os.path.join(folder, "plants.zip")
        labels = make_archive(path, args.count, 48, 4)
        loader = DataLoader(Seedlings(path, labels), batch_size=args.batch, shuffle=True,
                            num_workers=args.workers, persistent_workers=True)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        steps, since = 0, 0.0
        for epoch in range(args.epochs):
            for pictures, target in loader:
                loss = nn.functional.cross_entropy(model(pictures), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
                if steps == 5:
                    since = time.perf_counter()
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        spent = time.perf_counter() - since
        print(f"throughput: {(steps - 5) * args.batch / spent:.1f} samples/s")
    finally:
        shutil.rmtree(folder)


main()
