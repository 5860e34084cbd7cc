"""Double DQN on a batch of small grid worlds; every step stores what all of them did and learns once."""
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class GridWorlds:
    """Many 12 x 12 worlds stepped together: walk to the goal."""

    def __init__(self, count, size=12, seed=0):
        self.rng = np.random.default_rng(seed)
        self.count, self.size = count, size
        self.place = self.rng.integers(0, size, (count, 2))
        self.goal = self.rng.integers(0, size, (count, 2))

    def observe(self):
        return np.concatenate([self.place, self.goal], 1).astype(np.float32) / self.size

    def step(self, actions):
        moves = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])[actions]
        self.place = np.clip(self.place + moves, 0, self.size - 1)
        done = (self.place == self.goal).all(1)
        rewards = np.where(done, 1.0, -0.02).astype(np.float32)
        after = self.observe()
        fresh = self.rng.integers(0, self.size, (int(done.sum()), 2))
        self.goal[done] = fresh
        return after, rewards, done


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = []
        self.capacity = capacity
        self.next = 0

    def push(self, transition):
        if len(self.memory) < self.capacity:
            self.memory.append(transition)
        else:
            self.memory[self.next] = transition
        self.next = (self.next + 1) % self.capacity

    def sample(self, count):
        picked = random.sample(range(len(self.memory)), count)
        return [self.memory[i] for i in picked]

    def __len__(self):
        return len(self.memory)


class Agent:
    def __init__(self, actions=4, hidden=192, gamma=0.97):
        self.online = self.build(actions, hidden)
        self.target = self.build(actions, hidden)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.gamma, self.actions = gamma, actions

    @staticmethod
    def build(actions, hidden):
        return nn.Sequential(
            nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
        )

    @torch.no_grad()
    def act(self, states, epsilon, rng):
        greedy = self.online(torch.from_numpy(states)).argmax(1).numpy()
        explore = rng.random(len(states)) < epsilon
        return np.where(explore, rng.integers(0, self.actions, len(states)), greedy)

    def learn(self, batch):
        states, actions, rewards, after, done = (np.array(column) for column in zip(*batch))
        states, after = torch.from_numpy(states), torch.from_numpy(after)
        with torch.no_grad():
            best = self.online(after).argmax(1, keepdim=True)
            future = self.target(after).gather(1, best).squeeze(1)
            wanted = torch.from_numpy(rewards) + self.gamma * future * ~torch.from_numpy(done)
        value = self.online(states).gather(1, torch.from_numpy(actions)[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main(steps=330, batch_size=1024):
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    worlds, agent, memory = GridWorlds(1600), Agent(), ReplayMemory(1_000_000)
    states = worlds.observe()
    for step in range(steps):
        if step == steps - steps // 5:
            late = time.perf_counter()
        actions = agent.act(states, max(0.05, 1 - step / steps), rng)
        after, rewards, done = worlds.step(actions)
        for transition in zip(states, actions, rewards, after, done):
            memory.push(transition)
        states = after
        loss = agent.learn(memory.sample(batch_size))
        if step % 10 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
        if step % 50 == 0:
            print(f"step {step} stored {len(memory)} loss {loss:.4f}")
    seconds = time.perf_counter() - late
    print(f"throughput: {(steps // 5) * batch_size / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
