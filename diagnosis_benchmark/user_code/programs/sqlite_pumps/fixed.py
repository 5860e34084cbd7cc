"""Predict pump failures from telemetry that lies in a database."""
import pathlib
import sqlite3
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PUMPS = 400
HOURS = 240


def write_database(path):
    rng = np.random.default_rng(77)
    pump = np.tile(np.arange(PUMPS), HOURS)
    hour = np.repeat(np.arange(HOURS), PUMPS)
    values = rng.normal(size=(PUMPS * HOURS, 3)).cumsum(0) % 7.0
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE telemetry (pump INTEGER, hour INTEGER, flow REAL, heat REAL, noise REAL)")
        db.executemany("INSERT INTO telemetry VALUES (?, ?, ?, ?, ?)",
                       zip(pump.tolist(), hour.tolist(), *values.T.tolist()))
        db.execute("CREATE INDEX by_pump ON telemetry (pump, hour)")
    db.close()


class Telemetry(Dataset):
    QUERY = "SELECT flow, heat, noise FROM telemetry WHERE pump = ? AND hour >= ? AND hour < ? ORDER BY hour"

    def __init__(self, path, window=64, draws=3600):
        self.path, self.window, self.draws = path, window, draws
        self.db = None

    def __len__(self):
        return self.draws

    def __getitem__(self, i):
        if self.db is None:
            self.db = sqlite3.connect(self.path)
        pump = i % PUMPS
        start = (i * 31) % (HOURS - self.window)
        rows = self.db.execute(self.QUERY, (pump, start, start + self.window)).fetchall()
        window = torch.tensor(rows, dtype=torch.float32)
        window = (window - window.mean(0)) / (window.std(0) + 1e-3)
        return window.T, float(pump % 3 == 0)


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.Sequential(
            nn.Conv1d(3, 64, 7, padding=3), nn.ReLU(),
            nn.Conv1d(64, 160, 7, padding=3), nn.ReLU(),
            nn.Conv1d(160, 160, 5, padding=2), nn.ReLU(),
            nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(160, 1))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=3e-4)
        self.loss = nn.BCEWithLogitsLoss()
        self.seen = 0
        self.steps = 0
        self.clock = None

    def step(self, window, failed):
        self.optimizer.zero_grad()
        loss = self.loss(self.model(window).squeeze(1), failed.float())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self):
        for window, failed in self.loader:
            value = self.step(window, failed)
            self.steps += 1
            if self.clock is not None:
                self.seen += len(window)
            if self.steps == 5:
                self.clock = time.perf_counter()
            if self.steps % 40 == 0:
                print(self.steps, round(value, 4))
        return self.seen / (time.perf_counter() - self.clock)


torch.manual_seed(77)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory(prefix="pumps-") as folder:
    path = pathlib.Path(folder) / "telemetry.db"
    write_database(path)
    loader = DataLoader(Telemetry(path), batch_size=24, shuffle=True, num_workers=1)
    rate = Trainer(loader).fit()
print(f"throughput: {rate:.1f} samples/s")
