"""Sentiment of chat transcripts, batches of similar length."""
import argparse
import gzip
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

VOCAB = 900


def invent(folder, count):
    rnd = random.Random(13)
    for n in range(count):
        mood = n % 2
        turns = []
        for _ in range(rnd.randint(4, 14)):
            low = 0 if mood else VOCAB // 4
            ids = [rnd.randrange(low, low + VOCAB * 3 // 4) for _ in range(rnd.randint(3, 9))]
            pitch = [rnd.random() for _ in range(120)] if len(turns) % 3 == 0 else pitch
            turns.append({"who": rnd.choice("ab"), "at": rnd.random(), "ids": ids, "pitch": pitch[: rnd.randint(60, 120)]})
        with gzip.open(os.path.join(folder, f"{n}.json.gz"), "wt", compresslevel=1) as f:
            f.write(json.dumps({"mood": mood, "turns": turns}))


class Transcripts(Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def load(self, n):
        with gzip.open(os.path.join(self.folder, f"{n}.json.gz"), "rt") as f:
            return json.load(f)

    def words(self, n):
        return sum(len(turn["ids"]) for turn in self.load(n)["turns"])

    def __getitem__(self, n):
        chat = self.load(n)
        ids = [i for turn in chat["turns"] for i in turn["ids"]]
        return torch.tensor(ids), chat["mood"]


class Buckets(Sampler):
    """Shuffled batches whose members have about the same number of words."""

    def __init__(self, data, size, seed):
        self.data, self.size = data, size
        self.dice = random.Random(seed)

    def __len__(self):
        return len(self.data) // self.size

    def __iter__(self):
        sizes = [self.data.words(n) for n in range(len(self.data))]
        order = sorted(range(len(sizes)), key=lambda n: sizes[n] + self.dice.random() * 20)
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        self.dice.shuffle(batches)
        return iter(batches[: len(self)])


def pad(pairs):
    ids, moods = zip(*pairs)
    return pad_sequence(ids, batch_first=True), torch.tensor(moods, dtype=torch.float32)


class Reader(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, ids):
        return self.out(self.gru(self.embed(ids))[0].mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chats", type=int, default=1200)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="chats") as folder:
        invent(folder, args.chats)
        data = Transcripts(folder, args.chats)
        loader = DataLoader(data, batch_sampler=Buckets(data, args.batch, 4), num_workers=1, collate_fn=pad)
        model = Reader(64)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        step = 0
        for epoch in range(args.epochs):
            for ids, moods in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(ids), moods)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step == 5:
                    start = time.perf_counter()
        spent = time.perf_counter() - start
    print(f"{step} steps, loss {loss.item():.3f}")
    print(f"throughput: {(step - 5) * args.batch / spent:.1f} samples/s")


main()
