import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset

parser = argparse.ArgumentParser(description="discriminator of an imitation learner, trained on recorded demonstrations")
parser.add_argument("--transitions", type=int, default=1_500_000)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--updates", type=int, default=150)
parser.add_argument("--hidden", type=int, default=512)
parser.add_argument("--seed", type=int, default=3)
args = parser.parse_args()

OBS, ACT = 11, 3


class Demonstrations(Dataset):
    """State-action pairs of an expert walker."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.states = rng.standard_normal((count, OBS), dtype=np.float32)
        self.actions = np.tanh(self.states[:, :ACT] * 0.7 + 0.1)

    def __len__(self):
        return len(self.states)

    def __getitems__(self, indices):
        pairs = np.concatenate([self.states[indices], self.actions[indices]], axis=1)
        return torch.from_numpy(pairs)


class DistinctPairs(BatchSampler):
    """Batches of pairs of which none occurs twice in a batch; batches are independent of one another."""

    def __init__(self, count, batch_size, batches, seed):
        self.count, self.batch_size, self.batches = count, batch_size, batches
        self.random = random.Random(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            yield self.random.sample(range(self.count), self.batch_size)


class Discriminator(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS + ACT, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                                  nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, pairs):
        return self.body(pairs)


torch.manual_seed(args.seed)
torch.set_num_threads(1)
demos = Demonstrations(args.transitions, args.seed)
sampler = DistinctPairs(len(demos), args.batch_size, args.updates, args.seed)
loader = DataLoader(demos, batch_sampler=sampler, num_workers=1, collate_fn=lambda pairs: pairs)
policy = nn.Sequential(nn.Linear(OBS, 64), nn.Tanh(), nn.Linear(64, ACT), nn.Tanh())
disc = Discriminator(args.hidden)
opt_disc = torch.optim.Adam(disc.parameters(), lr=3e-4)
opt_policy = torch.optim.Adam(policy.parameters(), lr=3e-4)

began = time.perf_counter()
trained = 0
for update, expert in enumerate(loader):
    states = expert[:, :OBS]
    imitation = torch.cat([states, policy(states)], dim=1)
    real, fake = disc(expert), disc(imitation.detach())
    loss = F.softplus(-real).mean() + F.softplus(fake).mean()
    opt_disc.zero_grad()
    loss.backward()
    opt_disc.step()

    policy_loss = F.softplus(-disc(imitation)).mean()
    opt_policy.zero_grad()
    policy_loss.backward()
    opt_policy.step()
    trained += len(expert)
    if (update + 1) % 40 == 0:
        print(f"[{update + 1}/{args.updates}] D {loss.item():.3f}  G {policy_loss.item():.3f}")
seconds = time.perf_counter() - began
print(f"throughput: {trained / seconds:.1f} samples/s")
