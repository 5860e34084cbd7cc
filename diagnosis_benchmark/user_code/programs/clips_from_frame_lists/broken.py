#!/usr/bin/env python
"""Action recognition on short clips, small 3D network."""
import logging
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("clips")

HEIGHT = WIDTH = 48
CLIP = 8
ACTIONS = 6


def film(seed, frames=48):
    """A compressed film: a disc that moves in a manner that depends on the action."""
    rng = np.random.default_rng(seed)
    action = seed % ACTIONS
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    cx, cy = rng.uniform(14, 34, 2)
    packed = []
    for t in range(frames):
        u = cx + 9 * np.sin(t * 0.2 * (action + 1))
        v = cy + 9 * np.cos(t * 0.15 * (ACTIONS - action))
        disc = 200 * (((x - u) ** 2 + (y - v) ** 2) < 90)
        picture = np.stack([disc, disc // 2, np.full_like(disc, 20 * action)], -1) + rng.integers(0, 12)
        packed.append(zlib.compress(picture.astype(np.uint8).tobytes(), 1))
    return packed, action


class ClipDataset(Dataset):
    def __init__(self, films, clips):
        self.films = films
        self.clips = clips

    def __len__(self):
        return self.clips

    def __getitem__(self, index):
        packed, action = self.films[index % len(self.films)]
        first = (index * 7) % (len(packed) - 2 * CLIP)
        frames = []
        for blob in packed[first:first + 2 * CLIP:2]:
            raw = np.frombuffer(zlib.decompress(blob), np.uint8)
            frames.append(raw.reshape(HEIGHT, WIDTH, 3))
        return frames, action


def collate_clips(samples):
    videos = []
    for frames, _ in samples:
        video = torch.tensor(frames)
        videos.append(video.permute(3, 0, 1, 2))
    return torch.stack(videos), torch.tensor([action for _, action in samples])


class C3D(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(3, 24, 3, stride=(1, 2, 2), padding=1), nn.ReLU(),
            nn.MaxPool3d((1, 2, 2)),
            nn.Conv3d(24, 40, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(40, ACTIONS),
        )

    def forward(self, video):
        return self.layers(video.float().div(127.5).sub(1.0))


def train(epochs=3, batch_size=8, clips=208):
    films = [film(s) for s in range(30)]
    loader = DataLoader(ClipDataset(films, clips), batch_size=batch_size, shuffle=True, num_workers=2,
                        collate_fn=collate_clips, persistent_workers=True)
    net = C3D()
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    lossf = nn.CrossEntropyLoss()
    clock = time.perf_counter()
    for epoch in range(epochs):
        right = 0
        for video, action in loader:
            out = net(video)
            loss = lossf(out, action)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += int((out.argmax(1) == action).sum())
        log.info("epoch %d  accuracy %.2f", epoch, right / clips)
    return epochs * clips / (time.perf_counter() - clock)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    speed = train()
    print(f"throughput: {speed:.1f} samples/s")
