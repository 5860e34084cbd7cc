"""Language model on a stream of documents, resumed from the last checkpoint."""
import argparse
import json
import os
import random
import shutil
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTH = 96


class SubwordTokenizer:
    """Greedy longest match over a vocabulary of word pieces."""

    def __init__(self, pieces):
        self.ids = {piece: i + 1 for i, piece in enumerate(pieces)}
        self.longest = max(len(piece) for piece in pieces)

    def encode(self, text):
        ids = []
        for word in text.lower().split():
            start = 0
            while start < len(word):
                for end in range(min(len(word), start + self.longest), start, -1):
                    piece = word[start:end]
                    if piece in self.ids:
                        ids.append(self.ids[piece])
                        break
                start = end
        return ids


class JsonlStream(IterableDataset):
    def __init__(self, path, tokenizer, batch_size):
        self.path = path
        self.tokenizer = tokenizer
        self.batch_size = batch_size

    def __iter__(self):
        worker = get_worker_info()
        with open(self.path) as lines:
            for number, line in enumerate(lines):
                if (number // self.batch_size) % worker.num_workers != worker.id:
                    continue
                ids = self.tokenizer.encode(json.loads(line)["text"])
                ids = (ids + [0] * LENGTH)[: LENGTH + 1]
                yield torch.tensor(ids)


class TinyLM(nn.Module):
    def __init__(self, vocabulary, width=96):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def prepare(folder, documents, resume_at, model):
    rng = random.Random(7)
    letters = "etaoinshrdlu"
    pieces = sorted({"".join(rng.choices(letters, k=k)) for k in (2, 3, 4, 5) for _ in range(220)} | set(letters))
    words = ["".join(rng.choices(letters, k=rng.randint(4, 13))) for _ in range(4000)]
    texts = [json.dumps({"text": " ".join(rng.choices(words, k=230))}) for _ in range(400)]
    with open(os.path.join(folder, "train.jsonl"), "w") as out:
        for i in range(documents):
            out.write(texts[i % 400] + "\n")
    model = model(len(pieces) + 1)
    torch.save({"step": resume_at, "model": model.state_dict()}, os.path.join(folder, "last.pt"))
    return pieces


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=1280)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    pieces = prepare(folder, args.steps * args.batch_size, args.steps - 80, TinyLM)

    started = time.perf_counter()
    state = torch.load(os.path.join(folder, "last.pt"))
    model = TinyLM(len(pieces) + 1)
    model.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = JsonlStream(os.path.join(folder, "train.jsonl"), SubwordTokenizer(pieces), args.batch_size)
    batches = iter(DataLoader(stream, batch_size=args.batch_size, num_workers=args.workers))
    for _ in range(state["step"]):
        next(batches)
    trained = 0
    for step, tokens in enumerate(batches, start=state["step"]):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained += len(tokens)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    seconds = time.perf_counter() - started
    shutil.rmtree(folder)
    print(f"throughput: {trained / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
