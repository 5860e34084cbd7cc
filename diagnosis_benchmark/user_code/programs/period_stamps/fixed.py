# %% load forecasting for many substations: hourly readings in a long table
import time

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 168, 24
STATIONS, HOURS = 170, 8000
np.random.seed(11)
torch.manual_seed(11)
torch.set_num_threads(1)


# %% the table as it comes from the meters' export: time stamps are text
def read_export():
    hours = pd.date_range("2021-01-01", periods=HOURS + STATIONS, freq="h")
    text = hours.strftime("%Y-%m-%d %H:%M:%S").to_numpy(dtype=object)
    daily = np.sin(2 * np.pi * np.arange(HOURS + STATIONS) / 24).astype(np.float32)
    parts = []
    for station in range(STATIONS):
        load = daily[station:station + HOURS] + 0.2 * np.random.standard_normal(HOURS).astype(np.float32)
        parts.append((np.full(HOURS, station), text[station:station + HOURS], load))
    station, stamp, load = (np.concatenate(column) for column in zip(*parts))
    return pd.DataFrame({"station": station, "timestamp": pd.Series(stamp, dtype=object), "load": load})


# %% one entry per station, with calendar covariates
class Series:
    def __init__(self, station, frame):
        self.station = station
        frame = frame.set_index("timestamp")
        frame.index = pd.DatetimeIndex(frame.index).to_period("h")
        if not frame.index.is_monotonic_increasing:
            frame = frame.sort_index()
        self.load = torch.from_numpy(frame["load"].to_numpy(np.float32, copy=True))
        calendar = np.stack([frame.index.hour / 23, frame.index.day_of_week / 6, frame.index.day_of_year / 365], axis=1)
        self.calendar = torch.from_numpy(calendar.astype(np.float32)) - 0.5


class Windows(Dataset):
    def __init__(self, series, per_series):
        self.series = series
        self.per_series = per_series

    def __len__(self):
        return len(self.series) * self.per_series

    def __getitem__(self, index):
        one = self.series[index % len(self.series)]
        start = int(torch.randint(0, len(one.load) - HISTORY - HORIZON, (1,)))
        middle, end = start + HISTORY, start + HISTORY + HORIZON
        past = torch.cat([one.load[start:middle, None], one.calendar[start:middle]], dim=1)
        return past, one.calendar[middle:end], one.load[middle:end]


# %% a small recurrent forecaster
class Forecaster(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = torch.nn.GRU(4, width, batch_first=True)
        self.decode = torch.nn.Sequential(
            torch.nn.Linear(width + 3 * HORIZON, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2 * HORIZON))

    def forward(self, past, known):
        _, state = self.encode(past)
        mean, scale = self.decode(torch.cat([state[-1], known.flatten(1)], dim=1)).chunk(2, dim=1)
        return torch.distributions.Normal(mean, torch.nn.functional.softplus(scale) + 1e-3)


# %% run
export = read_export()
clock = time.perf_counter()
series = [Series(station, frame) for station, frame in export.groupby("station", sort=False)]
print(f"{len(series)} series, {sum(len(s.load) for s in series)} readings")

loader = DataLoader(Windows(series, per_series=40), batch_size=64, shuffle=True, num_workers=1, drop_last=True)
model = Forecaster()
adam = torch.optim.Adam(model.parameters(), lr=1e-3)
trained = 0
for past, known, future in loader:
    loss = -model(past, known).log_prob(future).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    trained += len(past)
    if trained % 1280 == 0:
        print(f"{trained} windows, nll {loss.item():.3f}")
print(f"throughput: {trained / (time.perf_counter() - clock):.1f} samples/s")
