"""Pretrains a tiny language model on a plain-text corpus that is tokenised as it streams by."""

import argparse
import random
import re
import tempfile
from time import perf_counter

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORD = re.compile(r" ?[a-z]+|[^a-z]")


def write_corpus(path, lines, seed):
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfghklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(3, 7))) for _ in range(2500)]
    weights = [1 / (k + 3) for k in range(len(words))]
    with open(path, "w") as f:
        f.writelines(" ".join(rng.choices(words, weights, k=50)) + ".\n" for _ in range(lines))
    merges = [(s[0], s[1]) for s in syllables]
    merges += [(word[:k], word[k : k + 2]) for word in words[:200] for k in range(2, len(word), 2)]
    return list(dict.fromkeys(merges))


class Tokenizer:
    def __init__(self, merges):
        pieces = list("abcdefghijklmnopqrstuvwxyz .\n") + ["".join(pair) for pair in merges]
        self.ids = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.known = {}

    def merge(self, word):
        parts = list(word)
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if best not in self.ranks:
                break
            at = pairs.index(best)
            parts[at : at + 2] = ["".join(best)]
        return [self.ids[part] for part in parts]

    def encode(self, text):
        tokens = []
        for word in WORD.findall(text):
            if word not in self.known:
                self.known[word] = self.merge(word)
            tokens.extend(self.known[word])
        return tokens


class Blocks(IterableDataset):
    def __init__(self, path, tokenizer, length):
        self.path, self.tokenizer, self.length = path, tokenizer, length

    def __iter__(self):
        tokens = []
        with open(self.path) as corpus:
            for line in corpus:
                tokens += self.tokenizer.encode(line)
                while len(tokens) > self.length:
                    yield torch.tensor(tokens[: self.length + 1])
                    del tokens[: self.length]


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, dim=48):
        super().__init__()
        self.embed, self.out = nn.Embedding(vocabulary, dim), nn.Linear(dim, vocabulary)
        self.mix = nn.Conv1d(dim, dim, 4)

    def forward(self, tokens):
        x = nn.functional.pad(self.embed(tokens).transpose(1, 2), (3, 0))
        return self.out(torch.relu(self.mix(x)).transpose(1, 2))


class Trainer:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.blocks = 0

    def training_step(self, block):
        logits = self.model(block[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), block[:, 1:].flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.blocks += len(block)
        return loss.detach()

    def run(self, epochs):
        for epoch in range(epochs):
            for block in self.loader:
                loss = self.training_step(block)
            print(f"epoch {epoch}: {self.blocks} blocks, {loss.item():.3f} nats")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--lines", type=int, default=1500)
    lines = p.parse_args().lines
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/corpus.txt"
        tokenizer = Tokenizer(write_corpus(path, lines, seed=1))
        blocks = Blocks(path, tokenizer, 64)
        loader = DataLoader(blocks, 32, num_workers=1, persistent_workers=True, drop_last=True)
        trainer = Trainer(LanguageModel(len(tokenizer.ids)), loader, lr=2e-3)
        began = perf_counter()
        trainer.run(epochs=2)
        print(f"throughput: {trainer.blocks / (perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
