"""Tell ring systems apart: a graph transformer with distance biases."""
import random
import time

import networkx as nx
import torch
from torch import nn
from torch.utils.data import DataLoader

NODES, FAR = 30, 8


class Molecules:
    def __init__(self, count, seed):
        chance = random.Random(seed)
        self.items = []
        for number in range(count):
            rings = number % 3
            graph = nx.random_labeled_tree(NODES, seed=chance.randrange(10 ** 6))
            for _ in range(rings * 3):
                a, b = chance.sample(range(NODES), 2)
                graph.add_edge(a, b)
            kinds = torch.tensor([chance.randrange(6) for _ in range(NODES)])
            self.items.append({"number": number, "graph": graph, "kinds": kinds, "rings": rings})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Collate:
    def __init__(self, items):
        self.known = {item["number"]: self.distances(item) for item in items}

    def distances(self, item):
        hops = nx.floyd_warshall(item["graph"])
        table = [[hops[a][b] for b in range(NODES)] for a in range(NODES)]
        return torch.tensor(table).clamp(max=FAR).long()

    def __call__(self, items):
        return {
            "kinds": torch.stack([item["kinds"] for item in items]),
            "hops": torch.stack([self.known[item["number"]] for item in items]),
            "degree": torch.tensor([[item["graph"].degree(n) for n in range(NODES)] for item in items]),
            "rings": torch.tensor([item["rings"] for item in items]),
        }


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.bias = nn.Embedding(FAR + 1, heads)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, hops):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / 4 + self.bias(hops).permute(0, 3, 1, 2)).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(b, n, w))


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.kinds, self.degree = nn.Embedding(6, width), nn.Embedding(NODES, width)
        self.layers = nn.ModuleList(Layer(width, 4) for _ in range(2))
        self.head = nn.Linear(width, 3)

    def forward(self, batch):
        x = self.kinds(batch["kinds"]) + self.degree(batch["degree"])
        for layer in self.layers:
            x = layer(x, batch["hops"])
        return self.head(x.mean(1))


def train(epochs=32, batch=24):
    torch.manual_seed(50)
    torch.set_num_threads(1)
    molecules = Molecules(312, 50)
    loader = DataLoader(molecules, batch, shuffle=True, collate_fn=Collate(molecules.items),
                        num_workers=2, persistent_workers=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    steps = 0
    for epoch in range(epochs):
        for data in loader:
            loss = nn.functional.cross_entropy(model(data), data["rings"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            if steps == 5:
                start = time.perf_counter()
        print("epoch", epoch, "loss", round(loss.item(), 3), flush=True)
    return (steps - 5) * batch / (time.perf_counter() - start)


print(f"throughput: {train():.1f} samples/s")
