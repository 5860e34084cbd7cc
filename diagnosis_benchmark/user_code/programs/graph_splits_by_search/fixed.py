"""Graph classification on many small molecule-like graphs with a fixed split file."""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

N_GRAPHS = 40000
BATCH = 64
EPOCHS = 1
NODE_TYPES = 8


def make_graphs(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(12, 24, N_GRAPHS)
    ends = np.cumsum(sizes)
    types = rng.integers(0, NODE_TYPES, ends[-1])
    rare = np.add.reduceat(types == 0, ends - sizes, dtype=np.int64)
    edges = (rng.random((N_GRAPHS, 2, 32)) * sizes[:, None, None]).astype(np.int64)
    return [{"types": types[end - n:end], "edges": edges[i], "label": int(rare[i] > 2)}
            for i, (n, end) in enumerate(zip(sizes, ends))]


def write_split(path, seed):
    order = np.random.default_rng(seed).permutation(N_GRAPHS).tolist()
    train, valid = int(0.25 * N_GRAPHS), int(0.35 * N_GRAPHS)
    with open(path, "w") as file:
        json.dump({"train": order[:train], "valid": order[train:valid], "test": order[valid:]}, file)


def split_graphs(graphs, split_idx):
    parts = {}
    for name in ("train", "valid", "test"):
        parts[name] = [graphs[i] for i in sorted(split_idx[name])]
    return parts


def collate(graphs):
    offsets = np.cumsum([0] + [len(g["types"]) for g in graphs])
    types = np.concatenate([g["types"] for g in graphs])
    edges = np.concatenate([g["edges"] + o for g, o in zip(graphs, offsets)], axis=1)
    owner = np.repeat(np.arange(len(graphs)), np.diff(offsets))
    labels = np.array([g["label"] for g in graphs], dtype=np.float32)
    return torch.from_numpy(types), torch.from_numpy(edges), torch.from_numpy(owner), torch.from_numpy(labels)


class GIN(nn.Module):
    def __init__(self, width=96, layers=3):
        super().__init__()
        self.embed = nn.Embedding(NODE_TYPES, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, types, edges, owner, n_graphs):
        h = self.embed(types)
        src, dst = edges
        for layer in self.layers:
            h = layer(h + torch.zeros_like(h).index_add(0, dst, h[src]))
        pooled = torch.zeros(n_graphs, h.shape[1]).index_add(0, owner, h)
        return self.head(pooled).squeeze(1)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    graphs = make_graphs(5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "split.json")
        write_split(path, 6)
        start = time.perf_counter()
        with open(path) as file:
            parts = split_graphs(graphs, json.load(file))
    print({name: len(part) for name, part in parts.items()})

    loader = DataLoader(parts["train"], batch_size=BATCH, shuffle=True, num_workers=1, collate_fn=collate)
    model = GIN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen = 0
    for epoch in range(EPOCHS):
        total = 0.0
        for types, edges, owner, labels in loader:
            logits = model(types, edges, owner, len(labels))
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            seen += len(labels)
        print(f"epoch {epoch}: loss {total / len(parts['train']):.4f}")
    print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
