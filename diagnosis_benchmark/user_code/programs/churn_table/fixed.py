"""Churn prediction from monthly CSV exports."""
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

PLANS = ["basic", "family", "business", "prepaid", "student"]
REGIONS = [f"region_{i:02d}" for i in range(24)]
NUMERIC = ["minutes", "calls", "data_gb", "bill", "tenure"]


@dataclass
class Settings:
    months: int = 12
    rows: int = 5120
    chunk: int = 256
    hidden: int = 640
    lr: float = 1e-3


def export_months(folder, s):
    rng = np.random.default_rng(21)
    for month in range(s.months):
        table = pd.DataFrame(rng.gamma(2.0, 10.0, (s.rows, len(NUMERIC))).round(2), columns=NUMERIC)
        table["plan"] = rng.choice(PLANS, s.rows)
        table["region"] = rng.choice(REGIONS, s.rows)
        table["since"] = pd.Series(rng.integers(2005, 2024, s.rows)).astype(str) + "-0" + pd.Series(rng.integers(1, 10, s.rows)).astype(str)
        table["churned"] = (table.bill / (table.tenure + 1) > rng.gamma(2.0, 1.0, s.rows)).astype(int)
        table.to_csv(folder / f"month_{month:02d}.csv", index=False)


class Exports(IterableDataset):
    def __init__(self, folder, chunk):
        self.paths = sorted(folder.glob("month_*.csv"))
        self.chunk = chunk

    def __iter__(self):
        for path in self.paths:
            for frame in pd.read_csv(path, chunksize=self.chunk):
                yield encode(frame)


def encode(frame):
    numbers = np.log1p(frame[NUMERIC])
    by_plan = frame.groupby("plan")["bill"].transform("median")
    local = frame.groupby("region")["data_gb"].transform(lambda g: (g - g.mean()) / (g.std() + 1e-6)).fillna(0.0)
    since = pd.to_datetime(frame["since"], format="%Y-%m")
    extra = pd.DataFrame({
        "relative": frame["bill"] / by_plan,
        "local": local,
        "years": 2024 - since.dt.year,
        "month": since.dt.month,
        "rank": frame["data_gb"].rank(pct=True),
        "bucket": pd.qcut(frame["minutes"], 10, labels=False, duplicates="drop"),
    }, index=frame.index)
    plan = pd.get_dummies(pd.Categorical(frame["plan"], PLANS)).set_index(frame.index)
    region = pd.get_dummies(pd.Categorical(frame["region"], REGIONS)).set_index(frame.index)
    wide = pd.concat([numbers, extra, plan, region], axis=1)
    x = torch.from_numpy(wide.to_numpy(np.float32))
    return x, torch.from_numpy(frame["churned"].to_numpy(np.float32))


def train(folder, s):
    net = nn.Sequential(
        nn.Linear(len(NUMERIC) + 6 + len(PLANS) + len(REGIONS), s.hidden), nn.GELU(), nn.LayerNorm(s.hidden),
        nn.Linear(s.hidden, s.hidden), nn.GELU(), nn.LayerNorm(s.hidden),
        nn.Linear(s.hidden, s.hidden), nn.GELU(), nn.Linear(s.hidden, 1),
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=s.lr)
    criterion = nn.BCEWithLogitsLoss()
    loader = DataLoader(Exports(folder, s.chunk), batch_size=None, num_workers=1)
    counted, running = 0, 0.0
    for n, (x, y) in enumerate(loader):
        loss = criterion(net(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.95 * running + 0.05 * loss.item()
        if n == 4:
            begin = time.perf_counter()
        if n > 4:
            counted += len(y)
        if n % 60 == 59:
            print(f"chunk {n + 1}: running loss {running:.4f}")
    return counted / (time.perf_counter() - begin)


torch.manual_seed(21)
torch.set_num_threads(1)
settings = Settings()
folder = Path(tempfile.mkdtemp(prefix="churn_"))
export_months(folder, settings)
rate = train(folder, settings)
shutil.rmtree(folder)
print(f"throughput: {rate:.1f} samples/s")
