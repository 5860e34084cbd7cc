# %% Keyword spotting with room augmentation
import io
import time
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(31)
torch.set_num_threads(1)
rng = np.random.default_rng(31)
RATE, SECONDS, WORDS, BATCH = 8000, 1.0, 8, 12

# %% recordings as WAV files in memory, rooms as impulse responses


def speak(word):
    t = np.arange(int(RATE * SECONDS)) / RATE
    tone = sum(np.sin(2 * np.pi * (180 + 70 * word) * k * t + rng.uniform(0, 6)) / k for k in (1, 2, 3, 5))
    tone *= np.exp(-((t - rng.uniform(0.3, 0.7)) / 0.2) ** 2)
    samples = (tone * 6000 + rng.normal(0, 300, len(t))).astype("<i2")
    target = io.BytesIO()
    with wave.open(target, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes(samples.tobytes())
    return target.getvalue()


words = rng.integers(0, WORDS, 600)
clips = [speak(word) for word in words]
rooms = rng.normal(size=(20, 2800)) * np.exp(-np.arange(2800) / 900)
rooms /= np.abs(rooms).sum(1, keepdims=True)

# %% dataset


class Keywords(Dataset):
    window = torch.hann_window(400)

    def __len__(self):
        return len(clips)

    def __getitem__(self, index):
        with wave.open(io.BytesIO(clips[index])) as source:
            dry = np.frombuffer(source.readframes(source.getnframes()), "<i2") / 32768
        impulse = rooms[np.random.randint(len(rooms))]
        wet = np.convolve(dry, impulse)[:len(dry)]
        tempo = np.random.uniform(0.9, 1.1)
        wet = np.interp(np.arange(0, len(wet), tempo), np.arange(len(wet)), wet)
        wet = np.resize(wet, len(dry)).astype("float32")
        spectrum = torch.stft(torch.from_numpy(wet), 1024, 32, 400, self.window, return_complex=True).abs()
        bands = nn.functional.adaptive_avg_pool2d(spectrum[None].square(), (48, 100))
        return bands.add(1e-6).log(), int(words[index])


# %% model and loop
model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(24, 40, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(40, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
    nn.Flatten(), nn.Linear(128, WORDS))
optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
np.random.seed(31)
loader = DataLoader(Keywords(), BATCH, shuffle=True)

done = 0
for epoch in range(4):
    for bands, word in loader:
        loss = nn.functional.cross_entropy(model(bands), word)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == 5:
            t0 = time.perf_counter()
    print(f"epoch {epoch + 1}: {loss.item():.3f}")

# %%
t1 = time.perf_counter()
print(f"throughput: {(done - 5) * BATCH / (t1 - t0):.1f} samples/s")
