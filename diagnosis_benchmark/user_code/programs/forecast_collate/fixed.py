"""Electricity demand, a day ahead: windows of many series, batched for a small recurrent forecaster."""
import time
import warnings

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", category=UserWarning)

CONTEXT, HORIZON, COVARIATES = 336, 24, 14


class SeriesWindows(Dataset):
    def __init__(self, n_series=24, length=2200, windows=3200, seed=0):
        rng = np.random.default_rng(seed)
        hours = np.arange(length)
        daily = np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6, (n_series, 1)))
        weekly = np.sin(2 * np.pi * hours / 168 + rng.uniform(0, 6, (n_series, 1)))
        self.target = (daily + 0.5 * weekly + 0.2 * rng.normal(size=daily.shape)).astype(np.float32)
        self.time_feat = np.stack(
            [f(2 * np.pi * hours / p) for p in (6, 12, 24, 56, 84, 168, 2190) for f in (np.sin, np.cos)], axis=1
        ).astype(np.float32)
        self.where = np.stack(
            [rng.integers(0, n_series, windows), rng.integers(0, length - CONTEXT - HORIZON, windows)], axis=1
        )

    def __len__(self):
        return len(self.where)

    def __getitem__(self, idx):
        series, begin = self.where[idx]
        now = begin + CONTEXT
        return {
            "past_target": self.target[series, begin:now],
            "past_time_feat": self.time_feat[begin:now],
            "future_time_feat": self.time_feat[now : now + HORIZON],
            "future_target": self.target[series, now : now + HORIZON],
        }


def batchify(samples):
    return {key: stack([sample[key] for sample in samples]) for key in samples[0]}


def stack(data):
    if isinstance(data[0], np.ndarray):
        return torch.from_numpy(np.asarray(data))
    return torch.utils.data.default_collate(data)


class Forecaster(nn.Module):
    def __init__(self, hidden=32, day=24):
        super().__init__()
        self.day = day
        self.rnn = nn.GRU(day * (1 + COVARIATES), hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden + HORIZON * COVARIATES, 64), nn.ReLU(), nn.Linear(64, HORIZON))

    def forward(self, past_target, past_time_feat, future_time_feat):
        x = torch.cat([past_target.unsqueeze(-1), past_time_feat], dim=-1)
        _, state = self.rnn(x.reshape(len(x), CONTEXT // self.day, -1))
        return self.head(torch.cat([state[-1], future_time_feat.flatten(1)], dim=1))


def run(max_epochs=7, batch_size=64, num_workers=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(
        SeriesWindows(), batch_size, shuffle=True, num_workers=num_workers, collate_fn=batchify, persistent_workers=True
    )
    model = Forecaster()
    adam = optim.Adam(model.parameters(), lr=1e-3)
    n, tic = 0, time.perf_counter()
    for epoch in range(max_epochs):
        avg = []
        for batch in loader:
            future = batch.pop("future_target")
            loss = (model(**batch) - future).abs().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            avg.append(loss.item())
            n += len(future)
        print("Epoch", epoch, "avg_epoch_loss=%.4f" % np.mean(avg))
    return n / (time.perf_counter() - tic)


if __name__ == "__main__":
    speed = run()
    print("throughput: %.1f samples/s" % speed)
