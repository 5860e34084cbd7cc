"""Contrastive pretraining on a part of a crawl: only the pairs with an English caption of some length."""

import argparse
import io
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

LANGUAGES = ["en", "de", "fr", "es", "zh", "ru"]


def crawl(folder, count, seed=0):
    rng = random.Random(seed)
    noise = np.random.default_rng(seed)
    photos = []
    for _ in range(24):
        small = Image.fromarray(noise.integers(0, 255, (40, 40, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        small.resize((400, 400)).save(buffer, "JPEG", quality=90)
        photos.append(buffer.getvalue())
    index = []
    for i in range(count):
        (folder / f"{i:07d}.jpg").write_bytes(photos[i % 24])
        words = [rng.randrange(1, 500) for _ in range(rng.randint(2, 14))]
        index.append({"key": f"{i:07d}", "language": rng.choice(LANGUAGES[: 1 + i % 6]), "words": words})
    (folder / "index.json").write_text(json.dumps(index))


class Pairs(Dataset):
    def __init__(self, folder, languages=("en",), min_words=4, size=32):
        self.folder = folder
        self.languages, self.min_words, self.size = languages, min_words, size
        index = json.loads((folder / "index.json").read_text())
        self.index = [entry for entry in index if self.wanted(entry)]

    def wanted(self, entry):
        return entry["language"] in self.languages and len(entry["words"]) >= self.min_words

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        entry = self.index[i]
        image = Image.open(self.folder / f"{entry['key']}.jpg").convert("RGB")
        image = image.resize((self.size, self.size), Image.BICUBIC)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255
        caption = torch.zeros(14, dtype=torch.long)
        caption[: len(entry["words"])] = torch.tensor(entry["words"])
        return pixels, caption


class TwoTowers(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4096, dim)
        )
        self.text = nn.EmbeddingBag(500, dim, padding_idx=0)

    def forward(self, pixels, caption):
        a = nn.functional.normalize(self.image(pixels), dim=1)
        b = nn.functional.normalize(self.text(caption), dim=1)
        return a @ b.T / 0.07


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        crawl(Path(name), args.count)
        loader = DataLoader(
            Pairs(Path(name)),
            args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        model = TwoTowers()
        opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
        seen, start = 0, time.perf_counter()
        for epoch in range(args.epochs):
            for pixels, caption in loader:
                logits = model(pixels, caption)
                loss = nn.functional.cross_entropy(logits, torch.arange(len(logits)))
                opt.zero_grad()
                loss.backward()
                opt.step()
                seen += len(pixels)
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, pairs {seen}")
        print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
