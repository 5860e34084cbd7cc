"""Behaviour cloning from recorded episodes: one frame of an episode's video gives the action taken there."""

import struct
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 64
FRAMES = 320
GOP = 16
HEADER = struct.Struct("<cI")


def record_episode(path, rng):
    """A key frame every GOP frames, differences between."""
    frame = rng.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)
    with open(path, "wb") as file:
        for i in range(FRAMES):
            row, column = rng.integers(0, SIZE - 24, 2)
            delta = np.zeros_like(frame)
            delta[row : row + 24, column : column + 24] = rng.integers(0, 8, (24, 24, 3), dtype=np.uint8)
            frame = frame + delta
            kind, pixels = (b"K", frame) if i % GOP == 0 else (b"D", delta)
            packet = zlib.compress(pixels.tobytes(), 1)
            file.write(HEADER.pack(kind, len(packet)) + packet)


class VideoReader:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.keys = self.find_key_frames()
        self.jump(0)

    def find_key_frames(self):
        keys, position = {}, 0
        while header := self.file.read(HEADER.size):
            kind, length = HEADER.unpack(header)
            if kind == b"K":
                keys[position] = self.file.tell() - HEADER.size
            self.file.seek(length, 1)
            position += 1
        return keys

    def jump(self, key):
        self.file.seek(self.keys[key])
        self.position = key
        self.frame = None

    def read(self):
        kind, length = HEADER.unpack(self.file.read(HEADER.size))
        pixels = np.frombuffer(zlib.decompress(self.file.read(length)), np.uint8).reshape(SIZE, SIZE, 3)
        self.frame = pixels if kind == b"K" else self.frame + pixels
        self.position += 1
        return self.frame

    def frame_at(self, index):
        key = max(k for k in self.keys if k <= index)
        if index < self.position or key > self.position:
            self.jump(key)
        while self.position <= index:
            frame = self.read()
        return frame


class Episodes(Dataset):
    def __init__(self, paths, actions):
        self.paths, self.actions = paths, actions
        self.readers = {}

    def __len__(self):
        return len(self.paths) * FRAMES

    def __getitem__(self, index):
        episode, frame_index = divmod(index, FRAMES)
        if episode not in self.readers:
            self.readers[episode] = VideoReader(self.paths[episode])
        frame = self.readers[episode].frame_at(frame_index)
        return torch.tensor(frame).permute(2, 0, 1).float() / 255, self.actions[episode, frame_index]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(
            nn.Conv2d(3, 24, 5, 2), nn.ReLU(), nn.Conv2d(24, 32, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(64)
        )
        self.head = nn.Linear(64, 7)

    def forward(self, frames):
        return self.head(self.vision(frames).relu())


def train():
    rng = np.random.default_rng(5)
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"episode_{i:03d}.vid") for i in range(8)]
        for path in paths:
            record_episode(path, rng)
        episodes = Episodes(paths, torch.randn(len(paths), FRAMES, 7))
        loader = DataLoader(episodes, 16, shuffle=True, num_workers=1, persistent_workers=True)
        policy = Policy()
        policy(torch.zeros(1, 3, SIZE, SIZE))
        optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
        samples, begin = 0, time.perf_counter()
        for epoch in range(2):
            for step, (frames, actions) in enumerate(loader):
                optimizer.zero_grad()
                loss = nn.functional.smooth_l1_loss(policy(frames), actions)
                loss.backward()
                optimizer.step()
                samples += len(frames)
                if step % 40 == 0:
                    print(f"{epoch}:{step:4d} l1 {loss.item():.3f}")
        print(f"throughput: {samples / (time.perf_counter() - begin):.1f} samples/s")


if __name__ == "__main__":
    train()
