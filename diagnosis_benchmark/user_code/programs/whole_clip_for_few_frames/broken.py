"""Action recognition on short videos in an intra-coded container: every frame is a packet of its own."""
import os
import shutil
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SIZE = 112
VIDEOS, FRAMES, CLIPS_PER_VIDEO = 16, 48, 40
SEGMENTS, ACTIONS = 6, 5


def write_video(path, action, rng):
    """Moving stripes; each row is stored as differences and then deflated."""
    y, x = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    angle = action * np.pi / ACTIONS
    across = (x * np.cos(angle) + y * np.sin(angle)) / rng.uniform(5, 9)
    grain = rng.integers(0, 12, (SIZE, SIZE, 3), dtype=np.uint8)
    packets = []
    for t in range(FRAMES):
        grey = (np.sin(across + t * 0.2) * 90 + 120).astype(np.uint8)
        frame = grey[:, :, None] + np.roll(grain, t, axis=0)
        delta = np.diff(frame, axis=1, prepend=np.zeros((SIZE, 1, 3), np.uint8))
        packets.append(zlib.compress(delta.tobytes(), 1))
    with open(path, "wb") as file:
        file.write(struct.pack("<I", len(packets)))
        file.write(struct.pack(f"<{len(packets)}I", *map(len, packets)))
        file.write(b"".join(packets))


class VideoReader:
    def __init__(self, path):
        self.file = open(path, "rb")
        count = struct.unpack("<I", self.file.read(4))[0]
        sizes = np.frombuffer(self.file.read(4 * count), dtype="<u4").astype(np.int64)
        self.offsets = self.file.tell() + np.concatenate([[0], np.cumsum(sizes)])

    def __len__(self):
        return len(self.offsets) - 1

    def frame(self, number):
        self.file.seek(self.offsets[number])
        packet = self.file.read(int(self.offsets[number + 1] - self.offsets[number]))
        delta = np.frombuffer(zlib.decompress(packet), np.uint8).reshape(SIZE, SIZE, 3)
        return np.cumsum(delta, axis=1, dtype=np.uint8)

    def get_batch(self, numbers):
        return np.stack([self.frame(int(number)) for number in numbers])

    def close(self):
        self.file.close()


class ActionClips(Dataset):
    def __init__(self, paths, labels, seed):
        self.paths, self.labels, self.seed = paths, labels, seed

    def __len__(self):
        return len(self.paths) * CLIPS_PER_VIDEO

    def choose(self, length, rng):
        edges = np.linspace(0, length, SEGMENTS + 1)
        return (edges[:-1] + rng.random(SEGMENTS) * np.diff(edges)).astype(np.int64)

    def __getitem__(self, index):
        which = index % len(self.paths)
        rng = np.random.default_rng((self.seed, index))
        reader = VideoReader(self.paths[which])
        frames = reader.get_batch(range(len(reader)))
        clip = frames[self.choose(len(reader), rng)]
        reader.close()
        clip = torch.from_numpy(clip).permute(3, 0, 1, 2)
        return clip, self.labels[which]


def build_model():
    return nn.Sequential(
        nn.Conv3d(3, 12, (3, 5, 5), stride=(1, 4, 4), padding=(1, 2, 2)), nn.BatchNorm3d(12), nn.ReLU(),
        nn.Conv3d(12, 24, 3, stride=(1, 2, 2), padding=1), nn.BatchNorm3d(24), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(24, ACTIONS))


def train(folder):
    rng = np.random.default_rng(8)
    labels = [v % ACTIONS for v in range(VIDEOS)]
    paths = [os.path.join(folder, f"{v:03d}.vid") for v in range(VIDEOS)]
    for path, label in zip(paths, labels):
        write_video(path, label, rng)

    loader = DataLoader(ActionClips(paths, labels, 8), batch_size=8, shuffle=True, num_workers=2, prefetch_factor=3)
    model, loss_of = build_model(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    clips, right, start = 0, 0, time.perf_counter()
    for step, (clip, action) in enumerate(loader):
        scores = model(clip.float().div_(255))
        loss = loss_of(scores, action)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        clips += len(action)
        right += (scores.argmax(1) == action).sum().item()
        if step % 20 == 19:
            print(f"{step + 1:4d}/{len(loader)}  loss {loss.item():.3f}  accuracy {right / clips:.2f}")
    return clips / (time.perf_counter() - start)


if __name__ == "__main__":
    torch.manual_seed(8)
    torch.set_num_threads(1)
    scratch = tempfile.mkdtemp()
    try:
        print(f"throughput: {train(scratch):.1f} samples/s")
    finally:
        shutil.rmtree(scratch)
