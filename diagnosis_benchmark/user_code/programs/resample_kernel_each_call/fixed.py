"""Keyword spotting on recordings from several phones, all brought to 16 kHz while loading."""
import math
import os
import shutil
import tempfile
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATES = (44100, 22050, 11025)
TARGET_RATE = 16000
WORDS = 6
N_CLIPS = 240
BATCH = 8
EPOCHS = 3


class Resample:
    """Band-limited interpolation with a windowed sinc, one filter for each output phase."""

    def __init__(self, orig, new, zeros=6, rolloff=0.99):
        divisor = math.gcd(orig, new)
        self.orig, self.new = orig // divisor, new // divisor
        base = min(self.orig, self.new) * rolloff
        self.width = math.ceil(zeros * self.orig / base)
        idx = torch.arange(-self.width, self.width + self.orig, dtype=torch.float64)
        filters = []
        for phase in range(self.new):
            t = (-phase / self.new + idx / self.orig) * base
            t = t.clamp(-zeros, zeros)
            window = torch.cos(t * math.pi / zeros / 2) ** 2
            t = t * math.pi
            sinc = torch.where(t == 0, torch.ones_like(t), torch.sin(t) / t)
            filters.append(sinc * window)
        self.kernel = (torch.stack(filters)[:, None] * base / self.orig).float()

    def __call__(self, clip):
        length = math.ceil(self.new * clip.numel() / self.orig)
        padded = F.pad(clip[None, None], (self.width, self.width + self.orig))
        out = F.conv1d(padded, self.kernel, stride=self.orig)
        return out.transpose(1, 2).reshape(-1)[:length]


class PhoneRecordings(Dataset):
    def __init__(self, root):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.window = torch.hann_window(400)
        self.resamplers = {}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with wave.open(self.files[i]) as w:
            rate = w.getframerate()
            samples = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        clip = torch.from_numpy(samples / 32768).float()
        if rate not in self.resamplers:
            self.resamplers[rate] = Resample(rate, TARGET_RATE)
        clip = self.resamplers[rate](clip)[: TARGET_RATE // 2]
        spec = torch.stft(clip, 400, 160, window=self.window, return_complex=True).abs()
        return torch.log1p(spec), int(self.files[i].split("_")[-1][:-4])


def make_recordings(root):
    rng = np.random.default_rng(7)
    for i in range(N_CLIPS):
        rate, word = RATES[i % len(RATES)], i % WORDS
        t = np.arange(rate // 2 + 64) / rate
        tone = 0.4 * np.sin(2 * np.pi * (200 + 150 * word) * t) + 0.05 * rng.standard_normal(t.size)
        with wave.open(os.path.join(root, f"clip{i:04d}_{word}.wav"), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(rate)
            w.writeframes((tone * 20000).astype("<i2").tobytes())


def build_model():
    return nn.Sequential(
        nn.Conv1d(201, 192, 5, padding=2), nn.ReLU(), nn.Conv1d(192, 192, 5, padding=2), nn.ReLU(),
        nn.Conv1d(192, 192, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(192, WORDS),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="phones_")
    try:
        make_recordings(root)
        loader = DataLoader(PhoneRecordings(root), batch_size=BATCH, shuffle=True, num_workers=2,
                            persistent_workers=True, drop_last=True)
        model = build_model()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        seen, start = 0, time.perf_counter()
        for epoch in range(EPOCHS):
            for step, (spec, word) in enumerate(loader):
                loss = F.cross_entropy(model(spec), word)
                opt.zero_grad()
                loss.backward()
                opt.step()
                seen += len(word)
                if step % 10 == 0:
                    print(f"epoch {epoch} step {step:3d} loss {loss.item():.3f}")
        print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
