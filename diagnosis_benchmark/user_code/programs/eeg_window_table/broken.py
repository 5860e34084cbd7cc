# Decoding of left and right hand movements from windows of a preloaded EEG recording
# (cells of a notebook, exported)

# %%
import time

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

np.random.seed(20)
torch.manual_seed(20)
torch.set_num_threads(1)

SFREQ = 125
N_CHANNELS = 22
WINDOW = 2 * SFREQ
BATCH = 64

# %%
# one long recording, kept in memory, and the table of its windows
raw = np.random.randn(N_CHANNELS, 40 * 60 * SFREQ).astype("float32")
starts = np.arange(0, raw.shape[1] - WINDOW, 68)
metadata = pd.DataFrame(
    {
        "i_window_in_trial": np.arange(len(starts)) % 8,
        "i_start_in_trial": starts,
        "i_stop_in_trial": starts + WINDOW,
        "target": np.random.randint(0, 2, len(starts)),
        "subject": [f"S{i % 9:02d}" for i in range(len(starts))],
    }
)
print(metadata.head())


# %%
class WindowsDataset(Dataset):
    def __init__(self, raw, metadata):
        self.raw = raw
        self.metadata = metadata

    def __len__(self):
        return len(self.metadata)

    def __getitem__(self, index):
        y = self.metadata.iloc[index]["target"]
        crop_inds = self.metadata.iloc[index][["i_window_in_trial", "i_start_in_trial", "i_stop_in_trial"]]
        i_window, i_start, i_stop = crop_inds.astype(int).tolist()
        X = self.raw[:, i_start:i_stop]
        return X, int(y), i_window


train_set = WindowsDataset(raw, metadata)
train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, drop_last=True)

# %%
net = nn.Sequential(
    nn.Conv1d(N_CHANNELS, 32, 25, stride=5),
    nn.BatchNorm1d(32),
    nn.ELU(),
    nn.Conv1d(32, 24, 11, stride=2),
    nn.ELU(),
    nn.AdaptiveAvgPool1d(4),
    nn.Flatten(),
    nn.Linear(96, 2),
)
opt = torch.optim.AdamW(net.parameters(), lr=6e-4)

# %%
t0 = time.perf_counter()
n = 0
for epoch in range(1, 6):
    losses = []
    for X, y, _ in train_loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(X), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        n += len(y)
    print(f"{epoch:>5} {np.mean(losses):.4f} {time.perf_counter() - t0:.1f}s")

# %%
print(f"throughput: {n / (time.perf_counter() - t0):.1f} samples/s")
