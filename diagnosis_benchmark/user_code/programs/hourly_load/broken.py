"""Forecast the electric load of the next day for many meters."""
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader

SETTINGS = {
    "meters": 40,
    "hours": 24 * 480,
    "look_back": 168,
    "trend": 168,
    "horizon": 24,
    "batch_size": 24,
    "steps": 180,
    "workers": 2,
    "seed": 63,
}


def make_meters(s):
    rng = np.random.default_rng(s["seed"])
    hours = pd.date_range("2023-01-01", periods=s["hours"], freq="h")
    day = np.sin(np.arange(s["hours"]) / 24 * 2 * np.pi)
    meters = []
    for _ in range(s["meters"]):
        load = 3 + rng.uniform(0.5, 1.5) * day + rng.normal(0, 0.3, s["hours"]).cumsum() * 0.02
        meters.append(pd.Series(load + rng.gamma(1, 0.2, s["hours"]), index=hours))
    return meters


class Cases(torch.utils.data.Dataset):
    """A case is a meter and the hour at which its forecast is made."""

    def __init__(self, s):
        rng = np.random.default_rng(s["seed"] + 1)
        count = s["steps"] * s["batch_size"]
        self.meter = rng.integers(0, s["meters"], count)
        self.now = rng.integers(s["hours"] // 2, s["hours"] - s["horizon"], count)

    def __len__(self):
        return len(self.meter)

    def __getitem__(self, i):
        return int(self.meter[i]), int(self.now[i])


class Windows:
    def __init__(self, meters, s):
        self.meters, self.s = meters, s

    def window(self, meter, now):
        past = self.meters[meter].iloc[:now]
        trend = past.rolling(self.s["trend"], min_periods=1).median()
        recent = past.iloc[-self.s["look_back"]:]
        frame = pd.DataFrame({"load": recent, "trend": trend.iloc[-self.s["look_back"]:]})
        frame["rest"] = frame["load"] - frame["trend"]
        frame["hour"] = frame.index.hour / 23
        frame["weekday"] = frame.index.day_of_week / 6
        frame["usual"] = frame.groupby(frame.index.hour)["load"].transform("mean")
        frame["swing"] = frame["rest"].rolling(24, min_periods=1).std().fillna(0.0)
        return frame.to_numpy(dtype="float32")

    def __call__(self, cases):
        x = np.stack([self.window(meter, now) for meter, now in cases])
        y = np.stack([self.meters[meter].iloc[now:now + self.s["horizon"]] for meter, now in cases])
        return torch.from_numpy(x), torch.from_numpy(y.astype("float32"))


def build(s):
    return nn.Sequential(nn.Flatten(), nn.Linear(s["look_back"] * 7, 512), nn.SiLU(),
                         nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, s["horizon"]))


def fit(s):
    torch.manual_seed(s["seed"])
    torch.set_num_threads(1)
    loader = DataLoader(Cases(s), batch_size=s["batch_size"], num_workers=s["workers"],
                        collate_fn=Windows(make_meters(s), s))
    model = build(s)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step, (x, y) in enumerate(loader, 1):
        loss = nn.functional.l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 5:
            start = time.perf_counter()
    rate = (step - 5) * s["batch_size"] / (time.perf_counter() - start)
    return losses, rate


losses, rate = fit(SETTINGS)
print("first losses", np.round(losses[:3], 3), "last", np.round(losses[-3:], 3))
print(f"throughput: {rate:.1f} samples/s")
