"""Train a keyword spotter on log-mel spectrograms, with bands of frequency and time masked out."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

MELS, FRAMES, WORDS = 80, 200, 12


class Spectrograms(Dataset):
    """Two formants that move, depending on the word, on a floor of noise."""

    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        t = torch.arange(FRAMES) / FRAMES
        mel = torch.arange(MELS).unsqueeze(1)
        self.words = torch.randint(WORDS, (count,), generator=g)
        self.specs = 0.3 * torch.randn(count, MELS, FRAMES, generator=g) - 4.0
        for spec, word in zip(self.specs, self.words.tolist()):
            for formant in (10 + 3 * word, 50 - 2 * word):
                spec += torch.exp(-((mel - formant - (word - 6) * torch.sin(3.0 * t)) ** 2) / 8.0)

    def __len__(self):
        return len(self.specs)

    def __getitem__(self, index):
        return self.specs[index], self.words[index]


class SpecAugment(nn.Module):
    def __init__(self, freq_masks=8, time_masks=40, freq_width=6, time_width=8, seed=0):
        super().__init__()
        self.freq_masks, self.time_masks = freq_masks, time_masks
        self.freq_width, self.time_width = freq_width, time_width
        self.rng = torch.Generator().manual_seed(seed)

    def bands(self, batch, masks, length, width):
        start = torch.randint(0, length - width + 1, (batch, masks, 1), generator=self.rng)
        stop = start + torch.randint(0, width + 1, (batch, masks, 1), generator=self.rng)
        place = torch.arange(length)
        return ((place >= start) & (place < stop)).any(dim=1)

    @torch.no_grad()
    def forward(self, specs):
        batch, mels, frames = specs.shape
        hidden_mels = self.bands(batch, self.freq_masks, mels, self.freq_width)
        hidden_frames = self.bands(batch, self.time_masks, frames, self.time_width)
        hidden = hidden_mels.unsqueeze(2) | hidden_frames.unsqueeze(1)
        return torch.where(hidden, specs.mean(dim=(1, 2), keepdim=True), specs)


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, 96, 5, stride=4, padding=2)
        self.conv2 = nn.Conv1d(96, 96, 5, stride=2, padding=2)
        self.conv3 = nn.Conv1d(96, 128, 3, stride=2, padding=1)
        self.out = nn.Linear(128, WORDS)

    def forward(self, x):
        for conv in (self.conv1, self.conv2, self.conv3):
            x = F.relu(conv(x))
        return self.out(x.mean(dim=2))


def train_epoch(model, augment, loader, optimizer):
    total, count = 0.0, 0
    for specs, words in loader:
        specs = augment(specs)
        loss = F.cross_entropy(model(specs), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(words)
        count += len(words)
    return total / count, count


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Spectrograms(512), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
    model, augment = KeywordNet(), SpecAugment()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen, start = 0, time.perf_counter()
    for epoch in range(18):
        loss, count = train_epoch(model, augment, loader, optimizer)
        seen += count
        print(f"epoch {epoch + 1} loss {loss:.3f}")
    print(f"throughput: {seen / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
