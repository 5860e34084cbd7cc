"""Natural language inference on a jsonl file, read lazily by the loader's workers."""
import itertools
import json
import re
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LABELS = {"entailment": 0, "neutral": 1, "contradiction": 2}
BUCKETS = 30_000
MAX_TOKENS = 320


class SnliReader(IterableDataset):
    token_pattern = re.compile(r"\w+|[^\w\s]")

    def __init__(self, file_path):
        self.file_path = file_path

    def tokenize(self, text):
        pieces = []
        for word in self.token_pattern.findall(text.lower()):
            padded = f"<{word}>"
            pieces.extend(padded[i:i + 3] for i in range(len(padded) - 2))
        return pieces[:MAX_TOKENS * 4]

    def text_to_instance(self, premise, hypothesis, label):
        tokens = [zlib.crc32(p.encode()) % (BUCKETS - 1) + 1
                  for p in itertools.chain(self.tokenize(premise), self.tokenize(hypothesis))]
        ids = np.zeros(MAX_TOKENS, np.int64)
        ids[:len(tokens[:MAX_TOKENS])] = tokens[:MAX_TOKENS]
        return torch.from_numpy(ids), LABELS[label]

    def read(self, first, every):
        with open(self.file_path) as snli_file:
            for line in itertools.islice(snli_file, first, None, every):
                example = json.loads(line)
                if example["gold_label"] == "-":
                    continue
                yield self.text_to_instance(example["sentence1"], example["sentence2"], example["gold_label"])

    def __iter__(self):
        info = get_worker_info()
        if info is None:
            return self.read(0, 1)
        return self.read(info.id, info.num_workers)


class BagOfTrigrams(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.embed = nn.Embedding(BUCKETS, dim, padding_idx=0, sparse=True)
        self.encoder = nn.GRU(dim, 64, batch_first=True)
        self.classify = nn.Linear(64, len(LABELS))

    def forward(self, ids):
        pooled = nn.functional.avg_pool1d(self.embed(ids).transpose(1, 2), 20).transpose(1, 2)
        return self.classify(self.encoder(pooled)[1][-1])


def write_corpus(out, examples):
    rng = np.random.default_rng(0)
    words = ["".join(w) for w in rng.choice(list("abcdefghijklmnoprstuvw"), (4000, 7))]
    for picked, label in zip(rng.integers(0, 4000, (examples, 160)), rng.choice([*LABELS, "-"], examples)):
        sentence = [words[i] for i in picked]
        out.write(json.dumps({"sentence1": " ".join(sentence[:100]) + ".", "sentence2": " ".join(sentence[100:]) + ".",
                              "gold_label": label}) + "\n")
    out.flush()


def run(path, epochs=4, batch_size=32):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(SnliReader(path), batch_size=batch_size, num_workers=2, persistent_workers=True)
    model = BagOfTrigrams()
    dense = torch.optim.Adam([*model.encoder.parameters(), *model.classify.parameters()], lr=1e-3)
    sparse = torch.optim.SparseAdam(model.embed.parameters(), lr=1e-3)
    examples, t = 0, time.perf_counter()
    for epoch in range(epochs):
        hits = total = 0
        for ids, y in loader:
            logits = model(ids)
            dense.zero_grad()
            sparse.zero_grad()
            nn.functional.cross_entropy(logits, y).backward()
            dense.step()
            sparse.step()
            hits += (logits.argmax(1) == y).sum().item()
            total += len(y)
        examples += total
        print(f"epoch {epoch + 1}/{epochs}  acc {hits / total:.3f}")
    return examples / (time.perf_counter() - t)


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as corpus:
        write_corpus(corpus, 1600)
        print(f"throughput: {run(corpus.name):.1f} samples/s")
