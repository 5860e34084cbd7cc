# %% settings
import collections
import itertools
import os
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, IterableDataset

FIELDS = {"user": 20_000, "item": 6_000, "category": 300, "hour": 24, "device": 12, "region": 90, "slot": 8}
PARTS, ROWS_PER_GROUP = 2, 600_000
BATCH, STEPS = 256, 150
torch.manual_seed(3)
torch.set_num_threads(1)


# %% two days of impressions
def write_days(folder):
    rng = np.random.default_rng(3)
    for part in range(PARTS):
        columns = {
            name: (rng.random(ROWS_PER_GROUP, dtype=np.float32) ** 2 * size).astype(np.int32)
            for name, size in FIELDS.items()
        }
        taste = (columns["user"] * 7 + columns["item"] * 13) % 11
        columns["clicked"] = (taste + rng.integers(0, 6, ROWS_PER_GROUP) > 11).astype(np.int32)
        pq.write_table(pa.table(columns), os.path.join(folder, f"day{part}.parquet"),
                       row_group_size=ROWS_PER_GROUP, use_dictionary=False, compression="NONE")


# %% rows in the order in which they were logged
class RowQueue:
    def __init__(self):
        self.rows = collections.deque()

    def __len__(self):
        return len(self.rows)

    def add(self, rows):
        self.rows.extend(rows)

    def next(self):
        return self.rows.popleft()


class Impressions(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        queue = RowQueue()
        for path in itertools.cycle(self.paths):
            log = pq.ParquetFile(path)
            for group in range(log.num_row_groups):
                table = log.read_row_group(group, columns=[*FIELDS, "clicked"])
                queue.add(np.column_stack([c.to_numpy() for c in table.columns]))
                while len(queue):
                    row = queue.next()
                    yield row[:-1], np.float32(row[-1])


# %% model
class WideAndDeep(nn.Module):
    def __init__(self, dim=16, width=768):
        super().__init__()
        sizes = torch.tensor([0, *FIELDS.values()])
        self.register_buffer("offset", sizes.cumsum(0)[:-1])
        self.wide = nn.Embedding(int(sizes.sum()), 1)
        self.deep = nn.Embedding(int(sizes.sum()), dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim * len(FIELDS), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, fields):
        index = fields.long() + self.offset
        return (self.wide(index).sum(1) + self.mlp(self.deep(index).flatten(1))).squeeze(1)


# %% training
folder = tempfile.TemporaryDirectory(prefix="clicks_")
write_days(folder.name)
days = sorted(os.path.join(folder.name, f) for f in os.listdir(folder.name))
loader = DataLoader(Impressions(days), batch_size=BATCH)
model = WideAndDeep()
opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
bce = nn.BCEWithLogitsLoss()

t0, count, mean = time.perf_counter(), 0, 0.0
for step, (fields, clicked) in enumerate(itertools.islice(loader, STEPS)):
    opt.zero_grad()
    loss = bce(model(fields), clicked)
    loss.backward()
    opt.step()
    count += len(clicked)
    mean += (loss.item() - mean) / (step + 1)
    if step % 25 == 24:
        print(f"{step + 1:4d}/{STEPS} mean loss {mean:.4f}", flush=True)
wall = time.perf_counter() - t0

# %% result
folder.cleanup()
print(f"throughput: {count / wall:.1f} samples/s")
