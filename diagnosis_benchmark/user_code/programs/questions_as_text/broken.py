"""Intent classification of customer questions, on byte pairs."""

import collections
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SYLLABLES = "an be co do el fa gi ho in ja ka lo ma ne or pi qua ri so tu un ve wa xi yo za".split()


class Questions(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 6))) for _ in range(4000)]
        self.examples = []
        for _ in range(count):
            text = " ".join(rng.choices(words, k=rng.randint(110, 150))).capitalize() + "?"
            self.examples.append((text, rng.randrange(12)))

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        return self.examples[index]


def merge(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


class BytePairs:
    def __init__(self, texts, merges=150):
        counts = collections.Counter(word for text in texts for word in re.findall(r"\w+", text))
        words = [(list(word.encode()), n) for word, n in counts.most_common(300)]
        self.ranks = {}
        for new in range(256, 256 + merges):
            pairs = collections.Counter()
            for ids, n in words:
                for pair in zip(ids, ids[1:]):
                    pairs[pair] += n
            best = max(pairs, key=pairs.get)
            self.ranks[best] = new
            words = [(merge(ids, best, new), n) for ids, n in words]

    def encode(self, text, limit=512):
        out = []
        for word in re.findall(r"\s?\w+|[^\w\s]", text):
            ids = list(word.encode())
            while len(ids) > 1:
                pair = min(zip(ids, ids[1:]), key=lambda p: self.ranks.get(p, 1 << 30))
                if pair not in self.ranks:
                    break
                ids = merge(ids, pair, self.ranks[pair])
            out.extend(ids)
        return out[:limit]


class Classifier(nn.Module):
    def __init__(self, vocabulary=512, width=32, classes=12):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.body = nn.Sequential(nn.Conv1d(width, 64, 7, 2), nn.ReLU(), nn.Conv1d(64, 64, 5, 2), nn.ReLU())
        self.out = nn.Linear(64, classes)

    def forward(self, ids):
        return self.out(self.body(self.embed(ids).transpose(1, 2)).amax(-1))


class Trainer:
    def __init__(self, model, tokenizer, lr=5e-4):
        self.model = model
        self.tokenizer = tokenizer
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.samples = 0

    def numericalize(self, texts):
        encoded = [torch.tensor(self.tokenizer.encode(text)) for text in texts]
        return nn.utils.rnn.pad_sequence(encoded, batch_first=True)

    def step(self, ids, labels):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(ids), labels)
        loss.backward()
        self.optimizer.step()
        self.samples += len(labels)
        return loss.detach()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for texts, labels in loader:
                loss = self.step(self.numericalize(texts), labels)
            print(f"epoch {epoch} | loss {loss:.3f} | {self.samples} examples")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Questions(720, seed=11)
    tokenizer = BytePairs(text for text, _ in data.examples[:50])
    trainer = Trainer(Classifier(), tokenizer)
    start = time.perf_counter()
    loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=1, persistent_workers=True)
    trainer.fit(loader, epochs=6)
    print(f"throughput: {trainer.samples / (time.perf_counter() - start):.1f} samples/s")
