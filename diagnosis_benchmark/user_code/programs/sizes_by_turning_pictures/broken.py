# Text-to-image style fine-tuning: every photograph goes into the bucket of the nearest shape.
import glob
import io
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "photos": 720,
    "batch_size": 16,
    "seed": 555,
    "buckets": [(64, 64), (80, 48), (48, 80), (72, 56), (56, 72)],
}
ORIENTATION = 0x0112


def make_photos(folder, count, seed):
    rng = np.random.default_rng(seed)
    encoded = []
    for shape in [(1200, 900), (1200, 800), (1024, 1024)] * 4:
        coarse = Image.fromarray(rng.integers(0, 255, (48, 64, 3), dtype=np.uint8))
        exif = Image.Exif()
        exif[ORIENTATION] = int(rng.choice([1, 1, 6, 8]))
        buffer = io.BytesIO()
        coarse.resize(shape, Image.BILINEAR).save(buffer, "JPEG", quality=88, exif=exif)
        encoded.append(buffer.getvalue())
    for i in range(count):
        with open(f"{folder}/photo_{i:05d}.jpg", "wb") as f:
            f.write(encoded[i % len(encoded)])


class ImageTrainItem:
    def __init__(self, path, buckets):
        self.path = path
        photo = ImageOps.exif_transpose(Image.open(path))
        self.width, self.height = photo.size
        aspect = self.width / self.height
        self.bucket = min(buckets, key=lambda b: abs(b[0] / b[1] - aspect))


class BucketBatches:
    def __init__(self, items, batch_size, seed):
        self.items, self.batch_size = items, batch_size
        self.rng = random.Random(seed)

    def __iter__(self):
        by_bucket = {}
        for i in self.rng.sample(range(len(self.items)), len(self.items)):
            by_bucket.setdefault(self.items[i].bucket, []).append(i)
        n = self.batch_size
        batches = [chosen[k : k + n] for chosen in by_bucket.values() for k in range(0, len(chosen), n)]
        self.rng.shuffle(batches)
        return iter(batches)


class Photos(Dataset):
    def __init__(self, folder, buckets):
        self.items = [ImageTrainItem(path, buckets) for path in sorted(glob.glob(folder + "/*.jpg"))]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        item = self.items[i]
        with Image.open(item.path) as image:
            image.draft("RGB", (160, 160))
            pixels = np.asarray(ImageOps.exif_transpose(image).resize(item.bucket, Image.BICUBIC))
        return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(2, 0, 1)


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, noisy, level):
        level = level.expand(-1, 1, *noisy.shape[2:])
        x = torch.relu(self.enter(torch.cat([noisy, level], 1)))
        y = torch.relu(self.down(x))
        return self.leave(x + torch.relu(self.up(y)))


def train(folder, cfg):
    began = time.perf_counter()
    photos = Photos(folder, cfg["buckets"])
    print(f"{len(photos)} photos in {len({item.bucket for item in photos.items})} buckets")
    batches = BucketBatches(photos.items, cfg["batch_size"], cfg["seed"])
    loader = DataLoader(photos, batch_sampler=batches, num_workers=2, persistent_workers=True)
    net = Denoiser()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-4)
    trained = 0
    for epoch in range(2):
        for clean in loader:
            noise, level = torch.randn_like(clean), torch.rand(len(clean), 1, 1, 1)
            loss = nn.functional.mse_loss(net(clean * (1 - level) + noise * level, level), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained += len(clean)
        print(f"[epoch {epoch}] loss {loss.item():.4f}")
    print(f"throughput: {trained / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    torch.manual_seed(CONFIG["seed"])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        make_photos(folder, CONFIG["photos"], CONFIG["seed"])
        train(folder, CONFIG)
