# Merging of repeated diffraction intensities with a small variational model.
# usage: train.py [--steps N] [--batch-size N]
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--reflections", type=int, default=5000)
parser.add_argument("--observations", type=int, default=120000)
parser.add_argument("--batch-size", type=int, default=4000)
parser.add_argument("--steps", type=int, default=320)
parser.add_argument("--validation-frequency", type=int, default=10)
parser.add_argument("--seed", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(args.seed)
torch.set_num_threads(1)


def simulate():
    g = torch.Generator().manual_seed(args.seed)
    truth = torch.rand(args.reflections, generator=g).log().neg()
    which = torch.randint(args.reflections, (args.observations,), generator=g)
    meta = torch.randn(args.observations, 8, generator=g)
    scale = (0.3 * meta[:, :2].sum(1)).exp()
    sigma = 0.1 + 0.1 * torch.rand(args.observations, generator=g)
    intensity = scale * truth[which] + sigma * torch.randn(args.observations, generator=g)
    return TensorDataset(which, meta, intensity, sigma)


class Merger(nn.Module):
    def __init__(self, reflections, width=96):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(reflections))
        self.spread = nn.Parameter(torch.full((reflections,), -2.0))
        self.scale = nn.Sequential(
            nn.Linear(8, width), nn.LeakyReLU(), nn.Linear(width, width), nn.LeakyReLU(),
            nn.Linear(width, width), nn.LeakyReLU(), nn.Linear(width, 1),
        )

    def forward(self, which, meta):
        noise = torch.randn_like(self.loc)
        structure = (self.loc + self.spread.exp() * noise).exp()
        return structure[which] * self.scale(meta).squeeze(-1).exp()

    def divergence(self):
        return (0.5 * (self.loc**2 + (2 * self.spread).exp()) - self.spread).mean()


def negative_log_likelihood(predicted, intensity, sigma):
    return (0.5 * ((predicted - intensity) / sigma.clamp(min=0.5)) ** 2).mean()


def spearman(a, b):
    ranks = [np.argsort(np.argsort(values)).astype(np.float64) for values in (a, b)]
    return np.corrcoef(*ranks)[0, 1]


@torch.no_grad()
def validate(model, held_out, chunk=2000):
    model.eval()
    which, meta, intensity, sigma = held_out[:]
    predicted = torch.cat([model(w, m) for w, m in zip(which.split(chunk), meta.split(chunk))])
    nll = negative_log_likelihood(predicted, intensity, sigma).item()
    order = which.argsort()
    halves = order[::2], order[1::2]
    correlation = [spearman(predicted[half].numpy(), intensity[half].numpy()) for half in halves]
    model.train()
    return {"nll_val": nll, "cc_val": float(np.mean(correlation))}


train_set, test_set = random_split(simulate(), [0.7, 0.3], generator=torch.Generator().manual_seed(0))
train_set = TensorDataset(*train_set[:])
test_set = TensorDataset(*test_set[:])
batches = BatchSampler(RandomSampler(train_set), args.batch_size, drop_last=True)
loader = DataLoader(train_set, sampler=batches, batch_size=None)
model = Merger(args.reflections)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
history = []

step, begin = 0, time.perf_counter()
while step < args.steps:
    for which, meta, intensity, sigma in loader:
        predicted = model(which, meta)
        loss = negative_log_likelihood(predicted, intensity, sigma) + 0.1 * model.divergence()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        row = {"step": step, "loss": loss.item()}
        if step % args.validation_frequency == 0:
            row.update(validate(model, test_set))
        history.append(row)
        if step % 50 == 0:
            print(" ".join(f"{key}={value:.4g}" for key, value in row.items()))
        step += 1
        if step == args.steps:
            break
seconds = time.perf_counter() - begin
print(f"throughput: {args.steps * args.batch_size / seconds:.1f} samples/s")
