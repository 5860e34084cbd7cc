"""Nowcasting of solar power: two hours of weather forecast around "now" and the last hour of a panel's power.

The forecast comes hourly on a grid, the panels report every five minutes.
"""

import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

config = {
    "days": 8,
    "channels": 6,
    "grid": 12,
    "panels": 40,
    "history": 12,
    "horizon": 12,
    "batch_size": 8,
    "steps_per_epoch": 40,
    "epochs": 4,
    "lr": 1e-3,
}


def made_up_weather(cfg):
    rng = np.random.default_rng(3)
    hours = np.arange(cfg["days"] * 24 + 1) * 60
    field = rng.normal(size=(len(hours), cfg["channels"], cfg["grid"], cfg["grid"])).astype(np.float32)
    return hours, np.cumsum(field, axis=0) * 0.1


def made_up_power(cfg):
    rng = np.random.default_rng(4)
    minutes = np.arange(0, cfg["days"] * 24 * 60, 5)
    sun = np.clip(np.sin((minutes % 1440) / 1440 * 2 * np.pi - np.pi / 2), 0, None)
    clouds = rng.random((cfg["panels"], len(minutes)))
    return (sun * (0.4 + 0.6 * clouds)).astype(np.float32)


def to_five_minutes(hours, field):
    """Linear interpolation in time of an hourly field (hour, channel, y, x)."""
    minutes = np.arange(hours[0], hours[-1], 5)
    after = np.searchsorted(hours, minutes, side="right")
    share = ((minutes - hours[after - 1]) / 60).astype(np.float32)[:, None, None, None]
    return field[after - 1] * (1 - share) + field[after] * share


class Nowcasts(Dataset):
    def __init__(self, cfg):
        self.cfg = cfg
        self.hours, self.nwp = made_up_weather(cfg)
        self.power = made_up_power(cfg)
        self.length = self.power.shape[1]

    def __len__(self):
        return self.cfg["steps_per_epoch"] * self.cfg["batch_size"]

    def __getitem__(self, index):
        cfg = self.cfg
        rng = np.random.default_rng(index)
        panel = rng.integers(cfg["panels"])
        now = int(rng.integers(cfg["history"], self.length - cfg["horizon"]))
        weather = to_five_minutes(self.hours, self.nwp)[now - cfg["history"] : now + cfg["horizon"]]
        past = self.power[panel, now - cfg["history"] : now]
        future = self.power[panel, now : now + cfg["horizon"]]
        return {
            "weather": torch.from_numpy(np.ascontiguousarray(weather)),
            "past": torch.from_numpy(past),
            "future": torch.from_numpy(future),
        }


class Nowcaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        frames = cfg["history"] + cfg["horizon"]
        self.conv1 = nn.Conv3d(cfg["channels"], 16, 3, padding=1)
        self.conv2 = nn.Conv3d(16, 16, 3, padding=1, stride=2)
        self.weather = nn.Linear(16 * (frames // 2) * (cfg["grid"] // 2) ** 2, 64)
        self.head = nn.Linear(64 + cfg["history"], cfg["horizon"])

    def forward(self, weather, past):
        x = F.relu(self.conv1(weather.transpose(1, 2)))
        x = F.relu(self.conv2(x))
        return self.head(torch.cat([F.relu(self.weather(x.flatten(1))), past], dim=1))


torch.manual_seed(2)
torch.set_num_threads(1)
loader = DataLoader(Nowcasts(config), batch_size=config["batch_size"], shuffle=True)
net = Nowcaster(config)
optimizer = torch.optim.Adam(net.parameters(), lr=config["lr"])

n = 0
t0 = time.perf_counter()
for epoch in range(config["epochs"]):
    running = 0.0
    for batch in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(net(batch["weather"], batch["past"]), batch["future"])
        loss.backward()
        optimizer.step()
        running += loss.item()
        n += len(batch["past"])
    print(f"epoch {epoch}: mse {running / len(loader):.4f}")
print(f"throughput: {n / (time.perf_counter() - t0):.1f} samples/s")
