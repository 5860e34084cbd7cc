import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "graphs": 480, "nodes": 90, "edges": 420, "features": 24,
    "batch_size": 40, "epochs": 9, "hidden": 160, "lr": 1e-3, "workers": 2, "seed": 5,
}


@dataclass
class Sample:
    graph: Any
    x: torch.Tensor
    edges: torch.Tensor
    target: torch.Tensor


def random_interaction_graph(rng, nodes, pairs):
    graph = nx.Graph()
    for n in range(nodes):
        graph.add_node(n, kind=rng.choice("CNOSP"), charge=rng.random())
    for a, b in pairs:
        graph.add_edge(a, b, bond=rng.randint(1, 3), length=rng.random())
    return graph


class InteractionGraphs(Dataset):
    """Graphs are kept as networkx objects beside their tensors, for looking at them."""

    def __init__(self, cfg):
        rng = random.Random(cfg["seed"])
        gen = torch.Generator().manual_seed(cfg["seed"])
        possible = list(itertools.combinations(range(cfg["nodes"]), 2))
        self.samples = []
        for _ in range(cfg["graphs"]):
            graph = random_interaction_graph(rng, cfg["nodes"], rng.sample(possible, cfg["edges"]))
            edges = torch.tensor(list(graph.edges)).t()
            x = torch.randn(cfg["nodes"], cfg["features"], generator=gen)
            target = x[edges[0], 0].mul(x[edges[1], 1]).mean()
            self.samples.append(Sample(graph, x, torch.cat([edges, edges.flip(0)], 1), target))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def collate_graphs(samples):
    offsets, total = [], 0
    for s in samples:
        offsets.append(total)
        total += len(s.x)
    batch = {
        "x": torch.cat([s.x for s in samples]),
        "edges": torch.cat([s.edges + o for s, o in zip(samples, offsets)], dim=1),
        "owner": torch.repeat_interleave(torch.arange(len(samples)), torch.tensor([len(s.x) for s in samples])),
        "target": torch.stack([s.target for s in samples]),
    }
    batch["graph"] = [s.graph for s in samples]
    return batch


class MessagePassing(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.embed = nn.Linear(features, hidden)
        self.own = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(2))
        self.read = nn.Linear(hidden, 1)

    def forward(self, batch):
        h = F.relu(self.embed(batch["x"]))
        src, dst = batch["edges"]
        for layer in self.own:
            h = F.relu(layer(h + torch.zeros_like(h).index_add_(0, dst, h[src])))
        pooled = torch.zeros(len(batch["target"]), h.shape[1]).index_add_(0, batch["owner"], h)
        return self.read(pooled / CONFIG["nodes"]).squeeze(1)


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg["seed"])
        self.cfg = cfg
        self.data = InteractionGraphs(cfg)
        self.loader = DataLoader(
            self.data, cfg["batch_size"], shuffle=True, num_workers=cfg["workers"],
            collate_fn=collate_graphs, persistent_workers=True, drop_last=True,
        )
        self.model = MessagePassing(cfg["features"], cfg["hidden"])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg["lr"])

    def fit(self):
        seen, start = 0, time.perf_counter()
        for epoch in range(self.cfg["epochs"]):
            total = 0.0
            for batch in self.loader:
                loss = F.mse_loss(self.model(batch), batch["target"])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                seen += len(batch["target"])
            print(f"[{epoch + 1}/{self.cfg['epochs']}] mse {total / len(self.loader):.5f}", flush=True)
        return seen / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.set_num_threads(1)
    rate = Trainer(CONFIG).fit()
    print(f"throughput: {rate:.1f} samples/s")
