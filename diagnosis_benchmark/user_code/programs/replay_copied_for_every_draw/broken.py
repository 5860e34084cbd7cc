# Goal-conditioned Q-learning with hindsight relabelling, on rollouts of a toy point environment.
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

args = dict(cycles=40, rollouts_per_cycle=18, updates_per_cycle=9, batch_size=256, horizon=110, obs_dim=512,
            goal_dim=8, actions=4, future_p=0.8, gamma=0.95, lr=1e-3)


class ReplayBuffer:
    def __init__(self, size):
        shape = (size, args["horizon"])
        self.current_size = 0
        self.buffers = {
            "obs": np.empty((size, args["horizon"] + 1, args["obs_dim"]), np.float32),
            "goal": np.empty((*shape, args["goal_dim"]), np.float32),
            "action": np.empty(shape, np.int64),
        }

    def store_episodes(self, episodes):
        n = len(episodes["obs"])
        for key, values in episodes.items():
            self.buffers[key][self.current_size:self.current_size + n] = values
        self.current_size += n

    def sample(self, batch_size):
        temp = {}
        for key in self.buffers:
            temp[key] = self.buffers[key][:self.current_size].copy()
        return sample_her_transitions(temp, batch_size)


def sample_her_transitions(episodes, batch_size):
    count, horizon = episodes["action"].shape
    e = rng.integers(0, count, batch_size)
    t = rng.integers(0, horizon, batch_size)
    obs, next_obs, goal = episodes["obs"][e, t], episodes["obs"][e, t + 1], episodes["goal"][e, t]
    later = t + 1 + (rng.uniform(size=batch_size) * (horizon - t)).astype(int)
    relabel = rng.uniform(size=batch_size) < args["future_p"]
    goal[relabel] = episodes["obs"][e[relabel], later[relabel], :args["goal_dim"]]
    reached = np.linalg.norm(next_obs[:, :args["goal_dim"]] - goal, axis=1) < 1.0
    reward = reached.astype(np.float32) - 1.0
    return [torch.from_numpy(a) for a in (obs, goal, episodes["action"][e, t], next_obs, reward)]


def rollout(n):
    start = rng.standard_normal((n, 1, args["obs_dim"]), dtype=np.float32)
    moves = 0.1 * rng.standard_normal((n, args["horizon"], args["obs_dim"]), dtype=np.float32)
    obs = np.concatenate([start, start + moves.cumsum(1)], 1)
    goal = np.repeat(rng.standard_normal((n, 1, args["goal_dim"]), dtype=np.float32), args["horizon"], 1)
    return {"obs": obs, "goal": goal, "action": rng.integers(0, args["actions"], (n, args["horizon"]))}


class QNet(nn.Module):
    def __init__(self, hidden=320):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(args["obs_dim"] + args["goal_dim"], hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, args["actions"]),
        )

    def forward(self, obs, goal):
        return self.layers(torch.cat([obs, goal], 1))


def update(q, target, optimizer, batch):
    obs, goal, action, next_obs, reward = batch
    with torch.no_grad():
        bootstrap = reward + args["gamma"] * target(next_obs, goal).max(1).values
        bootstrap.clamp_(-1 / (1 - args["gamma"]), 0)
    loss = F.mse_loss(q(obs, goal).gather(1, action[:, None])[:, 0], bootstrap)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


rng = np.random.default_rng(42)
torch.manual_seed(42)
torch.set_num_threads(1)
q, target = QNet(), QNet()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=args["lr"])
buffer = ReplayBuffer(args["cycles"] * args["rollouts_per_cycle"])

stamps = []
for cycle in range(args["cycles"]):
    q.train()
    buffer.store_episodes(rollout(args["rollouts_per_cycle"]))
    for _ in range(args["updates_per_cycle"]):
        loss = update(q, target, optimizer, buffer.sample(args["batch_size"]))
        stamps.append(time.perf_counter())
    with torch.no_grad():
        for p, tp in zip(q.parameters(), target.parameters()):
            tp.lerp_(p, 0.05)
    if cycle % 8 == 7:
        print(f"cycle {cycle + 1}: {buffer.current_size} episodes, loss {loss:.4f}")

last = stamps[-len(stamps) // 5:]
print(f"throughput: {args['batch_size'] * (len(last) - 1) / (last[-1] - last[0]):.1f} samples/s")
