"""Spike sorting: classify the waveform around each detected spike.

The recordings stay with the acquisition box; a small gateway process hands out
one snippet per request over a pipe.
"""
import argparse
import multiprocessing as mp
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS, SAMPLES, UNITS = 8, 90, 7


def gateway(line, count, delay):
    rng = np.random.default_rng(77)
    shapes = rng.normal(0, 1, (UNITS, CHANNELS, SAMPLES)).astype(np.float32)
    shapes = np.cumsum(shapes, axis=2) / 6
    owner = rng.integers(0, UNITS, count)
    noise = rng.normal(0, 1, (64, CHANNELS, SAMPLES)).astype(np.float32)
    while True:
        spike = line.recv()
        if spike is None:
            return
        time.sleep(delay)
        unit = int(owner[spike])
        line.send(((shapes[unit] + noise[spike % 64]).tobytes(), unit))


class Spikes(Dataset):
    def __init__(self, line, count):
        self.line = line
        self.turn = mp.Lock()
        self.count = count

    def __len__(self):
        return self.count

    def ask(self, spike):
        with self.turn:
            self.line.send(spike)
            return self.line.recv()

    def __getitem__(self, spike):
        body, unit = self.ask(spike)
        wave = np.frombuffer(body, np.float32).reshape(CHANNELS, SAMPLES)
        wave = wave - np.median(wave, axis=1, keepdims=True)
        return torch.from_numpy(wave), unit


def build():
    return nn.Sequential(
        nn.Conv1d(CHANNELS, 48, 7), nn.GELU(),
        nn.Conv1d(48, 48, 7, stride=2), nn.GELU(),
        nn.AdaptiveAvgPool1d(6), nn.Flatten(),
        nn.Linear(288, UNITS),
    )


def run(options):
    near, far = mp.Pipe()
    box = mp.Process(target=gateway, args=(far, options.spikes, options.delay), daemon=True)
    box.start()
    loader = DataLoader(
        Spikes(near, options.spikes),
        batch_size=options.batch,
        shuffle=True,
        num_workers=6,
        drop_last=True,
    )
    model = build()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)
    clock, steps, mean = None, 0, 0.0
    for wave, unit in loader:
        loss = nn.functional.cross_entropy(model(wave), unit)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        mean += 0.05 * (loss.item() - mean)
        steps += 1
        if steps == 5:
            clock = time.perf_counter()
    spent = time.perf_counter() - clock
    near.send(None)
    box.join()
    print(f"{steps} steps, running loss {mean:.3f}")
    return (steps - 5) * options.batch / spent


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--spikes", type=int, default=2600)
    cli.add_argument("--batch", type=int, default=10)
    cli.add_argument("--delay", type=float, default=0.0035)
    torch.set_num_threads(1)
    torch.manual_seed(9)
    rate = run(cli.parse_args())
    print(f"throughput: {rate:.1f} samples/s")
