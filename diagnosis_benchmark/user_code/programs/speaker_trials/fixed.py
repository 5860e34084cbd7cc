"""Speaker embeddings: train a small TDNN on crops, report the EER of a trial list after each epoch."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATE, SPEAKERS, BATCH, STEPS = 8000, 24, 32, 24


def synth_voice(speaker, take, seconds):
    rng = np.random.default_rng(1000 * speaker + take)
    t = np.arange(int(RATE * seconds)) / RATE
    pitch = 90 + 4.1 * speaker + rng.normal(0, 1.5)
    wave = np.zeros_like(t)
    for k in range(1, 7):
        wave += np.sin(2 * np.pi * k * pitch * t + rng.uniform(0, 6)) / (k + 0.3 * (speaker % 5))
    return torch.from_numpy((wave + rng.normal(0, 0.4, t.shape)).astype(np.float32))


class Logmel(nn.Module):
    def __init__(self, bands=40, n_fft=256, hop=80):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        centres = torch.linspace(0, n_fft // 2, bands + 2)
        bins = torch.arange(n_fft // 2 + 1).float()
        width = centres[1] - centres[0]
        self.register_buffer("bank", (1 - (bins[None] - centres[1:-1, None]).abs() / width).clamp(min=0))

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True).abs() ** 2
        return torch.log(self.bank @ spec + 1e-5)


class Crops(Dataset):
    def __init__(self, voices, length, draws):
        self.voices, self.length, self.draws = voices, length, draws

    def __len__(self):
        return self.draws

    def __getitem__(self, i):
        speaker, wave = self.voices[i % len(self.voices)]
        g = torch.Generator().manual_seed(i)
        at = int(torch.randint(0, wave.numel() - self.length, (1,), generator=g))
        return wave[at:at + self.length].clone(), speaker


def build(speakers):
    tdnn = nn.Sequential(
        Logmel(),
        nn.Conv1d(40, 64, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(64),
        nn.Conv1d(64, 64, 3, dilation=2, padding=2), nn.ReLU(), nn.BatchNorm1d(64),
        nn.Conv1d(64, 64, 3, dilation=3, padding=3), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 48),
    )
    return tdnn, nn.Linear(48, speakers)


def voiceprint(tdnn, wave):
    return F.normalize(tdnn(wave[None]), dim=-1)[0]


@torch.no_grad()
def equal_error_rate(tdnn, heldout, trials):
    tdnn.eval()
    scores, same = [], []
    used = sorted({i for pair in trials for i in pair[:2]})
    prints = {i: voiceprint(tdnn, heldout[i]) for i in used}
    for first, second, target in trials:
        scores.append(float(prints[first] @ prints[second]))
        same.append(target)
    tdnn.train()
    order, same = np.argsort(-np.array(scores)), np.array(same)
    hits = np.cumsum(same[order]) / max(1, same.sum())
    alarms = np.cumsum(1 - same[order]) / max(1, (1 - same).sum())
    k = int(np.argmin(np.abs(1 - hits - alarms)))
    return 50 * (1 - hits[k] + alarms[k])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--trials", type=int, default=500)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    voices = [(s, synth_voice(s, take, 3.0)) for s in range(SPEAKERS) for take in range(6)]
    heldout = [synth_voice(s, 50 + take, 4.0) for s in range(0, SPEAKERS, 2) for take in range(2)]
    rng = np.random.default_rng(3)
    trials = []
    for _ in range(args.trials):
        a = int(rng.integers(len(heldout)))
        b = int(rng.integers(len(heldout))) if rng.random() < 0.5 else a // 2 * 2 + int(rng.integers(2))
        trials.append((a, b, int(a // 2 == b // 2)))
    loader = DataLoader(Crops(voices, 12000, BATCH * STEPS), batch_size=BATCH, shuffle=True,
                        num_workers=1, persistent_workers=True)
    tdnn, head = build(SPEAKERS)
    optimiser = torch.optim.Adam([*tdnn.parameters(), *head.parameters()], lr=2e-3)
    seen, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for wave, speaker in loader:
            loss = F.cross_entropy(head(tdnn(wave)), speaker)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            running += float(loss.detach())
            seen += len(speaker)
        eer = equal_error_rate(tdnn, heldout, trials)
        print(f"epoch {epoch}: loss {running / STEPS:.3f}  eer {eer:.1f} %", flush=True)
    print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
