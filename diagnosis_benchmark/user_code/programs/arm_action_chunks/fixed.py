"""Behaviour cloning with action chunks on a recorded pick-and-place set (one wrist camera)."""
import argparse
import io
import os
import tempfile
import time

import numpy as np
import torch
from datasets import Dataset as ArrowDataset
from datasets import Features, Image, List, Value, load_from_disk
from PIL import Image as PILImage
from torch import nn
from torch.utils.data import DataLoader, Dataset

CAMERA = "observation.images.wrist"


def record_episodes(folder, episodes, length, side=112):
    rng = np.random.default_rng(3)
    rows = {CAMERA: [], "observation.state": [], "action": [], "frame": []}
    for _ in range(episodes):
        backdrop = rng.integers(0, 255, (side // 8, side // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        path = np.cumsum(rng.normal(0, 0.05, (length, 7)), axis=0)
        for frame in range(length):
            shown = np.roll(backdrop, int(20 * path[frame, 0]), axis=1)
            file = io.BytesIO()
            PILImage.fromarray(shown).save(file, "JPEG", quality=90)
            rows[CAMERA].append({"bytes": file.getvalue(), "path": None})
            rows["observation.state"].append(path[frame].tolist())
            rows["action"].append((path[min(frame + 1, length - 1)] - path[frame]).tolist())
            rows["frame"].append(frame)
    joints = List(Value("float32"), length=7)
    features = Features({CAMERA: Image(), "observation.state": joints, "action": joints, "frame": Value("int64")})
    ArrowDataset.from_dict(rows, features=features).save_to_disk(folder)


def to_torch(rows):
    for key, values in rows.items():
        if isinstance(values[0], PILImage.Image):
            rows[key] = [torch.from_numpy(np.array(v)).permute(2, 0, 1).float() / 255 for v in values]
        else:
            rows[key] = [torch.tensor(v) for v in values]
    return rows


class ArmDataset(Dataset):
    def __init__(self, folder, length, chunk, past):
        self.table = load_from_disk(folder)
        self.table.set_transform(to_torch)
        self.length = length
        self.views = {key: self.table.select_columns([key]) for key in ("action", "observation.state")}
        self.offsets = {"action": range(chunk), "observation.state": range(-past, 1)}

    def __len__(self):
        return len(self.table)

    def around(self, index):
        first = index - index % self.length
        found = {}
        for key, offsets in self.offsets.items():
            wanted = [min(max(index + o, first), first + self.length - 1) for o in offsets]
            found[key] = torch.stack(self.views[key][wanted][key])
        return found

    def __getitem__(self, index):
        item = self.table[index]
        item.update(self.around(index))
        return item


class Policy(nn.Module):
    def __init__(self, chunk, past):
        super().__init__()
        self.chunk = chunk
        self.see = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.Conv2d(32, 48, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.act = nn.Sequential(nn.Linear(48 * 9 + 7 * (past + 1), 512), nn.ReLU(), nn.Linear(512, 7 * chunk))

    def forward(self, image, state):
        return self.act(torch.cat([self.see(image), state.flatten(1)], dim=1)).view(-1, self.chunk, 7)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--past", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory(prefix="arm") as folder:
        record_episodes(os.path.join(folder, "set"), episodes=12, length=60)
        data = ArmDataset(os.path.join(folder, "set"), 60, args.chunk, args.past)
        loader = DataLoader(data, args.batch_size, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True)
        policy = Policy(args.chunk, args.past)
        optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-4)
        step, begin = 0, time.perf_counter()
        while step < args.steps:
            for batch in loader:
                predicted = policy(batch[CAMERA], batch["observation.state"])
                loss = nn.functional.l1_loss(predicted, batch["action"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                if step % 20 == 0:
                    print(f"step {step} l1 {loss.item():.4f}")
                if step == args.steps:
                    break
        elapsed = time.perf_counter() - begin
    print(f"throughput: {step * args.batch_size / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
