"""Speech commands in short sentences: convolutions and a GRU under CTC, progress in words on the console."""
import dataclasses
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = " abcdefghijklmnopqrstuvwxyz"          # 0 is the blank of CTC
WORDS = "go stop left right up down on off yes no lamp door open close red blue".split()


@dataclasses.dataclass
class Options:
    clips: int = 1440
    epochs: int = 2
    batch_size: int = 16
    frames: int = 72
    beam: int = 12
    display_step: int = 30


class Sentences(Dataset):
    """Every letter sounds as a tone of its own, with noise; the spectrogram is made when it is asked for."""

    def __init__(self, options):
        self.options = options
        generator = torch.Generator().manual_seed(3)
        picks = torch.randint(len(WORDS), (options.clips, 3), generator=generator)
        self.texts = [" ".join(WORDS[w] for w in row) for row in picks.tolist()]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index]
        generator = torch.Generator().manual_seed(index)
        codes = torch.tensor([ALPHABET.index(c) for c in text])
        per_letter = self.options.frames * 128 // len(codes)
        pitch = (codes + 4).repeat_interleave(per_letter) * (math.pi / 34)
        wave = torch.sin(torch.cumsum(pitch, 0)) + 0.3 * torch.randn(len(pitch), generator=generator)
        spec = torch.stft(wave, 256, 128, window=torch.hann_window(256), return_complex=True).abs()
        return torch.log1p(spec[:64, : self.options.frames - 1]), codes + 1, text


def collate(items):
    specs, codes, texts = zip(*items)
    width = min(spec.shape[1] for spec in specs)
    lengths = torch.tensor([len(c) for c in codes])
    return torch.stack([spec[:, :width] for spec in specs]), torch.cat(codes), lengths, list(texts)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(64, 96, 5, padding=2), nn.ReLU(), nn.Conv1d(96, 96, 5, padding=2), nn.ReLU())
        self.gru = nn.GRU(96, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, len(ALPHABET) + 1)

    def forward(self, specs):
        states, _ = self.gru(self.front(specs).transpose(1, 2))
        return self.head(states).log_softmax(-1)


def beam_search(frames, width):
    """Prefix beam search over the few likely letters of each frame."""
    beams = {(): (1.0, 0.0)}
    for frame in frames:
        likely = sorted(range(len(frame)), key=frame.__getitem__, reverse=True)[:width]
        grown = {}
        for prefix, (blank, ended) in beams.items():
            for code in likely:
                p = frame[code]
                if code == 0:
                    b, e = grown.get(prefix, (0.0, 0.0))
                    grown[prefix] = (b + p * (blank + ended), e)
                elif prefix and prefix[-1] == code:
                    b, e = grown.get(prefix, (0.0, 0.0))
                    grown[prefix] = (b, e + p * ended)
                    b, e = grown.get(prefix + (code,), (0.0, 0.0))
                    grown[prefix + (code,)] = (b, e + p * blank)
                else:
                    b, e = grown.get(prefix + (code,), (0.0, 0.0))
                    grown[prefix + (code,)] = (b, e + p * (blank + ended))
        beams = dict(sorted(grown.items(), key=lambda item: -sum(item[1]))[:width])
    return "".join(ALPHABET[code - 1] for code in next(iter(beams)))


def word_errors(said, meant):
    row = list(range(len(meant) + 1))
    for i, word in enumerate(said, 1):
        last, row[0] = row[0], i
        for j, other in enumerate(meant, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (word != other))
    return row[-1]


def calculate_wer(log_probs, texts, beam):
    decoded = [beam_search(frames, beam) for frames in log_probs.detach().exp().tolist()]
    wrong = sum(word_errors(said.split(), meant.split()) for said, meant in zip(decoded, texts))
    return wrong / sum(len(text.split()) for text in texts)


def run(options):
    torch.manual_seed(5)
    torch.set_num_threads(1)
    loader = DataLoader(Sentences(options), options.batch_size, shuffle=True, num_workers=1,
                        collate_fn=collate, persistent_workers=True)
    model = Recogniser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, start = 0, time.perf_counter()
    for _ in range(options.epochs):
        for specs, codes, lengths, texts in loader:
            log_probs = model(specs)
            widths = torch.full((len(specs),), log_probs.shape[1])
            loss = nn.functional.ctc_loss(log_probs.transpose(0, 1), codes, widths, lengths, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % options.display_step == 0:
                wer = calculate_wer(log_probs, texts, options.beam)
                print(f"step {step:4d}  loss {loss.item():7.3f}  WER {wer:.2f}")
            step += 1
    elapsed = time.perf_counter() - start
    print(f"throughput: {step * options.batch_size / elapsed:.1f} samples/s")


if __name__ == "__main__":
    run(Options())
