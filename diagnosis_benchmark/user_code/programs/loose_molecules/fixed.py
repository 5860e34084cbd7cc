"""Boiling points of made-up molecules with a small message-passing net."""
import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS = "CNOSFH"
parser = argparse.ArgumentParser()
parser.add_argument("--molecules", type=int, default=1200)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=24)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--width", type=int, default=192)


class Molecules(Dataset):
    def __init__(self, count):
        self.dice = random.Random(1896)
        self.graphs = [self.grow(self.dice.randint(9, 24)) for _ in range(count)]

    def grow(self, size):
        atoms = [self.dice.randrange(len(ELEMENTS)) for _ in range(size)]
        bonds = [(i, self.dice.randrange(i)) for i in range(1, size)]
        return atoms, bonds, [self.dice.gauss(0, 0.2) for _ in atoms]

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, n):
        atoms, bonds, charge = self.graphs[n]
        ends = torch.tensor(bonds).T
        return {
            "name": f"mol-{n:05d}",
            "formula": {e: atoms.count(k) for k, e in enumerate(ELEMENTS)},
            "atoms": torch.tensor(atoms),
            "bonds": torch.cat([ends, ends.flip(0)], 1),
            "charge": torch.tensor(charge),
            "degree": torch.bincount(ends.flatten(), minlength=len(atoms)),
            "target": torch.tensor(len(atoms) / 10 + sum(charge)),
        }


class Messages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.start = nn.Embedding(len(ELEMENTS), width)
        self.say = nn.ModuleList(nn.Linear(2 * width + 1, width) for _ in range(6))
        self.end = nn.Linear(width, 1)

    def forward(self, atoms, bonds, charge, degree, owner, count):
        state = self.start(atoms)
        for layer in self.say:
            heard = torch.zeros_like(state).index_add(0, bonds[1], state[bonds[0]])
            heard = heard / degree.clamp(min=1).unsqueeze(1)
            state = state + torch.tanh(layer(torch.cat([state, heard, charge.unsqueeze(1)], 1)))
        pooled = torch.zeros(count, state.shape[1]).index_add(0, owner, state)
        return self.end(pooled).squeeze(1)


def merge(molecules):
    sizes = torch.tensor([len(m["atoms"]) for m in molecules])
    shift = torch.cumsum(sizes, 0) - sizes
    bonds = torch.cat([m["bonds"] + s for m, s in zip(molecules, shift)], 1)
    loose = [torch.cat([m[key] for m in molecules]) for key in ("atoms", "charge", "degree")]
    owner = torch.repeat_interleave(torch.arange(len(molecules)), sizes)
    return (loose[0], bonds, loose[1], loose[2], owner), torch.stack([m["target"] for m in molecules])


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(2)
    loader = DataLoader(
        Molecules(args.molecules),
        batch_size=args.batch,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=list,
        persistent_workers=args.workers > 0,
    )
    net = Messages(args.width)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    largest, since, steps = "", None, 0
    for epoch in range(args.epochs):
        for molecules in loader:
            graph, target = merge(molecules)
            loss = nn.functional.mse_loss(net(*graph, len(molecules)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            largest = max(molecules, key=lambda m: m["formula"]["C"])["name"]
            steps += 1
            if steps == 5:
                since = time.perf_counter()
    took = time.perf_counter() - since
    print(f"{steps} steps, loss {loss.item():.4f}, most carbon of late in {largest}")
    print(f"throughput: {(steps - 5) * args.batch / took:.1f} samples/s")


main(parser.parse_args())
