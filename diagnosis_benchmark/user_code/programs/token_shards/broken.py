import os, shutil, tempfile, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

# ---- configuration -------------------------------------------------------
cfg = dict(
    vocab=256,
    block=64,
    batch=16,
    width=96,
    heads=4,
    layers=2,
    lr=6e-4,
    shards=12,
    rows_per_shard=384,
    seed=1337,
)
torch.manual_seed(cfg["seed"])
torch.set_num_threads(1)


def write_shards(folder):
    rng = np.random.default_rng(cfg["seed"])
    for n in range(cfg["shards"]):
        walk = np.cumsum(rng.integers(-3, 4, cfg["rows_per_shard"] * cfg["block"] + 1))
        (walk % cfg["vocab"]).astype(np.uint16).tofile(os.path.join(folder, f"train_{n:05d}.bin"))


class TokenFile(Dataset):
    """Non-overlapping blocks of one token file."""

    def __init__(self, path, block):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.block = block

    def __len__(self):
        return (len(self.tokens) - 1) // self.block

    def __getitem__(self, i):
        piece = torch.from_numpy(self.tokens[i * self.block : (i + 1) * self.block + 1].astype(np.int64))
        return piece[:-1], piece[1:]


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        w = cfg["width"]
        self.tok = nn.Embedding(cfg["vocab"], w)
        self.pos = nn.Parameter(torch.zeros(cfg["block"], w))
        layer = nn.TransformerEncoderLayer(w, cfg["heads"], 4 * w, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg["layers"], enable_nested_tensor=False)
        self.out = nn.Linear(w, cfg["vocab"], bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(cfg["block"]))

    def forward(self, idx):
        return self.out(self.body(self.tok(idx) + self.pos, mask=self.mask, is_causal=True))


folder = tempfile.mkdtemp(prefix="tokens_")
try:
    write_shards(folder)
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], betas=(0.9, 0.95))
    it = rows = 0
    clock = 0.0
    for shard in sorted(os.listdir(folder)):
        loader = DataLoader(
            TokenFile(os.path.join(folder, shard), cfg["block"]),
            batch_size=cfg["batch"],
            shuffle=True,
            num_workers=2,
            prefetch_factor=4,
        )
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            it += 1
            if it == 5:
                clock = time.perf_counter()
            if it > 5:
                rows += x.shape[0]
        print(f"iter {it}: {shard} loss {loss.item():.4f}")
    clock = time.perf_counter() - clock
finally:
    shutil.rmtree(folder)
print("throughput: %.1f samples/s" % (rows / clock))
