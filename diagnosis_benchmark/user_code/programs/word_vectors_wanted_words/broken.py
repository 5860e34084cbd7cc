# Sentiment of short reviews: bag of pretrained word vectors, then a small network. Plain script.
import collections
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EMBEDDING_SIZE = 48
LENGTH = 60
torch.manual_seed(11)
torch.set_num_threads(1)


def write_material(folder):
    """Reviews (label, tab, text) and a file of word vectors as text, one word in a line."""
    rng = np.random.default_rng(11)
    words = [f"w{n:05d}" for n in range(26000)]
    numbers = [f"{x:.4f}" for x in rng.normal(0, 0.4, 3000)]
    picks = rng.integers(3000, size=(len(words), EMBEDDING_SIZE)).tolist()
    with open(os.path.join(folder, "vectors.txt"), "w") as file:
        for word, row in zip(words, picks):
            file.write(word + " " + " ".join([numbers[i] for i in row]) + "\n")
    with open(os.path.join(folder, "reviews.tsv"), "w") as file:
        for row in rng.integers(14000, size=(2600, LENGTH)).tolist():
            file.write(f"{sum(row) % 2}\t" + " ".join([words[i] for i in row]) + "\n")


class WhitespaceEncoder:
    def __init__(self, texts):
        counts = collections.Counter()
        for text in texts:
            counts.update(text.split())
        self.index = {word: i for i, word in enumerate(["<pad>", "<unk>", *counts])}

    @property
    def vocab(self):
        return list(self.index)

    def encode(self, text):
        return [self.index.get(word, 1) for word in text.split()]


class WordVectors:
    """Vectors of the words that is_include lets through."""

    def __init__(self, path, is_include=None):
        self.vectors = {}
        with open(path) as file:
            for line in file:
                word, _, rest = line.partition(" ")
                if is_include is not None and not is_include(word):
                    continue
                self.vectors[word] = np.array(rest.split(), dtype=np.float32)

    def __contains__(self, word):
        return word in self.vectors

    def __getitem__(self, word):
        return torch.from_numpy(self.vectors[word])


class Sentiment(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(weights, freeze=True)
        self.conv = nn.Conv1d(weights.shape[1], 224, 5, padding=2)
        self.out = nn.Sequential(nn.Linear(224, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(1, 2)
        return self.out(F.relu(self.conv(x)).amax(-1))


with tempfile.TemporaryDirectory(prefix="reviews-") as folder:
    write_material(folder)
    begin = time.perf_counter()

    labels, texts = [], []
    with open(os.path.join(folder, "reviews.tsv")) as file:
        for line in file:
            label, text = line.rstrip("\n").split("\t")
            labels.append(int(label))
            texts.append(text)
    encoder = WhitespaceEncoder(texts)
    print(f"{len(texts)} reviews, {len(encoder.vocab)} words")

    vectors = WordVectors(os.path.join(folder, "vectors.txt"), is_include=lambda word: word in set(encoder.vocab))
    weights = torch.zeros(len(encoder.vocab), EMBEDDING_SIZE)
    for i, word in enumerate(encoder.vocab):
        if word in vectors:
            weights[i] = vectors[word]
    print(f"{len(vectors.vectors)} vectors found")

tokens = torch.tensor([encoder.encode(text) for text in texts])
loader = DataLoader(TensorDataset(tokens, torch.tensor(labels)), batch_size=48, shuffle=True)
model = Sentiment(weights)
optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-3)
seen = 0
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
        seen += len(x)
    print(f"epoch {epoch}  loss {total / len(tokens):.4f}")
print(f"throughput: {seen / (time.perf_counter() - begin):.1f} samples/s")
