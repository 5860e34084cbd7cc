"""Keyword spotting on one-second wav files with log-mel features."""
import argparse
import math
import os
import tempfile
import time
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 16000
WORDS = ("yes", "no", "stop", "go", "left", "right")


def synthesize(folder, per_word, rng):
    t = np.arange(RATE) / RATE
    for k, word in enumerate(WORDS):
        os.makedirs(os.path.join(folder, word))
        for n in range(per_word):
            tone = np.sin(2 * np.pi * (220 * (k + 1) + rng.integers(40)) * t) * np.exp(-3 * t)
            pcm = ((0.4 * tone + 0.05 * rng.standard_normal(RATE)) * 32767).clip(-32768, 32767).astype("<i2")
            with wave.open(os.path.join(folder, word, f"{n:04d}.wav"), "wb") as w:
                w.setnchannels(1)
                w.setsampwidth(2)
                w.setframerate(RATE)
                w.writeframes(pcm.tobytes())


def to_mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_filters(n_fft, n_mels, low=20.0, high=RATE / 2):
    bins = [k * RATE / n_fft for k in range(n_fft // 2 + 1)]
    edges = [to_hz(to_mel(low) + (to_mel(high) - to_mel(low)) * j / (n_mels + 1)) for j in range(n_mels + 2)]
    bank = torch.zeros(n_mels, len(bins))
    for m in range(n_mels):
        left, centre, right = edges[m : m + 3]
        rows = [max(0.0, min((f - left) / (centre - left), (right - f) / (right - centre))) for f in bins]
        bank[m] = torch.tensor(rows)
    return bank


class LogMel:
    def __init__(self, n_fft=256, hop=128, n_mels=32):
        self.n_fft, self.hop, self.n_mels = n_fft, hop, n_mels
        self.window = torch.hann_window(n_fft)

    def __call__(self, signal):
        power = torch.stft(signal, self.n_fft, self.hop, window=self.window, return_complex=True).abs().square()
        bank = mel_filters(self.n_fft, self.n_mels)
        return torch.log(bank @ power + 1e-6)


class Commands(Dataset):
    def __init__(self, folder, transform):
        self.items = [(os.path.join(folder, w, f), k) for k, w in enumerate(WORDS) for f in sorted(os.listdir(os.path.join(folder, w)))]
        self.transform = transform

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        with wave.open(path) as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        signal = torch.from_numpy(pcm.astype(np.float32) / 32768.0)
        signal = torch.roll(signal, int(torch.randint(-1600, 1600, (1,))))
        return self.transform(signal), label


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(32, 96, 5, stride=2), nn.ReLU(), nn.Conv1d(96, 96, 5), nn.ReLU())
        self.rnn = nn.GRU(96, 64, batch_first=True)
        self.head = nn.Linear(64, len(WORDS))

    def forward(self, x):
        out, _ = self.rnn(self.conv(x).transpose(1, 2))
        return self.head(out[:, -1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        synthesize(folder, 80, np.random.default_rng(5))
        loader = DataLoader(Commands(folder, LogMel()), batch_size=args.batch, shuffle=True,
                            num_workers=args.workers, persistent_workers=True)
        model = Spotter()
        optim = torch.optim.AdamW(model.parameters(), lr=2e-3)
        done = samples = 0
        for epoch in range(args.epochs):
            for feats, label in loader:
                loss = nn.functional.cross_entropy(model(feats), label)
                optim.zero_grad()
                loss.backward()
                optim.step()
                done += 1
                samples += len(label) if done > 5 else 0
                if done == 5:
                    start = time.perf_counter()
            print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
        seconds = time.perf_counter() - start
        del loader
    print(f"throughput: {samples / seconds:.1f} samples/s")


main()
