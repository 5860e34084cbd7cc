# %% [markdown]
# Pets: four breeds, one folder each on the lab's picture server, a small convnet from scratch.

# %%
import http.server
import io
import multiprocessing as mp
import random
import shutil
import tempfile
import time
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)
np.random.seed(11)
random.seed(11)
torch.set_num_threads(1)

BREEDS = ["beagle", "birman", "pug", "sphynx"]
SIZE = 64
EPOCHS = 4
BATCH = 16

# %%
root = Path(tempfile.mkdtemp(prefix="pets_"))
for k, breed in enumerate(BREEDS):
    folder = root / breed
    folder.mkdir()
    for n in range(110):
        coarse = np.random.randint(30, 200, (9, 12, 3), dtype=np.uint8)
        coarse[..., k % 3] = np.minimum(coarse[..., k % 3] + 20 + 10 * k, 255)
        picture = Image.fromarray(coarse).resize((320, 240), Image.BILINEAR)
        picture.save(folder / f"{breed}_{n:03d}.jpg", quality=88)


# %%
class Pictures(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.005)  # the way to the lab and back
        super().do_GET()

    def log_message(self, *args):
        pass


httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Pictures, directory=str(root)))
server = mp.get_context("fork").Process(target=httpd.serve_forever, daemon=True)
server.start()
base = f"http://127.0.0.1:{httpd.server_port}"


# %%
class PetFolder(Dataset):
    def __init__(self, base, names):
        self.urls = [f"{base}/{n}" for n in names]
        self.labels = [BREEDS.index(n.split("/")[0]) for n in names]

    def __len__(self):
        return len(self.urls)

    def __getitem__(self, i):
        with urllib.request.urlopen(self.urls[i]) as answer:
            img = Image.open(io.BytesIO(answer.read())).convert("RGB")
        w, h = img.size
        side = random.randint(int(0.6 * h), h)
        x, y = random.randint(0, w - side), random.randint(0, h - side)
        img = img.crop((x, y, x + side, y + side)).resize((SIZE, SIZE), Image.BICUBIC)
        if random.random() < 0.5:
            img = img.transpose(Image.FLIP_LEFT_RIGHT)
        for enhancer in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            img = enhancer(img).enhance(random.uniform(0.7, 1.3))
        arr = np.asarray(img, dtype=np.float32) / 255.0
        return torch.from_numpy((arr - 0.45) / 0.25).permute(2, 0, 1), self.labels[i]


# %%
def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(block(3, 24), block(24, 48), block(48, 96), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
names = sorted(str(f.relative_to(root)) for f in root.glob("*/*.jpg"))
loader = DataLoader(PetFolder(base, names), batch_size=BATCH, shuffle=True, drop_last=True)

# %%
step, seen, t0 = 0, 0, None
for epoch in range(EPOCHS):
    right = total = 0
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        right += (out.argmax(1) == y).sum().item()
        total += len(y)
        step += 1
        if step == 5:
            t0 = time.perf_counter()
        elif step > 5:
            seen += len(y)
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {right / total:.2f}")
elapsed = time.perf_counter() - t0

# %%
server.terminate()
shutil.rmtree(root)
print(f"throughput: {seen / elapsed:.1f} samples/s")
