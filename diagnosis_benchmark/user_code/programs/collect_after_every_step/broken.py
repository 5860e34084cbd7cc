"""Low-rank adapters for a small causal language model, trained on worked arithmetic problems."""

import argparse
import gc
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

VOCAB, PAD = 1200, 0


def load_problems(count, seed):
    rng = np.random.default_rng(seed)
    questions = rng.integers(1, VOCAB, (count, 24)).tolist()
    answers = rng.integers(1, VOCAB, (count, 20)).tolist()
    return [
        {"question": q, "answer": a, "meta": {"source": "gsm", "level": i % 5}}
        for i, (q, a) in enumerate(zip(questions, answers))
    ]


def collate(problems):
    rows = [torch.tensor(p["question"] + p["answer"]) for p in problems]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    target = tokens.clone()
    target[:, : len(problems[0]["question"])] = -100
    return tokens, target


class LowRank(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = LowRank(nn.Linear(dim, 3 * dim)), LowRank(nn.Linear(dim, dim))
        self.wide, self.narrow = LowRank(nn.Linear(dim, 4 * dim)), LowRank(nn.Linear(4 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, dim=96, layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim).requires_grad_(False)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(layers)])
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def train(model, loader, max_steps, lr):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr)
    losses, step, trained = [], 0, 0
    tic = time.perf_counter()
    for tokens, target in loader:
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=-100)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        del logits, loss
        step += 1
        trained += len(tokens)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        gc.collect()
        if step % 25 == 0:
            print(f"step {step:4d}  loss {sum(losses[-25:]) / 25:.4f}", flush=True)
        if step == max_steps:
            break
    return trained, time.perf_counter() - tic


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-steps", type=int, default=75)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    problems = load_problems(args.problems, args.seed)
    loader = DataLoader(problems, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    trained, seconds = train(Model(), loader, args.max_steps, args.lr)
    print(f"throughput: {trained / seconds:.1f} samples/s")
