"""Loops that stand in a library, draw by functions of their own, or have several statements a line: what has no name is
said to have none, and no share of it is stated surer than looks at it are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from support.runs import WITHOUT_COMPILER, report
from support.warm import run

LIBRARY = '''
import glob, os, queue, threading, time
import torch
from torch import nn

def counted(least):
    """So many, and on until each thread's stack was sampled often enough, however slow the machine is."""
    number, end = 0, time.monotonic() + 120
    while number < least or (samples() < 50 * threading.active_count() and time.monotonic() < end):
        yield number
        number += 1

def samples():
    """Behind a header of 4096 bytes there are 64 for each sample."""
    files = glob.glob(os.environ["WHYIDLE_RUN"] + "/stack-*.rec")
    return sum(max(0, os.path.getsize(path) - 4096) for path in files) / 64

class World:
    """Takes several times as long as learning does, however slow the machine is."""

    seconds = 0.004

    def step(self, action):
        time.sleep(self.seconds)
        return torch.rand(64)

class Learner:
    """Gathers what its policy does without gradients, and trains on that."""

    def __init__(self):
        self.policy = nn.Sequential(nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 64))
        self.optimizer = torch.optim.Adam(self.policy.parameters())
        self.world, self.seen = World(), torch.rand(64)

    def collect_rollouts(self):
        seen = []
        for _ in range(24):
            with torch.no_grad():
                action = self.policy(self.seen)
            self.seen = self.world.step(action)
            seen.append(self.seen)
        self.rollouts = torch.stack(seen)

    def train(self):
        for part in self.rollouts.split(6):
            loss = self.policy(part).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def learn(self, times):
        for _ in counted(times):
            self.collect_rollouts()
            begin = time.monotonic()
            self.train()
            self.world.seconds = max(0.004, (time.monotonic() - begin) / 6)

class Estimator:
    """Trains on an iterable whose batches it makes itself, within a closure of its optimizer."""

    def __init__(self):
        self.net = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)
        self.computing = 0.0

    def transformed(self, data):
        for entry in data:
            time.sleep(max(0.002, self.computing / 3))
            yield entry

    def stacked(self, data):
        entries = []
        for entry in self.transformed(data):
            entries.append(entry)
            if len(entries) == 10:
                yield torch.stack(entries)
                entries = []

    def training_step(self, inputs):
        loss = self.net(inputs).square().mean()
        loss.backward()
        return loss

    def train(self, data):
        batches = self.stacked(data)
        while True:
            batch = next(batches, None)
            if batch is None:
                break
            inputs = batch.repeat(60, 1)
            begin = time.monotonic()
            self.optimizer.zero_grad()
            self.optimizer.step(lambda: self.training_step(inputs))
            self.computing = time.monotonic() - begin

class Augmenter:
    """Another thread makes each batch, which takes it several times as long as computing; whoever wants it waits."""

    def __init__(self, batches):
        self.queue, self.given, self.computing = queue.Queue(1), time.monotonic(), 0.0
        threading.Thread(target=self.make, args=(batches,), daemon=True).start()

    def make(self, batches):
        for _ in counted(batches):
            time.sleep(max(0.06, 5 * self.computing))
            self.queue.put(torch.rand(32, 256))
        self.queue.put(None)

    def __next__(self):
        self.computing = time.monotonic() - self.given
        batch = self.queue.get()
        self.given = time.monotonic()
        return batch
'''

ROLLOUTS = "from shelf import Learner\nLearner().learn(30)\n"
ESTIMATOR = (
    "import torch\nfrom shelf import Estimator, counted\nEstimator().train(torch.rand(256) for _ in counted(2000))\n"
)
AUGMENTED = """
import time, torch
from torch import nn
from torch.nn.functional import mse_loss
from shelf import Augmenter
mt = Augmenter(120); net = nn.Sequential(nn.Linear(256, 16000), nn.Tanh(), nn.Linear(16000, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01); wait = 0.0
while True:
    t = time.time(); b = next(mt); wait += time.time() - t
    if b is None: break
    opt.zero_grad(); loss = mse_loss(net(b), b[:, :1]); loss.backward(); opt.step()
"""


def verdict_of(tmp_path: Path, program: str) -> dict[str, Any]:
    package = tmp_path / "site-packages" / "shelf.py"
    package.parent.mkdir()
    package.write_text(LIBRARY)
    path = tmp_path / "train.py"
    head = f"import sys; sys.path.insert(0, {str(package.parent)!r})\nimport torch; torch.set_num_threads(1)\n"
    path.write_text(WITHOUT_COMPILER + head + program)
    done = run(tmp_path / "run", sys.executable, path, options=("--no-live",))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = report(tmp_path / "run")
    assert found["window"]["steps"] >= 30
    return found["verdict"]


def test_rollouts_within_a_library_are_no_evaluation_and_have_no_name(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, ROLLOUTS)
    assert verdict["cause"] is None
    assert "has no name" in verdict["title"]
    assert "shelf.py:" in verdict["title"]
    assert verdict["where"][0]["code"] in ("self.seen = self.world.step(action)", "time.sleep(self.seconds)")


def test_batches_that_a_library_makes_in_the_trainings_thread_are_told_from_what_it_computes(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, ESTIMATOR)
    assert verdict["cause"] == "input.serial"
    assert verdict["where"][0]["file"].endswith("/shelf.py")
    (computing,) = (each["value"] for each in verdict["evidence"] if each["what"].endswith("computing"))
    assert not computing.startswith("0 %")


def test_a_line_of_several_statements_hides_no_wait_for_batches(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, AUGMENTED)
    assert verdict["cause"] == "input.serial"
    assert verdict["where"][0]["code"] == "t = time.time(); b = next(mt); wait += time.time() - t"
