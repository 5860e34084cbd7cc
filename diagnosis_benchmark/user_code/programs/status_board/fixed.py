"""Gesture recogniser on wrist accelerometer traces, with a little text board
that shows how the run is doing."""
import collections
import pathlib
import shutil
import statistics
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "traces": 2880,
    "length": 256,
    "gestures": 6,
    "batch": 32,
    "epochs": 4,
    "lr": 2e-3,
    "history": 3000,
    "board_every": 1.0,
}


class Traces(Dataset):
    def __init__(self, root):
        self.data = np.load(root / "traces.npy", mmap_mode="r")
        self.kind = np.load(root / "kind.npy")

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        trace = np.array(self.data[i], dtype=np.float32)
        trace -= trace.mean(axis=1, keepdims=True)
        return torch.from_numpy(trace), int(self.kind[i])


class Board(threading.Thread):
    """Writes quantiles of the scores per gesture into a file that a terminal can watch."""

    def __init__(self, path, every):
        super().__init__(daemon=True)
        self.path, self.every = path, every
        self.recent = collections.deque(maxlen=CONFIG["history"])
        self.quit = threading.Event()

    def note(self, scores):
        self.recent.extend(scores.tolist())

    def render(self):
        rows = list(self.recent)
        lines = [f"{len(rows)} samples"]
        for gesture in range(CONFIG["gestures"]):
            mine = [row[gesture] for row in rows]
            if len(mine) < 4:
                continue
            cuts = statistics.quantiles(mine, n=20)
            centre, spread = statistics.fmean(mine), statistics.pstdev(mine)
            bar = "".join("#" if c > centre else "." for c in cuts)
            lines.append(f"{gesture}  {bar}  {centre:.3f} +- {spread:.3f}")
        return "\n".join(lines)

    def run(self):
        while not self.quit.wait(self.every):
            page = self.render()
            self.path.write_text(page)


class Trainer:
    def __init__(self, root):
        torch.manual_seed(CONFIG["traces"])
        self.loader = DataLoader(Traces(root), batch_size=CONFIG["batch"], shuffle=True, num_workers=1)
        self.net = nn.Sequential(
            nn.Conv1d(3, 32, 7, padding=3), nn.BatchNorm1d(32), nn.ReLU(),
            nn.Conv1d(32, 48, 9, padding=4), nn.BatchNorm1d(48), nn.ReLU(),
            nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(384, CONFIG["gestures"]),
        )
        self.opt = torch.optim.Adam(self.net.parameters(), lr=CONFIG["lr"])
        self.board = Board(root / "board.txt", CONFIG["board_every"])

    def fit(self):
        self.board.start()
        done = 0
        for _ in range(CONFIG["epochs"]):
            for traces, kinds in self.loader:
                scores = self.net(traces)
                loss = nn.functional.cross_entropy(scores, kinds)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.board.note(scores.detach().softmax(1))
                done += 1
                if done == 5:
                    since = time.perf_counter()
        rate = (done - 5) * CONFIG["batch"] / (time.perf_counter() - since)
        self.board.quit.set()
        self.board.join()
        return rate


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(tempfile.mkdtemp(prefix="wrist-"))
    rng = np.random.default_rng(8)
    kind = rng.integers(0, CONFIG["gestures"], CONFIG["traces"])
    wave = np.sin(np.arange(CONFIG["length"])[None, None] * (kind[:, None, None] + 1) / 20)
    np.save(root / "traces.npy", (wave + rng.normal(0, 0.7, (len(kind), 3, CONFIG["length"]))).astype(np.float16))
    np.save(root / "kind.npy", kind)
    rate = Trainer(root).fit()
    print((root / "board.txt").read_text().splitlines()[0] if (root / "board.txt").exists() else "")
    shutil.rmtree(root)
    print(f"throughput: {rate:.1f} samples/s")


main()
