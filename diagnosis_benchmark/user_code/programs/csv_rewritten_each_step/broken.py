"""Remaining-useful-life regression on turbine sensors; every step's figures go to metrics.csv."""
import csv
import pathlib
import tempfile
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CSVLogger:
    def __init__(self, log_dir, name="metrics.csv"):
        self.path = pathlib.Path(log_dir) / name
        self.metrics = []

    def log_metrics(self, metrics, step):
        row = {"step": step}
        row.update((k, float(v)) for k, v in metrics.items())
        self.metrics.append(row)

    def save(self):
        if not self.metrics:
            return
        columns = {}
        for row in self.metrics:
            columns.update(row)
        with open(self.path, "w", newline="") as f:
            writer = csv.DictWriter(f, fieldnames=list(columns))
            writer.writeheader()
            writer.writerows(self.metrics)


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class TurbineModel(nn.Module):
    def __init__(self, sensors=48, width=128, depth=14):
        super().__init__()
        self.stem = nn.Linear(sensors, width)
        self.blocks = nn.Sequential(*[ResidualBlock(width) for _ in range(depth)])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x)))[:, 0]


class Trainer:
    def __init__(self, model, logger, max_steps):
        self.model, self.logger, self.max_steps = model, logger, max_steps
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        self.stamps = deque(maxlen=max_steps // 5 + 1)

    def gradient_norms(self):
        names, params = zip(*self.model.named_parameters())
        norms = torch.stack([p.grad.norm() for p in params]).tolist()
        return {f"grad_norm/{n}": v for n, v in zip(names, norms)}

    def fit(self, loader):
        step = 0
        while step < self.max_steps:
            for x, y in loader:
                pred = self.model(x)
                loss = nn.functional.smooth_l1_loss(pred, y)
                self.optimizer.zero_grad()
                loss.backward()
                norms = self.gradient_norms()
                self.optimizer.step()
                step += 1
                self.logger.log_metrics({"train_loss": loss.item(), "mae": (pred - y).abs().mean().item(), **norms}, step)
                self.logger.save()
                self.stamps.append(time.perf_counter())
                if step % 50 == 0:
                    print(f"step {step}/{self.max_steps} loss {loss.item():.4f}", flush=True)
                if step == self.max_steps:
                    break


if __name__ == "__main__":
    torch.manual_seed(5)
    torch.set_num_threads(1)
    x = torch.randn(8192, 48)
    y = torch.sin(x[:, :8].sum(1)) + 0.1 * torch.randn(8192)
    loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True, drop_last=True)
    with tempfile.TemporaryDirectory() as logs:
        trainer = Trainer(TurbineModel(), CSVLogger(logs), max_steps=240)
        trainer.fit(loader)
    last = trainer.stamps
    print(f"throughput: {256 * (len(last) - 1) / (last[-1] - last[0]):.1f} samples/s")
