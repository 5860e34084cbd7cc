import io
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

SIZE, FULL, CLASSES = 160, 1024, 6


def make_scene(i):
    """One street scene, encoded: a JPEG and the PNG of its classes at the camera's resolution."""
    rng = np.random.default_rng(i)
    coarse = rng.integers(0, CLASSES, (16, 16)).astype(np.uint8)
    classes = np.kron(coarse, np.ones((FULL // 16, FULL // 16), np.uint8))
    edge = rng.integers(0, CLASSES, (FULL // 4, FULL)).astype(np.uint8)
    classes[:: 4] = np.where(edge < 2, edge, classes[:: 4])
    small = np.asarray(Image.fromarray(classes).resize((320, 320), Image.NEAREST))
    colour = np.stack([small * 40, 255 - small * 35, small * 25], -1).astype(np.uint8)
    jpeg, png = io.BytesIO(), io.BytesIO()
    Image.fromarray(colour).save(jpeg, "JPEG", quality=85)
    Image.fromarray(classes).save(png, "PNG", compress_level=1)
    return jpeg.getvalue(), png.getvalue()


class MosaicSegmentation(Dataset):
    """Each sample is four scenes in a square: the one asked for and three that were seen lately."""

    def __init__(self, scenes, length, buffer_size=12):
        self.scenes, self.length = scenes, length
        self.recent = deque(maxlen=buffer_size)
        self.images = {}

    def __len__(self):
        return self.length

    def read_image(self, i):
        if i in self.images:
            return self.images[i]
        image = np.asarray(Image.open(io.BytesIO(self.scenes[i][0])).resize((SIZE, SIZE), Image.BILINEAR))
        if len(self.recent) == self.recent.maxlen:
            self.images.pop(self.recent.popleft(), None)
        self.recent.append(i)
        self.images[i] = image
        return image

    def read_mask(self, i):
        mask = Image.open(io.BytesIO(self.scenes[i][1]))
        return np.asarray(mask.resize((SIZE, SIZE), Image.NEAREST))

    def __getitem__(self, n):
        dice = random.Random(n)
        own = n % len(self.scenes)
        self.read_image(own)
        tiles = [own] + [dice.choice(self.recent) for _ in range(3)]
        canvas = np.zeros((2 * SIZE, 2 * SIZE, 3), np.uint8)
        target = np.zeros((2 * SIZE, 2 * SIZE), np.uint8)
        for place, tile in enumerate(tiles):
            top, left = SIZE * (place // 2), SIZE * (place % 2)
            canvas[top:top + SIZE, left:left + SIZE] = self.read_image(tile)
            target[top:top + SIZE, left:left + SIZE] = self.read_mask(tile)
        y, x = dice.randrange(SIZE), dice.randrange(SIZE)
        crop = canvas[y:y + SIZE, x:x + SIZE]
        return (torch.from_numpy(crop.transpose(2, 0, 1).astype(np.float32) / 255),
                torch.from_numpy(target[y:y + SIZE, x:x + SIZE].astype(np.int64)))


def segmenter():
    conv = lambda i, o, s=1: torch.nn.Sequential(torch.nn.Conv2d(i, o, 3, s, 1), torch.nn.ReLU())
    return torch.nn.Sequential(conv(3, 12, 2), conv(12, 24, 2), conv(24, 24), torch.nn.Conv2d(24, CLASSES, 1))


class Trainer:
    def __init__(self, batches=104, batch_size=8):
        self.model = segmenter()
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        scenes = [make_scene(i) for i in range(24)]
        self.loader = DataLoader(MosaicSegmentation(scenes, batches * batch_size), batch_size=batch_size,
                                 shuffle=True, num_workers=2, drop_last=True)

    def step(self, image, target):
        logits = F.interpolate(self.model(image), size=target.shape[-2:], mode="bilinear")
        loss = F.cross_entropy(logits, target)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        return loss.detach()

    def fit(self):
        done, t0 = 0, time.perf_counter()
        for i, (image, target) in enumerate(self.loader):
            loss = self.step(image, target)
            done += image.shape[0]
            if i % 12 == 11:
                print(f"it {i + 1:4d}  loss {loss:.3f}  {done / (time.perf_counter() - t0):.1f}/s", flush=True)
        return done / (time.perf_counter() - t0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(11)
    rate = Trainer().fit()
    print(f"throughput: {rate:.1f} samples/s")
