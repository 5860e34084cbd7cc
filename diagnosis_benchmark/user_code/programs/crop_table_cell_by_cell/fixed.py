# %% Which crop grows here? Monthly satellite bands per field, from one parquet table.
import tempfile
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(42)
torch.set_num_threads(1)

BANDS = ["B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B11", "B12", "VV", "VH", "temperature", "rain"]
MONTHS = 12
NODATA = 65535
SCALE = {"VV": 5000.0, "VH": 5000.0, "temperature": 4000.0, "rain": 8000.0}
CROPS = ["maize", "wheat", "rape", "grass", "other"]


# %%
def make_table(path, fields=2000, seed=3):
    rng = np.random.default_rng(seed)
    crop = rng.integers(0, len(CROPS), fields)
    season = np.sin(np.arange(MONTHS) / 2 + crop[:, None])
    columns = {}
    for b, band in enumerate(BANDS):
        values = 1500 + 900 * season * np.cos(b) + rng.normal(0, 250, (fields, MONTHS))
        values[rng.random((fields, MONTHS)) < 0.06] = NODATA
        for month in range(MONTHS):
            columns[f"{band}-ts{month}"] = values[:, month].astype(np.int32)
    table = pd.DataFrame(columns)
    table["lat"], table["lon"] = rng.uniform(36, 60, fields), rng.uniform(-9, 30, fields)
    table["crop"] = np.array(CROPS)[crop]
    table.to_parquet(path)


class Fields(Dataset):
    def __init__(self, path):
        table = pd.read_parquet(path)
        names = [f"{band}-ts{month}" for month in range(MONTHS) for band in BANDS]
        values = table[names].to_numpy().reshape(len(table), MONTHS, len(BANDS))
        scale = np.array([SCALE.get(band, 3000.0) for band in BANDS])
        self.valid = (values != NODATA).astype(np.float32)
        self.series = (values / scale * self.valid).astype(np.float32)
        self.place = np.stack([table["lat"] / 90, table["lon"] / 180], 1).astype(np.float32)
        crops = {crop: i for i, crop in enumerate(CROPS)}
        self.crop = table["crop"].map(crops).to_numpy()

    def __len__(self):
        return len(self.crop)

    def __getitem__(self, index):
        return self.series[index], self.valid[index], self.place[index], self.crop[index]


# %%
class CropModel(nn.Module):
    def __init__(self, dim=96, heads=4, layers=2):
        super().__init__()
        self.bands = nn.Linear(2 * len(BANDS), dim)
        self.month = nn.Parameter(torch.randn(MONTHS, dim) * 0.02)
        self.place = nn.Linear(2, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 3 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(dim, len(CROPS))

    def forward(self, series, valid, place):
        x = self.bands(torch.cat([series, valid], -1)) + self.month
        x = torch.cat([x, self.place(place)[:, None]], 1)
        return self.head(self.encoder(x).mean(1))


# %%
with tempfile.TemporaryDirectory() as folder:
    make_table(f"{folder}/fields.parquet")
    start = time.perf_counter()
    train, held_out = random_split(Fields(f"{folder}/fields.parquet"), [0.95, 0.05])
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    model = CropModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    n = 0
    for epoch in range(3):
        right = total = 0
        for series, valid, place, crop in loader:
            logits = model(series, valid, place)
            loss = nn.functional.cross_entropy(logits, crop)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == crop).sum().item()
            total += len(crop)
        n += total
        print(f"epoch {epoch}: accuracy {right / total:.3f}")
    seconds = time.perf_counter() - start
print(f"throughput: {n / seconds:.1f} samples/s")
