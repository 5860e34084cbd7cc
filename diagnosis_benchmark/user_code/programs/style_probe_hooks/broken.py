# %% Style transfer network for small pictures: content + style terms taken from a frozen "VGG".
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
torch.manual_seed(21)

SIDE, BATCH, STEPS = 64, 6, 80
STYLE_AT = ("relu1", "relu2", "relu3")


# %% data
class Pictures(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(4)
        ramp = torch.linspace(0, 1, SIDE)
        for _ in range(BATCH * STEPS):
            fx, fy, phase = (torch.rand(3, generator=g) * torch.tensor([30.0, 30.0, 6.0])).tolist()
            wave = torch.sin(fx * ramp)[None] * torch.cos(fy * ramp + phase)[:, None]
            yield torch.stack([wave, wave.roll(5, 0), -wave]) * 0.5 + torch.rand(3, SIDE, SIDE, generator=g) * 0.1


loader = DataLoader(Pictures(), batch_size=BATCH, num_workers=1)

# %% networks
vgg = nn.Sequential()
width = 3
for n, out in enumerate((16, 24, 32), 1):
    vgg.add_module(f"conv{n}", nn.Conv2d(width, out, 3, 1, 1))
    vgg.add_module(f"relu{n}", nn.ReLU())
    if n < 3:
        vgg.add_module(f"pool{n}", nn.AvgPool2d(2))
    width = out
for p in vgg.parameters():
    p.requires_grad_(False)

painter = nn.Sequential(
    nn.Conv2d(3, 24, 5, 1, 2), nn.ReLU(),
    nn.Conv2d(24, 24, 3, 1, 1), nn.ReLU(),
    nn.Conv2d(24, 3, 3, 1, 1), nn.Sigmoid(),
)
optimizer = torch.optim.Adam(painter.parameters(), lr=1e-3)


# %% losses
def gram(act):
    flat = act.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[-1]


def probe(net, picture):
    """Activations at the last layer, and a Gram matrix for each style layer."""
    seen = {}

    def keep(name):
        def hook(module, args, output):
            seen[name] = gram(output)
        return hook

    for name in STYLE_AT:
        getattr(net, name).register_forward_hook(keep(name))
    content = net(picture)
    return content, seen


style_picture = torch.rand(1, 3, SIDE, SIDE).round()
_, grams = probe(vgg, style_picture)
style = {name: grams[name].clone() for name in STYLE_AT}

# %% training
fifth = STEPS - STEPS // 5
for step, picture in enumerate(loader):
    if step == fifth:
        mark = time.perf_counter()
    with torch.no_grad():
        wanted, _ = probe(vgg, picture)
    painted = painter(picture)
    content, grams = probe(vgg, painted)
    loss = F.mse_loss(content, wanted)
    for name in STYLE_AT:
        loss = loss + 20 * F.mse_loss(grams[name], style[name].expand_as(grams[name]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 16 == 0:
        value = loss.item()
        assert math.isfinite(value)
        print(f"{step:4d}: {value:.4f}")
print(f"throughput: {BATCH * (STEPS - fifth) / (time.perf_counter() - mark):.1f} samples/s")
