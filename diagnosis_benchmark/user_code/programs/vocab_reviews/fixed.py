"""Sentiment of reviews with a bag of embeddings and a small transformer layer."""
import re
import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

CONFIG = dict(vocab=3200, reviews=4000, words=96, batch=32, steps=200, width=128, lr=5e-4, seed=8)
WORD = re.compile(r"[a-z]+")


def make_words(count, rng):
    syllables = ["ka", "lo", "mi", "ter", "su", "ran", "po", "del", "vi", "shu", "en", "gar"]
    words = set()
    while len(words) < count:
        words.add("".join(rng.choice(syllables, rng.integers(2, 5))))
    return sorted(words)


def make_reviews(words, cfg, rng):
    weight = 1.0 / (np.arange(len(words)) + 12.0) ** 0.75
    picks = rng.choice(len(words), (cfg["reviews"], cfg["words"]), p=weight / weight.sum())
    stars = rng.integers(0, 2, cfg["reviews"])
    return [(" ".join(words[j] for j in row).capitalize() + ".", int(star))
            for row, star in zip(picks, stars)]


def encode(batch, vocab):
    rows, stars = [], []
    for review, star in batch:
        words = WORD.findall(review.lower())
        rows.append([vocab[word] for word in words])
        stars.append(star)
    longest = max(map(len, rows))
    tokens = torch.zeros(len(rows), longest, dtype=torch.long)
    for line, row in zip(tokens, rows):
        line[:len(row)] = torch.tensor(row)
    return tokens, torch.tensor(stars, dtype=torch.float32)


def build(cfg):
    layer = nn.TransformerEncoderLayer(cfg["width"], 4, 192, dropout=0.0, batch_first=True)
    return nn.ModuleDict({
        "embed": nn.Embedding(cfg["vocab"], cfg["width"]),
        "mix": layer,
        "head": nn.Linear(cfg["width"], 1),
    })


def score(model, tokens):
    hidden = model["mix"](model["embed"](tokens))
    return model["head"](hidden.mean(1)).squeeze(1)


def endless(loader):
    while True:
        yield from loader


def train(cfg):
    rng = np.random.default_rng(cfg["seed"])
    torch.manual_seed(cfg["seed"])
    torch.set_num_threads(1)
    vocab = make_words(cfg["vocab"], rng)
    reviews = make_reviews(vocab, cfg, rng)
    loader = DataLoader(reviews, batch_size=cfg["batch"], shuffle=True, drop_last=True,
                        collate_fn=partial(encode, vocab={word: i for i, word in enumerate(vocab)}))
    model = build(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    begin = 0.0
    for step, (tokens, stars) in enumerate(endless(loader), 1):
        loss = nn.functional.binary_cross_entropy_with_logits(score(model, tokens), stars)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step == 5:
            begin = time.perf_counter()
        if step % 50 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
        if step == cfg["steps"]:
            break
    return (cfg["steps"] - 5) * cfg["batch"] / (time.perf_counter() - begin)


print(f"throughput: {train(CONFIG):.1f} samples/s")
