"""Rank-prioritised DQN on a batch of hand-written cart poles."""
import random
import time
from collections import namedtuple

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

Transition = namedtuple("Transition", "state action reward following done urgency")
GAMMA, BATCH, POLES, UPDATES = 0.98, 128, 96, 420


class CartPoles:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.state = rng.uniform(-0.05, 0.05, (n, 4))

    def step(self, action):
        x, v, a, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(a), np.cos(a)
        temp = (force + 0.05 * w * w * sin) / 1.1
        w_dot = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        v_dot = temp - 0.05 * w_dot * cos / 1.1
        following = np.stack([x + 0.02 * v, v + 0.02 * v_dot, a + 0.02 * w, w + 0.02 * w_dot], 1)
        done = (np.abs(following[:, 0]) > 2.4) | (np.abs(following[:, 2]) > 0.21)
        self.state = np.where(done[:, None], self.rng.uniform(-0.05, 0.05, (self.n, 4)), following)
        return following.astype(np.float32), np.where(done, 0.0, 1.0), done


class Memory:
    def __init__(self):
        self.items = []

    def add(self, *columns):
        self.items.extend(Transition(*row) for row in zip(*columns))

    def draw(self, size):
        ranked = sorted(range(len(self.items)), key=lambda i: self.items[i].urgency, reverse=True)
        places = np.random.exponential(len(ranked) / 4, size).astype(int) % len(ranked)
        return [self.items[ranked[p]] for p in places]


class Replay(IterableDataset):
    """Plays on in the poles, then hands out one drawn batch; never ends."""

    def __init__(self, net):
        self.net, self.memory = net, Memory()
        self.poles = CartPoles(POLES, np.random.default_rng(8))

    def play(self, epsilon):
        state = self.poles.state.astype(np.float32)
        with torch.no_grad():
            q = self.net(torch.from_numpy(state))
        action = q.argmax(1).numpy()
        explore = np.random.random(POLES) < epsilon
        action[explore] = np.random.randint(0, 2, explore.sum())
        following, reward, done = self.poles.step(action)
        urgency = np.abs(following[:, 2]) + 2.0 * done + 0.1 * np.random.random(POLES)
        self.memory.add(state, action, reward, following, done, urgency)

    def __iter__(self):
        turn = 0
        while True:
            self.play(max(0.05, 1.0 - turn / 150))
            turn += 1
            drawn = self.memory.draw(BATCH)
            yield tuple(np.stack([getattr(t, f) for t in drawn]) for f in ("state", "action", "reward", "following", "done"))


def head():
    return nn.Sequential(nn.Linear(4, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, 2))


random.seed(8), np.random.seed(8), torch.manual_seed(8)
torch.set_num_threads(1)
online, target = head(), head()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)
batches = iter(DataLoader(Replay(online), batch_size=None))

start = time.perf_counter()
for update in range(1, UPDATES + 1):
    state, action, reward, following, done = next(batches)
    with torch.no_grad():
        best = online(following).argmax(1, keepdim=True)
        value = target(following).gather(1, best).squeeze(1)
        goal = reward.float() + GAMMA * value * (~done)
    q = online(state).gather(1, action[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 60 == 0:
        target.load_state_dict(online.state_dict())
        print(f"update {update}: td loss {loss.item():.4f}, mean q {q.mean().item():.2f}")
seconds = time.perf_counter() - start
print(f"throughput: {UPDATES * BATCH / seconds:.1f} samples/s")
