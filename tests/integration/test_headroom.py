"""`whyidle run --headroom`: the same training, and beside it what an infinitely fast loader would give."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import warm
from runs import WITHOUT_COMPILER, report, run
from whyidle.analyse.recent.reader import RecentReader

WORKERS = (0, 2)
TRAIN = (
    WITHOUT_COMPILER
    + """
import hashlib, json, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 600
    def __getitem__(self, index):
        time.sleep(0.007)
        image = torch.full((16,), float(index % 7))
        # Augmentation, where workers draw it from generators of their own.
        return image + torch.rand(16) if torch.utils.data.get_worker_info() else image

def main(workers, results):
    torch.manual_seed(3); torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Images(), batch_size=4, shuffle=True, num_workers=workers)
    computed, steps, losses = 0.0, 0, []
    for images in loader:
        begin = time.perf_counter()
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        time.sleep(0.006)
        computed += time.perf_counter() - begin
        steps += 1
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), losses, torch.rand(1).item())
    json.dump({"samples_per_s": 4 * steps / computed, "steps": steps}, open(results, "w"))

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
"""
)


Ended = subprocess.CompletedProcess[str]


def trained(folder: Path, workers: int) -> tuple[Ended, Ended]:
    """The training without us, and recorded."""
    (folder / "train.py").write_text(TRAIN)
    command = (sys.executable, folder / "train.py", str(workers), folder / "truth.json")
    bare = subprocess.run(command, capture_output=True, text=True, check=True)
    return bare, run(folder / "run", *command, options=("--no-live", "--headroom"))


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[Path, Ended, Ended]]:
    """Workers → the folder and the runs of a training; both at a time, since they sleep nearly always."""
    folders = {workers: tmp_path_factory.mktemp(f"workers{workers}") for workers in WORKERS}
    with ThreadPoolExecutor(len(WORKERS)) as pool:
        runs = {workers: pool.submit(trained, folder, workers) for workers, folder in folders.items()}
    return {workers: (folders[workers], *done.result()) for workers, done in runs.items()}


@pytest.mark.parametrize("workers", WORKERS)
def test_headroom_is_what_the_computation_alone_would_give(
    trainings: dict[int, tuple[Path, Ended, Ended]], workers: int
) -> None:
    folder, bare, done = trainings[workers]
    assert done.returncode == 0, done.stderr
    # Losses, weights and what the generators give next, to the last bit.
    assert done.stdout == bare.stdout
    assert "Headroom: an infinitely fast loader" in done.stderr

    alone = json.loads((folder / "truth.json").read_text())
    seen = report(folder / "run")
    headroom, window = seen["headroom"], seen["window"]
    assert headroom["method"] == "replay"
    assert headroom["reason"] is None
    assert headroom["stretches"] == 1
    assert headroom["low"] <= headroom["samples_per_s"] <= headroom["high"]
    # Of a machine that others use too.
    assert alone["samples_per_s"] / 1.5 < headroom["samples_per_s"] < 1.5 * alone["samples_per_s"]
    # What the rest of the run says of itself agrees.
    predicted = 1 / (1 - seen["breakdown"]["input_pct"] / 100)
    assert predicted / 1.4 < headroom["speedup"] < 1.4 * predicted
    assert headroom["speedup"] > 1.2
    # The stretch is in no other figure.
    stretched = [note for note in seen["quality"]["notes"] if note.startswith("Headroom: 24 steps")]
    assert len(stretched) == 1
    recovered = int(stretched[0].split(" and ")[1].split()[0])
    assert window["steps"] + window["warmup_steps"] == alone["steps"] - 24 - recovered
    assert (recovered >= 4) == (workers > 0)
    assert seen["breakdown"]["boundary_pct"] < 3
    assert sum(seen["breakdown"].values()) == pytest.approx(100)
    # The live view as well.
    assert RecentReader(folder / "run").snapshot().steps > 0


def test_why_there_is_no_headroom_is_said(tmp_path: Path) -> None:
    loop = f"{WITHOUT_COMPILER}\nw = torch.zeros(1, requires_grad=True); o = torch.optim.SGD([w], 0.1)\n"
    loop += "for _ in range(80): (w * 2).sum().backward(); o.step()\n"
    done = warm.run(tmp_path / "run", sys.executable, "-c", loop, options=("--no-live", "--headroom"))
    assert done.returncode == 0
    headroom = report(tmp_path / "run")["headroom"]
    assert (headroom["samples_per_s"], headroom["speedup"]) == (None, None)
    assert "not fed by one torch DataLoader alone" in headroom["reason"]
    assert "Headroom was not measured: its steps" in " ".join(done.stderr.split())
