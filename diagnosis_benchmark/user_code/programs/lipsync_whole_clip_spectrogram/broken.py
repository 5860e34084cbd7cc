"""Does the sound belong to the mouth? An expert for lip synchronisation, after talking-head papers."""

import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, FFT, HOP, MELS, FPS, WINDOW, COLUMNS = 16000, 800, 200, 80, 25, 5, 16


def record_clips(root, clips=24, seconds=14, seed=7):
    rng = np.random.default_rng(seed)
    t = np.arange(RATE * seconds, dtype=np.float32) / RATE
    for c in range(clips):
        pitch = 90 + 8 * c
        loud = np.repeat(rng.random(seconds * FPS, dtype=np.float32), RATE // FPS)
        sound = loud * (np.sin(2 * np.pi * pitch * t) + 0.3 * np.sin(6 * np.pi * pitch * t))
        folder = root / f"clip{c:03d}"
        folder.mkdir()
        with wave.open(str(folder / "audio.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes((sound * 12000).astype("<i2").tobytes())
        still = rng.integers(0, 60, (seconds * FPS, 24, 32), dtype=np.uint8)
        np.save(folder / "mouths.npy", still + (loud[:: RATE // FPS, None, None] * 190).astype(np.uint8))


def mel_filters():
    top = 2595 * np.log10(1 + 7600 / 700)
    edges = 700 * (10 ** (np.linspace(40, top, MELS + 2) / 2595) - 1)
    f = np.linspace(0, RATE / 2, FFT // 2 + 1)
    low, mid, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    bank = np.maximum(0, np.minimum((f - low) / (mid - low), (high - f) / (high - mid)))
    return torch.from_numpy(bank.astype(np.float32))


class MelSpectrogram:
    def __init__(self):
        self.filters = mel_filters()
        self.window = torch.hann_window(FFT)

    def __call__(self, path):
        with wave.open(str(path)) as f:
            raw = f.readframes(f.getnframes())
        sound = torch.from_numpy(np.frombuffer(raw, "<i2").astype(np.float32) / 32768)
        sound[1:] = sound[1:] - 0.97 * sound[:-1].clone()
        power = torch.stft(sound, FFT, HOP, window=self.window, return_complex=True).abs()
        level = 20 * torch.log10(torch.clamp(self.filters @ power, min=1e-5))
        return torch.clamp((level + 80) / 10 - 4, -4, 4)


class SyncPairs(Dataset):
    def __init__(self, root, pairs_per_clip=90):
        self.clips = sorted(root.iterdir())
        self.pairs_per_clip = pairs_per_clip
        self.mel = MelSpectrogram()

    def __len__(self):
        return len(self.clips) * self.pairs_per_clip

    def __getitem__(self, i):
        folder = self.clips[i % len(self.clips)]
        mouths = np.load(folder / "mouths.npy", mmap_mode="r")
        rng = np.random.default_rng(i)
        first, other = rng.choice(len(mouths) - 2 * WINDOW, 2, replace=False)
        together = int(rng.random() < 0.5)
        mel = self.mel(folder / "audio.wav")
        at = int((first if together else other) * RATE / FPS / HOP)
        seen = torch.from_numpy(mouths[first : first + WINDOW].astype(np.float32) / 255)
        return seen, mel[None, :, at : at + COLUMNS].clone(), float(together)


class SyncNet(nn.Module):
    def __init__(self, dim=128):
        super().__init__()

        def conv(a, b, stride):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1), nn.BatchNorm2d(b), nn.ReLU())

        self.eye = nn.Sequential(conv(WINDOW, 32, 1), conv(32, 64, 2), conv(64, 64, 2), nn.Flatten())
        self.ear = nn.Sequential(conv(1, 32, 1), conv(32, 64, 2), conv(64, 64, 2), nn.Flatten())
        self.see, self.hear = nn.LazyLinear(dim), nn.LazyLinear(dim)

    def forward(self, mouths, mel):
        return torch.cosine_similarity(self.see(self.eye(mouths)).relu(), self.hear(self.ear(mel)).relu())


def main(batch_size=32, workers=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        record_clips(Path(name))
        start = time.perf_counter()
        data = SyncPairs(Path(name))
        loader = DataLoader(data, batch_size, shuffle=True, num_workers=workers, drop_last=True)
        net, count, running = SyncNet(), 0, 0.0
        net(torch.zeros(2, WINDOW, 24, 32), torch.zeros(2, 1, MELS, COLUMNS))
        adam = torch.optim.Adam(net.parameters(), lr=1e-4)
        for step, (mouths, mel, together) in enumerate(loader, 1):
            score = net(mouths, mel).clamp(1e-4, 1 - 1e-4)
            loss = nn.functional.binary_cross_entropy(score, together.float())
            adam.zero_grad()
            loss.backward()
            adam.step()
            running, count = running + loss.item(), count + len(mouths)
            if step % 20 == 0:
                print(f"{step}: loss {running / step:.4f}")
        print(f"throughput: {count / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
