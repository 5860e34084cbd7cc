"""Singing-voice separation: random chunks out of long stereo tracks, longer tracks are drawn more often."""
import os
import pathlib
import shutil
import struct
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

STARTED = time.perf_counter()
RATE = 44100
CHUNK = RATE // 2


def read_header(file):
    blocks, frames = struct.unpack("<II", file.read(8))
    return frames, np.frombuffer(file.read(4 * blocks), "<u4")


def read_audio(path, start=0, stop=None):
    """Decode a track of losslessly packed one-second blocks, or the part between two frames."""
    with open(path, "rb") as file:
        frames, sizes = read_header(file)
        stop = frames if stop is None else stop
        first, last = start // RATE, -(-stop // RATE)
        file.seek(int(sizes[:first].sum()), os.SEEK_CUR)
        pcm = b"".join(zlib.decompress(file.read(int(size))) for size in sizes[first:last])
    audio = np.frombuffer(pcm, "<i2").reshape(-1, 2)[start - first * RATE:stop - first * RATE]
    return audio.T.astype(np.float32) / 32768.0


def write_audio(path, audio):
    blocks = [zlib.compress(audio[i:i + RATE].tobytes(), 1) for i in range(0, len(audio), RATE)]
    with open(path, "wb") as file:
        file.write(struct.pack("<II", len(blocks), len(audio)))
        file.write(np.array([len(block) for block in blocks], "<u4").tobytes() + b"".join(blocks))


class MSSDataset(Dataset):
    def __init__(self, root, chunks):
        self.length = chunks
        self.metadata = self.get_metadata(sorted(pathlib.Path(root).glob("*/mixture.pak")))
        self.weights = np.array([n for _, n in self.metadata]) / sum(n for _, n in self.metadata)
        print(f"{len(self.metadata)} tracks")

    def get_metadata(self, mixtures):
        metadata = []
        for mixture in mixtures:
            audio = read_audio(mixture)
            if audio.shape[1] > CHUNK:
                metadata.append((mixture.parent, audio.shape[1]))
        return metadata

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        folder, frames = self.metadata[rng.choice(len(self.metadata), p=self.weights)]
        start = int(rng.integers(0, frames - CHUNK))
        mix = read_audio(folder / "mixture.pak", start, start + CHUNK)
        vocals = read_audio(folder / "vocals.pak", start, start + CHUNK)
        return torch.from_numpy(mix), torch.from_numpy(vocals)


def write_tracks(root, songs=420, originals=3, seconds=20):
    rng = np.random.default_rng(2)
    for song in range(songs):
        folder = pathlib.Path(root, f"song{song:04d}")
        folder.mkdir()
        for stem in ("mixture", "vocals"):
            if song < originals:
                noise = rng.integers(-500, 500, ((seconds + song) * RATE, 2), dtype=np.int16)
                write_audio(folder / f"{stem}.pak", noise)
            else:
                os.link(f"{root}/song{song % originals:04d}/{stem}.pak", folder / f"{stem}.pak")


class Separator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.encode = nn.Conv1d(2, width, 32, stride=16, padding=8)
        self.mask = nn.Sequential(*[layer for d in (1, 2, 4) for layer in
                                    (nn.Conv1d(width, width, 3, padding=d, dilation=d), nn.PReLU())])
        self.decode = nn.ConvTranspose1d(width, 2, 32, stride=16, padding=8)

    def forward(self, mix):
        z = self.encode(mix)
        return self.decode(z * self.mask(z).sigmoid())


def train_model(root, steps=80, batch_size=4):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = MSSDataset(root, steps * batch_size)
    model = Separator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for mix, vocals in DataLoader(dataset, batch_size, num_workers=1):
        estimate = model(mix)
        loss = (estimate - vocals[..., :estimate.shape[-1]]).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return len(dataset)


if __name__ == "__main__":
    root = tempfile.mkdtemp()
    try:
        write_tracks(root)
        chunks = train_model(root)
        print(f"throughput: {chunks / (time.perf_counter() - STARTED):.1f} samples/s")
    finally:
        shutil.rmtree(root)
