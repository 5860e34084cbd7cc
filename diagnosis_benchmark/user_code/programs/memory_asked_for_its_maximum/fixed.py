"""Off-policy value learning in a batch of simulated carts, with experiences drawn by their priority."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

CARTS, OBS = 64, 4
MOVES_PER_UPDATE, UPDATES, BATCH = 2, 240, 256


class Carts:
    def __init__(self, count, rng):
        self.rng = rng
        self.state = rng.normal(0, 0.1, (count, OBS)).astype(np.float32)

    def step(self, actions):
        push, s = (actions - 1).astype(np.float32), self.state.copy()
        s[:, 1] += 0.05 * push + self.rng.normal(0, 0.01, len(s)).astype(np.float32)
        s[:, 0] += 0.1 * s[:, 1]
        s[:, 3] += 0.08 * np.sin(s[:, 2]) - 0.04 * push
        s[:, 2] += 0.1 * s[:, 3]
        reward = 1.0 - np.abs(s[:, 0]) - np.abs(s[:, 2])
        done = (np.abs(s[:, 0]) > 1.5) | (np.abs(s[:, 2]) > 0.6)
        before, after = self.state, s.copy()
        s[done] = self.rng.normal(0, 0.1, (int(done.sum()), OBS))
        self.state = s
        return before, reward.astype(np.float32), after, done


class PriorityMemory:
    def __init__(self, capacity, rng):
        self.capacity, self.rng = capacity, rng
        self.columns = {
            "obs": np.zeros((capacity, OBS), np.float32), "next_obs": np.zeros((capacity, OBS), np.float32),
            "action": np.zeros(capacity, np.int64), "reward": np.zeros(capacity, np.float32),
            "done": np.zeros(capacity, np.float32)}
        self.priorities, self.head = [], 0
        self.highest = 1.0

    def add(self, **experience):
        priority = self.highest
        for name, value in experience.items():
            self.columns[name][self.head] = value
        self.priorities[self.head:self.head + 1] = [priority]
        self.head = (self.head + 1) % self.capacity

    def sample(self, count):
        candidates = self.rng.integers(0, len(self.priorities), 4 * count)
        weight = np.array([self.priorities[i] for i in candidates])
        rows = self.rng.choice(candidates, count, p=weight / weight.sum())
        return rows, {name: column[rows] for name, column in self.columns.items()}

    def update(self, rows, errors):
        for row, error in zip(rows.tolist(), errors.tolist()):
            self.priorities[row] = abs(error) + 0.01
        self.highest = max(self.highest, float(np.abs(errors).max()) + 0.01)


class Experiences(IterableDataset):
    def __init__(self, carts, memory, act):
        self.carts, self.memory, self.act = carts, memory, act

    def play(self):
        actions = self.act(self.carts.state)
        before, reward, after, done = self.carts.step(actions)
        for i in range(len(actions)):
            self.memory.add(obs=before[i], action=actions[i], reward=reward[i], next_obs=after[i], done=done[i])

    def __iter__(self):
        for _ in range(UPDATES):
            for _ in range(MOVES_PER_UPDATE):
                self.play()
            yield self.memory.sample(BATCH)


class Agent:
    def __init__(self, rng, hidden=448):
        self.rng = rng
        self.net, self.target = (nn.Sequential(nn.Linear(OBS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                               nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))
                                 for _ in range(2))
        self.target.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-4)

    def act(self, obs, epsilon=0.1):
        with torch.no_grad():
            best = self.net(torch.from_numpy(obs)).argmax(1).numpy()
        explore = self.rng.random(len(best)) < epsilon
        return np.where(explore, self.rng.integers(0, 3, len(best)), best)

    def learn(self, batch):
        with torch.no_grad():
            future = self.target(batch["next_obs"]).max(1).values
            goal = batch["reward"] + 0.97 * (1 - batch["done"]) * future
        value = self.net(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), (goal - value).detach().numpy()


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rng = np.random.default_rng(2)
    agent, memory = Agent(rng), PriorityMemory(100_000, rng)
    loader = DataLoader(Experiences(Carts(CARTS, rng), memory, agent.act), batch_size=None)
    stamps = [time.perf_counter()]
    for update, (rows, batch) in enumerate(loader, 1):
        loss, errors = agent.learn(batch)
        memory.update(rows, errors)
        if update % 60 == 0:
            agent.target.load_state_dict(agent.net.state_dict())
            print(f"update {update}: loss {loss:.4f}, {len(memory.priorities)} experiences")
        stamps.append(time.perf_counter())
    print(f"throughput: {UPDATES // 5 * BATCH / (stamps[-1] - stamps[-1 - UPDATES // 5]):.1f} samples/s")


main()
