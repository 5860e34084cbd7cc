import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Settings:
    agents: int = 64
    horizon: int = 24
    iterations: int = 14
    passes: int = 2
    minibatch: int = 256
    hidden: int = 512
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 3e-4
    seed: int = 15


class Gridworld:
    """An agent looks for food in a square; it sees the 7 x 7 cells around it."""

    MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])

    def __init__(self, rng, size=24):
        self.rng, self.size = rng, size
        self.reset()

    def reset(self):
        self.field = (self.rng.random((self.size + 6, self.size + 6)) < 0.08).astype(np.float32)
        self.place = self.rng.integers(3, self.size + 3, 2)
        self.left = 60

    def observe(self):
        r, c = self.place
        return self.field[r - 3:r + 4, c - 3:c + 4].ravel()

    def step(self, move):
        self.place = np.clip(self.place + self.MOVES[move], 3, self.size + 2)
        reward = float(self.field[tuple(self.place)])
        self.field[tuple(self.place)] = 0.0
        self.left -= 1
        done = self.left == 0
        if done:
            self.reset()
        return reward, done


def mlp(outputs, hidden):
    return nn.Sequential(nn.Linear(49, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(),
                         nn.Linear(hidden, outputs))


@torch.no_grad()
def rollout(worlds, policy, critic, s):
    shape = (s.horizon, len(worlds))
    seen = torch.zeros(*shape, 49)
    moves = torch.zeros(shape, dtype=torch.long)
    logp, values, rewards, going = (torch.zeros(shape) for _ in range(4))
    for t in range(s.horizon):
        for a, world in enumerate(worlds):
            seen[t, a] = torch.from_numpy(world.observe())
            choice = Categorical(logits=policy(seen[t, a]))
            moves[t, a] = choice.sample()
            logp[t, a] = choice.log_prob(moves[t, a])
            values[t, a] = critic(seen[t, a]).squeeze()
        for a, world in enumerate(worlds):
            rewards[t, a], done = world.step(int(moves[t, a]))
            going[t, a] = 1.0 - done
    last = critic(torch.from_numpy(np.stack([w.observe() for w in worlds]))).squeeze(1)
    gains, gain = torch.zeros(shape), torch.zeros(len(worlds))
    for t in reversed(range(s.horizon)):
        following = last if t == s.horizon - 1 else values[t + 1]
        delta = rewards[t] + s.gamma * following * going[t] - values[t]
        gain = delta + s.gamma * s.lam * going[t] * gain
        gains[t] = gain
    flat = [x.flatten(0, 1) for x in (seen, moves, logp, gains, gains + values)]
    return TensorDataset(*flat), rewards.sum().item()


def improve(experience, policy, critic, optimizer, s):
    for seen, moves, old, gains, returns in DataLoader(experience, s.minibatch, shuffle=True):
        now = Categorical(logits=policy(seen))
        ratio = (now.log_prob(moves) - old).exp()
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        objective = torch.min(ratio * gains, ratio.clamp(1 - s.clip, 1 + s.clip) * gains).mean()
        error = (critic(seen).squeeze(1) - returns).pow(2).mean()
        loss = 0.5 * error - objective - 0.01 * now.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(s=Settings()):
    torch.set_num_threads(1)
    torch.manual_seed(s.seed)
    worlds = [Gridworld(np.random.default_rng(s.seed + a)) for a in range(s.agents)]
    policy, critic = mlp(4, s.hidden), mlp(1, s.hidden)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=s.lr)
    begin = time.perf_counter()
    for iteration in range(s.iterations):
        experience, reward = rollout(worlds, policy, critic, s)
        for _ in range(s.passes):
            improve(experience, policy, critic, optimizer, s)
        print(f"iteration {iteration:2d} food per agent {reward / s.agents:.2f}", flush=True)
    took = time.perf_counter() - begin
    print(f"throughput: {s.iterations * s.horizon * s.agents / took:.1f} samples/s")


if __name__ == "__main__":
    main()
