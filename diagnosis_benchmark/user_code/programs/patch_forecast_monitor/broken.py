"""Day-ahead load forecasting from patches of the last two weeks."""
import time
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON, PATCH = 336, 24, 12


def simulated_loads(meters, hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    daily = rng.uniform(0.5, 2, (meters, 1)) * np.sin(2 * np.pi * (t / 24 + rng.random((meters, 1))))
    weekly = rng.uniform(0.2, 1, (meters, 1)) * np.sin(2 * np.pi * (t / 168 + rng.random((meters, 1))))
    return (daily + weekly + 0.3 * rng.standard_normal((meters, hours))).astype(np.float32)


class LoadWindows(Dataset):
    def __init__(self, loads):
        self.loads = torch.from_numpy(loads)
        self.per_meter = loads.shape[1] - HISTORY - HORIZON + 1

    def __len__(self):
        return len(self.loads) * self.per_meter

    def __getitem__(self, i):
        meter, start = divmod(i, self.per_meter)
        window = self.loads[meter, start:start + HISTORY + HORIZON]
        return window[:HISTORY], window[HISTORY:]


class MixerBlock(nn.Module):
    def __init__(self, dim, patches, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.across = nn.Linear(patches, patches)
        self.up, self.act = nn.Linear(dim, 2 * dim), nn.GELU()
        self.drop, self.down = nn.Dropout(dropout), nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.down(self.drop(self.act(self.up(self.norm2(x)))))


class PatchMixer(nn.Module):
    def __init__(self, dim=32, depth=12, dropout=0.05):
        super().__init__()
        patches = HISTORY // PATCH
        self.embed = nn.Linear(PATCH, dim)
        self.blocks = nn.Sequential(*(MixerBlock(dim, patches, dropout) for _ in range(depth)))
        self.head = nn.Linear(dim * patches, HORIZON)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x.unfold(1, PATCH, PATCH))).flatten(1))


class LayerMonitor:
    """Watches activations and gradients of all layers while it is entered."""

    def __init__(self, model):
        self.layers = {name: m for name, m in model.named_modules() if not list(m.children())}
        self.handles = []
        self.activation, self.gradient = {}, {}

    def _forward(self, name, module, inputs, output):
        self.activation[name] = output.detach().abs().mean()

    def _backward(self, name, module, grad_input, grad_output):
        self.gradient[name] = grad_output[0].abs().mean()

    def __enter__(self):
        for name, layer in self.layers.items():
            self.handles.append(layer.register_forward_hook(partial(self._forward, name)))
            self.handles.append(layer.register_full_backward_hook(partial(self._backward, name)))
        return self

    def __exit__(self, *problem):
        for handle in self.handles:
            handle.remove()

    def faintest(self):
        return min(self.gradient, key=lambda name: float(self.gradient[name]))


def train(steps=400, batch=16, lr=1e-3):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    data = LoadWindows(simulated_loads(meters=40, hours=1500, seed=8))
    loader = DataLoader(data, batch, shuffle=True, drop_last=True)
    model = PatchMixer()
    monitor = LayerMonitor(model.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    stamps, average = [time.perf_counter()], None
    for step, (history, future) in enumerate(loader, 1):
        optimizer.zero_grad()
        with monitor:
            loss = nn.functional.huber_loss(model(history), future)
            loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.95 * average + 0.05 * loss.item()
        stamps.append(time.perf_counter())
        if step % 50 == 0:
            print(f"step {step} loss {average:.4f} faintest gradient in {monitor.faintest()}", flush=True)
        if step == steps:
            break
    late = steps // 5
    return late * batch / (stamps[-1] - stamps[-1 - late])


if __name__ == "__main__":
    print(f"throughput: {train():.1f} samples/s")
