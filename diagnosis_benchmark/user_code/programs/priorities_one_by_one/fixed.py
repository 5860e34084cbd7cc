# Offline double DQN with prioritised replay on logged grid-controller transitions.
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

CAPACITY = 1 << 16
STEPS = 180
BATCH = 1024
ACTIONS, OBS = 12, 96
ALPHA, GAMMA, EPS = 0.6, 0.99, 1e-5

torch.set_num_threads(1)
torch.manual_seed(1)
rng = np.random.default_rng(1)


class SegmentTree:
    """Binary tree in one array, leaves in its second half."""

    def __init__(self, capacity, combine, neutral):
        self.capacity = capacity
        self.combine = combine
        self.nodes = np.full(2 * capacity, neutral)

    def fill(self, values):
        self.nodes[self.capacity:] = values
        size = self.capacity
        while size > 1:
            level = self.nodes[size:2 * size]
            self.nodes[size // 2:size] = self.combine(level[0::2], level[1::2])
            size //= 2

    def set(self, leaves, values):
        nodes = leaves + self.capacity
        self.nodes[nodes] = values
        nodes = nodes // 2
        while nodes[0] >= 1:
            self.nodes[nodes] = self.combine(self.nodes[2 * nodes], self.nodes[2 * nodes + 1])
            nodes = nodes // 2

    @property
    def leaves(self):
        return self.nodes[self.capacity:]


class PrioritizedMemory(Dataset):
    def __init__(self):
        self.obs = torch.from_numpy(rng.normal(size=(CAPACITY, OBS)).astype(np.float32))
        self.next_obs = self.obs + 0.1 * torch.randn(CAPACITY, OBS)
        self.action = torch.randint(0, ACTIONS, (CAPACITY,))
        self.reward = self.obs[:, :4].sum(1) * (self.action == 3)
        self.done = (torch.rand(CAPACITY) < 0.02).float()
        self.sums = SegmentTree(CAPACITY, np.add, 0.0)
        self.mins = SegmentTree(CAPACITY, np.minimum, np.inf)
        self.sums.fill(np.ones(CAPACITY))
        self.mins.fill(np.ones(CAPACITY))

    def __len__(self):
        return CAPACITY

    def __getitems__(self, indices):
        picked = torch.as_tensor(indices)
        p = torch.from_numpy(self.sums.leaves[picked.numpy()]) / self.sums.nodes[1]
        weights = (p / (self.mins.nodes[1] / self.sums.nodes[1])) ** -0.4
        return (picked, self.obs[picked], self.action[picked], self.reward[picked],
                self.next_obs[picked], self.done[picked], weights.float())

    def update_priorities(self, indices, errors):
        indices, last = np.unique(indices.numpy(), return_index=True)
        priorities = (errors.double().abs().numpy()[last] + EPS) ** ALPHA
        self.sums.set(indices, priorities)
        self.mins.set(indices, priorities)


class ProportionalSampler(Sampler):
    def __init__(self, memory):
        self.memory = memory

    def __iter__(self):
        for _ in range(STEPS):
            edges = np.cumsum(self.memory.sums.leaves)
            strata = (np.arange(BATCH) + rng.random(BATCH)) / BATCH * edges[-1]
            yield np.minimum(np.searchsorted(edges, strata), CAPACITY - 1)


def q_network():
    return torch.nn.Sequential(torch.nn.Linear(OBS, 384), torch.nn.ReLU(), 
                               torch.nn.Linear(384, 384), torch.nn.ReLU(), torch.nn.Linear(384, ACTIONS))


memory = PrioritizedMemory()
# priorities change with every step, so batches cannot be drawn ahead by workers
loader = DataLoader(memory, batch_sampler=ProportionalSampler(memory), collate_fn=lambda batch: batch)
online, target = q_network(), q_network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)

start = time.perf_counter()
for step, (indices, obs, action, reward, next_obs, done, weights) in enumerate(loader):
    with torch.no_grad():
        best = online(next_obs).argmax(1, keepdim=True)
        wanted = reward + GAMMA * (1 - done) * target(next_obs).gather(1, best).squeeze(1)
    value = online(obs).gather(1, action[:, None]).squeeze(1)
    error = wanted - value
    loss = (weights * F.smooth_l1_loss(value, wanted, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(online.parameters(), 10.0)
    optimizer.step()
    memory.update_priorities(indices, error.detach())
    if step % 50 == 0:
        target.load_state_dict(online.state_dict())
        print(f"step {step:4d}  loss {loss.item():.4f}  total priority {memory.sums.nodes[1]:.1f}")
seconds = time.perf_counter() - start
print(f"throughput: {STEPS * BATCH / seconds:.1f} samples/s")
