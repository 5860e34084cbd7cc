"""Value-function learner: environments feed a replay buffer while the learner draws batches from it."""
import queue
import threading
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

OBS, HORIZON, BATCH, STEPS = 64, 128, 256, 100


class Environment(threading.Thread):
    """Stands for a simulator: a trajectory every 150 ms."""

    def __init__(self, seed, out):
        super().__init__(daemon=True)
        self.rng = np.random.default_rng(seed)
        self.out = out

    def run(self):
        while True:
            time.sleep(0.15)
            obs = self.rng.standard_normal((HORIZON, OBS), dtype=np.float32)
            self.out.put((obs, np.tanh(obs[:, :4].sum(1))))


class ReplayBuffer(IterableDataset):
    def __init__(self, capacity=20_000):
        rng = np.random.default_rng(0)
        self.obs = rng.standard_normal((capacity, OBS), dtype=np.float32)
        self.ret = np.tanh(self.obs[:, :4].sum(1))
        self.cursor = 0
        self.rng = rng

    def extend(self, obs, ret):
        rows = (self.cursor + np.arange(len(obs))) % len(self.obs)
        self.obs[rows], self.ret[rows] = obs, ret
        self.cursor = (self.cursor + len(obs)) % len(self.obs)

    def __iter__(self):
        while True:
            rows = self.rng.integers(0, len(self.obs), BATCH)
            yield torch.from_numpy(self.obs[rows]), torch.from_numpy(self.ret[rows])


class AgentManager:
    """Takes finished trajectories out of every environment's queue and stores them."""

    def __init__(self, replay, environments):
        self.replay = replay
        self.queues = [queue.Queue() for _ in range(environments)]
        self.environments = [Environment(seed, q) for seed, q in enumerate(self.queues)]
        self.thread = threading.Thread(target=self.advance, name="agent-manager", daemon=True)
        self.running = True
        self.received = 0

    def start(self):
        for environment in self.environments:
            environment.start()
        self.thread.start()

    def stop(self):
        self.running = False
        self.thread.join()

    def advance(self):
        while self.running:
            for trajectories in self.queues:
                try:
                    obs, ret = trajectories.get_nowait()
                except queue.Empty:
                    continue
                self.replay.extend(obs, ret)
                self.received += 1


class Learner:
    def __init__(self, hidden=1024):
        self.net = nn.Sequential(nn.Linear(OBS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                 nn.Linear(hidden, 1), nn.Flatten(0))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02, momentum=0.9, fused=True)

    def update(self, obs, ret):
        loss = nn.functional.mse_loss(self.net(obs), ret)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    replay = ReplayBuffer()
    learner = Learner()
    manager = AgentManager(replay, environments=2)
    manager.start()
    start = time.perf_counter()
    for update, (obs, ret) in enumerate(DataLoader(replay, batch_size=None), 1):
        loss = learner.update(obs, ret)
        if update % 20 == 0:
            print(f"update {update:4d} value loss {loss.item():.4f} trajectories {manager.received}", flush=True)
        if update == STEPS:
            break
    elapsed = time.perf_counter() - start
    manager.stop()
    print(f"throughput: {STEPS * BATCH / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
