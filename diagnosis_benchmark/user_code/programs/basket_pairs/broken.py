import time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

USERS, ITEMS, NEGATIVES = 4000, 24000, 3


def purchases(rng, per_user=12):
    popularity = rng.zipf(1.3, ITEMS).clip(max=5000).astype(float)
    popularity /= popularity.sum()
    items = rng.choice(ITEMS, size=(USERS, per_user), p=popularity)
    return items, np.bincount(items.ravel(), minlength=ITEMS)


class PairSampler(Sampler):
    """Yields (user, bought item, items not shown to be bought), negatives by popularity ** 0.75."""

    def __init__(self, baskets, counts, pairs, seed):
        self.baskets, self.pairs = baskets, pairs
        self.weight = (counts + 1.0) ** 0.75
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.pairs

    def __iter__(self):
        for _ in range(self.pairs):
            user = int(self.rng.integers(USERS))
            positive = int(self.rng.choice(self.baskets[user]))
            negatives = self.rng.choice(ITEMS, NEGATIVES, p=self.weight / self.weight.sum())
            yield user, positive, negatives


class PairDataset(Dataset):
    def __init__(self, prices):
        self.prices = prices

    def __getitem__(self, key):
        user, positive, negatives = key
        candidates = np.concatenate(([positive], negatives))
        return user, candidates, self.prices[candidates]


class TwoTower(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(USERS, dim), nn.Embedding(ITEMS, dim)
        self.mix = nn.Sequential(nn.Linear(2 * dim + 1, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, user, items, price):
        u = self.user(user)[:, None].expand(-1, items.shape[1], -1)
        return self.mix(torch.cat([u, self.item(items), price[..., None]], -1)).squeeze(-1)


def bpr(scores):
    return -nn.functional.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()


def main(seed=99, batch=192, steps=200):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    baskets, counts = purchases(rng)
    prices = rng.lognormal(1.0, 0.5, ITEMS).astype(np.float32)
    loader = DataLoader(PairDataset(prices), batch_size=batch,
                        sampler=PairSampler(baskets, counts, batch * steps, seed), num_workers=2)
    model = TwoTower()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, n, t = [], 0, None
    for i, (user, items, price) in enumerate(loader):
        opt.zero_grad(set_to_none=True)
        loss = bpr(model(user, items, price))
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if i == 4:
            t = time.perf_counter()
        elif i > 4:
            n += user.numel()
        if (i + 1) % 50 == 0:
            print(f"{i + 1:4d}  bpr {np.mean(losses[-50:]):.4f}")
    t = time.perf_counter() - t
    print(f"throughput: {n / t:.1f} samples/s")


main()
