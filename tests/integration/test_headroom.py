"""`whyidle run --headroom`: the same training, and beside it what an infinitely fast loader would give."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import support.warm as warm
from support.runs import WITHOUT_COMPILER, report
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.run.headroom import SETTLING
from whyidle.record.run import open_run
from whyidle.record.schema import STEP, StepFlag

STRETCH = 24
BATCH = 4
TRAIN = (
    WITHOUT_COMPILER
    + """
import hashlib, json, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    made = 0
    def __len__(self):
        return 600
    def __getitem__(self, index):
        self.made += 1
        time.sleep(0.001)
        image = torch.full((16,), float(index % 7))
        # Augmentation, where workers draw it from generators of their own.
        return image + torch.rand(16) if torch.utils.data.get_worker_info() else image

def main(workers, results):
    torch.manual_seed(3); torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    images = Images()
    loader = DataLoader(images, batch_size=4, shuffle=True, num_workers=workers)
    steps, losses = [], []
    for batch in loader:
        begin = time.monotonic_ns()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        time.sleep(0.002)
        steps.append((begin, time.monotonic_ns(), images.made))
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), losses, torch.rand(1).item())
    json.dump(steps, open(results, "w"))

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
"""
)


@pytest.mark.parametrize("workers", [0, 2])
def test_headroom_is_the_rate_of_a_stretch_that_waited_for_nothing(tmp_path: Path, workers: int) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = (tmp_path / "train.py", str(workers), tmp_path / "steps.json")
    bare = warm.bare(*command)
    assert bare.returncode == 0, bare.stderr
    done = warm.run(tmp_path / "run", sys.executable, *command, options=("--no-live", "--headroom"))
    assert done.returncode == 0, done.stderr
    # Losses, weights and what the generators give next, to the last bit.
    assert done.stdout == bare.stdout
    assert "Headroom: an infinitely fast loader" in done.stderr

    seen = report(tmp_path / "run")
    headroom, window = seen["headroom"], seen["window"]
    assert headroom["method"] == "replay"
    assert headroom["reason"] is None
    assert headroom["stretches"] == 1
    assert headroom["low"] <= headroom["samples_per_s"] <= headroom["high"]
    assert headroom["speedup"] > 0
    begins, ends, made = np.array(json.loads((tmp_path / "steps.json").read_text()), dtype=np.int64).T
    steps = open_run(tmp_path / "run").records(STEP)
    stretch = steps["step"][(steps["flags"] & StepFlag.HEADROOM) != 0].tolist()
    assert stretch == list(range(stretch[0], stretch[0] + STRETCH))
    first, last = stretch[SETTLING], stretch[-1]
    if workers == 0:
        # The training made no sample meanwhile.
        assert made[last] == made[first]
    # By the training's own clock: the rate lies between those with and without what is around its steps.
    samples = BATCH * (last + 1 - first) * 1e9
    assert samples / (begins[last + 1] - ends[first - 1]) <= headroom["samples_per_s"]
    assert headroom["samples_per_s"] <= samples / (ends[last] - begins[first])
    # The stretch is in no other figure.
    stretched = [note for note in seen["quality"]["notes"] if note.startswith(f"Headroom: {STRETCH} steps")]
    assert len(stretched) == 1
    recovered = int(stretched[0].split(" and ")[1].split()[0])
    assert window["steps"] + window["warmup_steps"] == len(begins) - STRETCH - recovered
    assert (recovered >= 4) == (workers > 0)
    assert sum(seen["breakdown"].values()) == pytest.approx(100)
    # The live view as well.
    assert RecentReader(tmp_path / "run").snapshot().steps > 0
