# %% [markdown]
# Homework 4: an agent that catches falling blocks from raw pixels (Q-learning), with a live curve of the TD error.
# %%
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
rng = np.random.default_rng(0)
SIDE, GAMES, STEPS, GAMMA = 24, 96, 400, 0.95


# %%
class CatchGames:
    """Many games side by side; a block falls, the paddle moves left, stays or moves right."""

    def __init__(self, games):
        self.paddle = np.full(games, SIDE // 2)
        self.block = np.stack([rng.integers(0, SIDE, games), rng.integers(0, SIDE - 1, games)], 1)

    def pixels(self):
        frames = np.zeros((len(self.paddle), 1, SIDE, SIDE), np.float32)
        all_games = np.arange(len(self.paddle))
        frames[all_games, 0, self.block[:, 1], self.block[:, 0]] = 1
        for shift in (-1, 0, 1):
            frames[all_games, 0, SIDE - 1, (self.paddle + shift) % SIDE] = 1
        return torch.from_numpy(frames)

    def step(self, actions):
        self.paddle = (self.paddle + actions - 1) % SIDE
        self.block[:, 1] += 1
        landed = self.block[:, 1] >= SIDE - 1
        caught = np.abs(self.block[:, 0] - self.paddle) <= 1
        rewards = np.where(landed, np.where(caught, 1.0, -1.0), 0.0).astype(np.float32)
        self.block[landed] = np.stack([rng.integers(0, SIDE, landed.sum()), np.zeros(landed.sum(), int)], 1)
        return torch.from_numpy(rewards), torch.from_numpy(landed.astype(np.float32))


# %%
def gaussian(length, std):
    x = np.arange(length) - (length - 1) / 2
    kernel = np.exp(-0.5 * (x / std) ** 2)
    return kernel / kernel.sum()


def smoothen(values, window=8000):
    kernel = gaussian(min(window, len(values)), std=window / 4)
    length = len(values)
    size = 1 << (length + len(kernel) - 1).bit_length()
    product = np.fft.irfft(np.fft.rfft(values, size) * np.fft.rfft(kernel, size), size)
    return product[len(kernel) - 1 : length]


def show(path, td_errors, step):
    curve = smoothen(td_errors)
    points = curve[:: max(1, len(curve) // 60)]
    with open(path, "w") as file:
        json.dump({"step": step, "td_error": [round(float(p), 4) for p in points]}, file)


# %%
agent = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.Flatten(), nn.Linear(16 * SIDE * SIDE // 4, 96), nn.ReLU(), nn.Linear(96, 3),
)
optimizer = torch.optim.Adam(agent.parameters(), lr=5e-4)
games = CatchGames(GAMES)
td_history, late = [], None
board = tempfile.mkdtemp(prefix="catch-")

# %%
state = games.pixels()
for step in range(STEPS):
    if step == STEPS - STEPS // 5:
        late = time.perf_counter()
    values = agent(state)
    greedy = values.argmax(1).numpy()
    actions = np.where(rng.random(GAMES) < 0.2, rng.integers(0, 3, GAMES), greedy)
    rewards, done = games.step(actions)
    state = games.pixels()
    with torch.no_grad():
        target = rewards + GAMMA * (1 - done) * agent(state).amax(1)
    td_error = target - values.gather(1, torch.from_numpy(actions)[:, None])[:, 0]
    loss = td_error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    td_history.extend(td_error.detach().abs().tolist())
    show(os.path.join(board, "curve.json"), td_history, step)
    if step % 60 == 0:
        print(f"step {step}  |TD| {np.mean(td_history[-GAMES * 10:]):.4f}")
elapsed = time.perf_counter() - late

# %%
os.remove(os.path.join(board, "curve.json"))
os.rmdir(board)
print(f"throughput: {STEPS // 5 * GAMES / elapsed:.1f} samples/s")
