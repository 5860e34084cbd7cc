"""Contrastive training of a sentence encoder with hard negatives; no text twice within a batch."""
import re
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

CONFIG = dict(rows=6400, passages=190, negatives=4, batch_size=32, lr=2e-3, buckets=20000, width=128)


def make_rows(config, seed=3):
    rng = np.random.default_rng(seed)
    words = ["w" + str(i) for i in range(3000)]

    def sentence(n):
        return " ".join(rng.choice(words, n)).capitalize() + "."

    passages = [sentence(24) for _ in range(config["passages"])]
    rows = []
    for i in range(config["rows"]):
        picked = rng.choice(len(passages), 1 + config["negatives"], replace=False)
        rows.append([f"Question {i}: " + passages[picked[0]][:30] + "?"] + [passages[j] for j in picked])
    return rows


class TripletDataset(Dataset):
    def __init__(self, rows, buckets, length=24):
        self.rows, self.buckets, self.length = rows, buckets, length

    def __len__(self):
        return len(self.rows)

    def encode(self, text):
        ids = [hash_word(word) % self.buckets + 1 for word in text.lower().split()][: self.length]
        return torch.tensor(ids + [0] * (self.length - len(ids)))

    def __getitem__(self, i):
        return torch.stack([self.encode(text) for text in self.rows[i]])


def hash_word(word):
    value = 5381
    for letter in word:
        value = (value * 33 + ord(letter)) & 0xFFFFFFFF
    return value


def normalise(text):
    return re.sub(r"[^\w\s]", "", text.lower()).strip()


class NoDuplicatesBatchSampler(Sampler):
    def __init__(self, dataset, batch_size, seed=0):
        self.dataset = dataset
        self.batch_size = batch_size
        self.generator = torch.Generator().manual_seed(seed)
        self.texts = [{normalise(text) for text in row} for row in dataset.rows]

    def __iter__(self):
        remaining = dict.fromkeys(torch.randperm(len(self.dataset), generator=self.generator).tolist())
        while len(remaining) > len(self.dataset) // 4:
            batch, seen = [], set()
            for index in remaining:
                texts = self.texts[index]
                if texts & seen:
                    continue
                batch.append(index)
                seen |= texts
                if len(batch) == self.batch_size:
                    break
            for index in batch:
                del remaining[index]
            yield batch


class Encoder(nn.Module):
    def __init__(self, buckets, width):
        super().__init__()
        self.embed = nn.EmbeddingBag(buckets + 1, width, padding_idx=0, sparse=True)
        self.body = nn.Sequential(nn.Linear(width, 900), nn.GELU(), nn.Linear(900, 900), nn.GELU(), nn.Linear(900, 96))

    def forward(self, ids):
        return nn.functional.normalize(self.body(self.embed(ids)), dim=-1)


class Trainer:
    def __init__(self, config):
        self.config = config
        self.dataset = TripletDataset(make_rows(config), config["buckets"])
        sampler = NoDuplicatesBatchSampler(self.dataset, config["batch_size"])
        self.loader = DataLoader(self.dataset, batch_sampler=sampler, num_workers=1, persistent_workers=True)
        self.model = Encoder(config["buckets"], config["width"])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])

    def loss(self, batch):
        vectors = self.model(batch.flatten(0, 1)).view(*batch.shape[:2], -1)
        query, positive, negatives = vectors[:, 0], vectors[:, 1], vectors[:, 2:].flatten(0, 1)
        scores = query @ torch.cat([positive, negatives]).T * 20
        return nn.functional.cross_entropy(scores, torch.arange(len(query)))

    def fit(self):
        samples, start = 0, time.perf_counter()
        for step, batch in enumerate(self.loader):
            loss = self.loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            samples += len(batch)
            if step % 25 == 0:
                print(f"step {step}: {loss.item():.4f}")
        return samples / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rate = Trainer(CONFIG).fit()
    print(f"throughput: {rate:.1f} samples/s")
