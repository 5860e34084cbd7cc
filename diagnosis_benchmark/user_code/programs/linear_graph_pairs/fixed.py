"""Learn to solve random networks of resistors: nodes closer than REACH are joined, one node is grounded.

Every problem is drawn anew from its own seed, so the network never sees the same one twice.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

REACH = 0.28
MIN_NODES, MAX_NODES = 40, 72
STEPS = 150
BATCH = 16


class Problem:
    """A network: positions, the current fed into each node, edges and the voltages that solve it."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(MIN_NODES, MAX_NODES))
        self.positions = rng.random((n, 2))
        self.currents = rng.normal(size=n)
        self.currents[0] = 0.0
        self.edges, self.conductances = self._connect()
        self.voltages = self._solve()

    def _connect(self):
        i, j = np.triu_indices(len(self.positions), k=1)
        distance = np.sqrt(((self.positions[i] - self.positions[j]) ** 2).sum(axis=1))
        near = (distance < REACH) | (j == i + 1)
        return np.stack([i[near], j[near]], axis=1), 1.0 / (0.05 + distance[near])

    def _solve(self):
        n = len(self.positions)
        laplacian = np.zeros((n, n))
        i, j = self.edges.T
        np.add.at(laplacian, (i, i), self.conductances)
        np.add.at(laplacian, (j, j), self.conductances)
        laplacian[i, j] -= self.conductances
        laplacian[j, i] -= self.conductances
        voltages = np.zeros(n)
        voltages[1:] = np.linalg.solve(laplacian[1:, 1:], self.currents[1:])
        return voltages


class ResistorProblems(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Problem(seed=index)


def batch_problems(problems):
    """One large graph of all problems, nodes renumbered."""
    shift, edges = 0, []
    for problem in problems:
        edges.append(problem.edges + shift)
        shift += len(problem.positions)
    nodes = np.concatenate([np.c_[p.positions, p.currents] for p in problems])
    weights = np.concatenate([p.conductances for p in problems])
    target = np.concatenate([p.voltages for p in problems])
    return {
        "nodes": torch.tensor(nodes, dtype=torch.float32),
        "edges": torch.from_numpy(np.concatenate(edges)),
        "weights": torch.tensor(weights, dtype=torch.float32).unsqueeze(1),
        "target": torch.tensor(target, dtype=torch.float32),
    }


class MessagePassing(nn.Module):
    def __init__(self, width=32, rounds=2):
        super().__init__()
        self.encode = nn.Linear(3, width)
        self.message = nn.ModuleList(nn.Sequential(nn.Linear(2 * width + 1, width), nn.ReLU()) for _ in range(rounds))
        self.decode = nn.Linear(width, 1)

    def forward(self, nodes, edges, weights):
        h = self.encode(nodes).relu()
        both = torch.cat([edges, edges.flip(1)])
        weights = torch.cat([weights, weights])
        for layer in self.message:
            sent = layer(torch.cat([h[both[:, 0]], h[both[:, 1]], weights], dim=1))
            h = h + torch.zeros_like(h).index_add(0, both[:, 1], sent) / 8.0
        return self.decode(h).squeeze(1)


def train():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = DataLoader(ResistorProblems(STEPS * BATCH), batch_size=BATCH, num_workers=1, collate_fn=batch_problems)
    model = MessagePassing()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    started = time.perf_counter()
    for step, batch in enumerate(loader, start=1):
        predicted = model(batch["nodes"], batch["edges"], batch["weights"])
        loss = nn.functional.smooth_l1_loss(predicted, batch["target"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    return STEPS * BATCH / (time.perf_counter() - started)


if __name__ == "__main__":
    print(f"throughput: {train():.1f} samples/s")
