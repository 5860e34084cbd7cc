# Contrastive pre-training on leaf photographs (NT-Xent over two augmented views).
import io
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageFilter, ImageOps
from torch.utils.data import DataLoader, Dataset


class MultiCrop:
    """Two large views of a picture and a handful of small ones."""

    def __init__(self, large=48, small=32, n_small=4):
        self.large, self.small, self.n_small = large, small, n_small
        self.ready = [torch.rand(3, small, small) for _ in range(n_small)]

    def crop(self, img, edge, low, high):
        w, h = img.size
        side = max(8, int(min(w, h) * np.random.uniform(low, high) ** 0.5))
        x, y = np.random.randint(0, w - side + 1), np.random.randint(0, h - side + 1)
        return img.resize((edge, edge), Image.BICUBIC, box=(x, y, x + side, y + side))

    def distort(self, img):
        if np.random.rand() < 0.5:
            img = ImageOps.mirror(img)
        gain = np.random.uniform(0.6, 1.4, 3)
        img = img.point([min(255, int(v * g)) for g in gain for v in range(256)])
        if np.random.rand() < 0.2:
            img = ImageOps.grayscale(img).convert("RGB")
        return img.filter(ImageFilter.GaussianBlur(np.random.uniform(0.1, 1.6)))

    def view(self, img, edge, low, high):
        arr = np.asarray(self.distort(self.crop(img, edge, low, high)), dtype=np.float32)
        return torch.from_numpy(arr / 127.5 - 1.0).permute(2, 0, 1)

    def __call__(self, img):
        large = [self.view(img, self.large, 0.4, 1.0) for _ in range(2)]
        small = self.ready
        return large, small


class Leaves(Dataset):
    def __init__(self, n, views, seed):
        rng = np.random.default_rng(seed)
        self.views, self.encoded = views, []
        for _ in range(n):
            spots = rng.integers(20, 180, (6, 6, 3), dtype=np.uint8)
            spots[..., 1] += 60
            out = io.BytesIO()
            Image.fromarray(spots).resize((128, 128), Image.BILINEAR).save(out, "JPEG", quality=85)
            self.encoded.append(out.getvalue())

    def __len__(self):
        return len(self.encoded)

    def __getitem__(self, i):
        return self.views(Image.open(io.BytesIO(self.encoded[i])).convert("RGB"))


def encoder(width=20, out=64):
    layers, c = [], 3
    for k in range(3):
        layers += [nn.Conv2d(c, width << k, 3, stride=1 if k == 0 else 2, padding=1), nn.GroupNorm(4, width << k), nn.ReLU()]
        c = width << k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 128), nn.ReLU(), nn.Linear(128, out))


def nt_xent(a, b, temperature=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    sim = z @ z.T / temperature
    sim.fill_diagonal_(-1e9)
    n = len(a)
    return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


torch.manual_seed(60)
np.random.seed(60)
torch.set_num_threads(1)
loader = DataLoader(Leaves(640, MultiCrop(), 60), batch_size=16, shuffle=True, drop_last=True)
net = encoder()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
warm, pictures, step = None, 0, 0
for epoch in range(3):
    for views, _ in loader:
        loss = nt_xent(net(views[0]), net(views[1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if warm:
            pictures += len(views[0])
        elif step == 5:
            warm = time.perf_counter()
    print(f"epoch {epoch}: nt-xent {loss.item():.3f}")
print(f"throughput: {pictures / (time.perf_counter() - warm):.1f} samples/s")
