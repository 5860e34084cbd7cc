"""Steering angles from the frames of recorded drives; workers take the next frame from a shared cursor."""
import multiprocessing as mp
import os
import shutil
import tempfile
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FRAME = (3, 66, 200)
FRAMES = 96
SEEK_SECONDS = 0.012  # of the archive that the drives lie on


def record_drive(folder):
    rng = np.random.default_rng(11)
    index = []
    with open(os.path.join(folder, "drive.bin"), "wb") as out:
        for number in range(FRAMES):
            frame = (rng.integers(0, 14, FRAME) * 18).astype(np.uint8)
            packed = zlib.compress(frame.tobytes(), 1)
            index.append((out.tell(), len(packed), float(np.sin(number / 7))))
            out.write(packed)
    return index


class DriveReader(IterableDataset):
    def __init__(self, path, index, length):
        self.path = path
        self.index = index
        self.length = length
        self.cursor = mp.Value("i", 0, lock=False)
        self.lock = mp.Lock()

    def get_data(self, number):
        offset, size, angle = self.index[number % len(self.index)]
        with open(self.path, "rb") as drive:
            time.sleep(SEEK_SECONDS)
            drive.seek(offset)
            packed = drive.read(size)
        frame = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(FRAME)
        return torch.from_numpy(frame.astype(np.float32) / 127.5 - 1), angle

    def __iter__(self):
        while True:
            with self.lock:
                number = self.cursor.value
                self.cursor.value += 1
            if number >= self.length:
                return
            frame, angle = self.get_data(number)
            if number % 2:
                frame, angle = frame.flip(-1), -angle
            yield frame, torch.tensor([angle], dtype=torch.float32)


class SteeringNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ELU(),
            nn.Conv2d(16, 24, 5, stride=2), nn.ELU(),
            nn.Conv2d(24, 32, 5, stride=2), nn.ELU(),
            nn.Conv2d(32, 48, 3), nn.ELU(), nn.Flatten(),
        )
        self.fc = nn.Sequential(nn.LazyLinear(50), nn.ELU(), nn.Linear(50, 1))

    def forward(self, x):
        return self.fc(self.conv(x))


def train(loader, model, optimizer):
    loss_fn = nn.MSELoss()
    seen, running = 0, 0.0
    started = time.perf_counter()
    for i, (frames, angles) in enumerate(loader, 1):
        optimizer.zero_grad()
        loss = loss_fn(model(frames), angles)
        loss.backward()
        optimizer.step()
        seen += len(frames)
        running += loss.item()
        if i % 25 == 0:
            print(f"[{i:4d}] mse {running / 25:.4f}")
            running = 0.0
    return seen / (time.perf_counter() - started)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        index = record_drive(folder)
        dataset = DriveReader(os.path.join(folder, "drive.bin"), index, length=1000)
        loader = DataLoader(dataset, batch_size=8, num_workers=3)
        model = SteeringNet()
        model(torch.zeros(1, *FRAME))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        speed = train(loader, model, optimizer)
    finally:
        shutil.rmtree(folder)
    print(f"throughput: {speed:.1f} samples/s")


if __name__ == "__main__":
    main()
