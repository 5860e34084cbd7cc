"""Trainings in processes of their own that take orders, and the tuner's side that gives them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import support.warm as warm
from support.runs import WITHOUT_COMPILER, short_folder
from whyidle.capture.bootstrap import environment
from whyidle.capture.tuning.switching import FEWEST
from whyidle.record.run import create_run
from whyidle.record.tuning import Block, Channel, LoaderSettings, Word

PARTS = (
    WITHOUT_COMPILER
    + """
import json, os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

def sample(index):
    # Which it is, how many workers its loader has, and which of them made it.
    info = get_worker_info()
    workers, worker = (0, -1) if info is None else (info.num_workers, info.id)
    return torch.tensor([float(index), float(workers), float(worker), 0.0])

class Numbers(Dataset):
    def __init__(self, seconds=0.002, size=400):
        self.seconds, self.size = seconds, size
    def __len__(self):
        return self.size
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return sample(index)

torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)

seen = open(os.environ["WHYIDLE_RUN"] + "/seen.jsonl", "a", buffering=1)

def tell(batch):
    made = sorted({(int(workers), int(worker)) for workers, worker in batch[:, 1:3].tolist()})
    seen.write(json.dumps([time.monotonic_ns(), [int(x) for x in batch[:, 0]], made]) + chr(10))

def train(batch):
    tell(batch)
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""
)
PLAIN = """
loader = DataLoader(Numbers(), batch_size=4)
while True:
    for batch in loader:
        train(batch)
"""
NONE = LoaderSettings(0, batch_size=4)
BOTH = {(2, 0), (2, 1)}
"""Of two workers."""
TWO = LoaderSettings(2, 2, batch_size=4)


class Program(warm.Process):
    """A script that was started warm: most of what one takes is importing torch. In a session of its own."""

    def __init__(self, argv: list[str], folder: Path, env: Mapping[str, str]) -> None:
        self._printed = [folder / "printed.txt", folder / "errors.txt"]
        with Path(os.devnull).open() as nothing, self._printed[0].open("w") as out, self._printed[1].open("w") as err:
            streams = (nothing.fileno(), out.fileno(), err.fileno())
            super().__init__("trainings", "program", argv, streams, env=dict(env), cwd=folder, session=True)

    def communicate(self, timeout: float = 100.0) -> list[str]:
        assert self.wait(timeout) is not None
        return [path.read_text() for path in self._printed]


Started = Program | subprocess.Popen[str]
Start = Callable[[list[str], Path, Mapping[str, str]], Started]
"""Of a script with its arguments, in this folder, with this environment."""


@dataclass(frozen=True)
class Batch:
    """What a training was given, as it wrote that down itself."""

    at_ns: int
    indices: list[int]
    makers: set[tuple[int, int]]
    """Workers of their loader, and which of them made them, or -1."""


class Tuner:
    """The other side."""

    def __init__(self, process: Started, channel: Channel, folder: Path) -> None:
        self.process = process
        self.channel = channel
        self.folder = folder

    def ends(self) -> int | None:
        """Its exit code."""
        return self.process.wait(100)

    def stop(self) -> None:
        """Have it end."""
        self.channel.send(Word.STOP)
        assert self.ends() == 0

    def answer(self, seconds: float = 250.0) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (said := self.channel.receive(0.2)) is not None:
                return said
            if self.process.poll() is not None and (said := self.channel.receive(0.0)) is None:
                output = self.process.communicate()
                raise AssertionError(f"ended with {self.process.returncode}: {output}")
        raise AssertionError("no answer")

    def ready(self) -> dict[str, Any]:
        said = self.answer()
        assert said["say"] == Word.READY, said
        return said

    def order(self, say: str, settings: LoaderSettings, seconds: float = 0.05) -> dict[str, Any]:
        self.channel.send(say, settings=settings, seconds=seconds)
        return self.answer()

    def block(self, settings: LoaderSettings, seconds: float = 0.05) -> Block:
        """A block that was measured with what was ordered, on batches that the program got within it."""
        said = self.order(Word.MEASURE, settings, seconds)
        assert said["say"] == Word.BLOCK, said
        block: Block = said["block"]
        assert block.batches >= FEWEST
        assert block.begin_ns < block.end_ns
        assert 0 <= block.wait_ns <= block.end_ns - block.begin_ns
        assert block.samples == sum(len(batch.indices) for batch in self.batches(block))
        return block

    def batches(self, within: Block | None = None) -> list[Batch]:
        """That the program was given, ever or within a block."""
        told = [json.loads(line) for line in (self.folder / "seen.jsonl").read_text().splitlines()]
        found = [Batch(at, indices, {(workers, worker) for workers, worker in made}) for at, indices, made in told]
        return [b for b in found if within is None or within.begin_ns <= b.at_ns <= within.end_ns]

    def makers(self, block: Block) -> set[tuple[int, int]]:
        return {maker for batch in self.batches(block) for maker in batch.makers}

    def writes(self) -> list[tuple[str, str]]:
        path = self.folder / "tuning.writes"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(each["kind"], each["path"]) for each in map(json.loads, lines)]


@contextmanager
def tuned(
    folder: Path,
    program: str,
    *arguments: Any,
    start: Start = Program,
    extra: dict[str, str] | None = None,
    tuner: int = 0,
    **options: Any,
) -> Iterator[Tuner]:
    run = folder / "run"
    create_run(run, {"command": ["train.py"]})
    channel = Channel.of_tuner(run)
    script = folder / "train.py"
    script.write_text(program)
    told = {"after_steps": 12, "after_s": 0.0, "before_s": 250.0, "tuner": tuner or os.getpid(), "began": time.time()}
    with short_folder() as temporary:
        env = environment(run, dict(os.environ), {"tune": told | options})
        process = start([str(script), *map(str, arguments)], folder, env | {"TMPDIR": str(temporary)} | (extra or {}))
        try:
            yield Tuner(process, channel, run)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            channel.close()


def in_session(of: int) -> list[int]:
    """Processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == of and fields[0] != "Z":
                found.append(int(entry.name))
    return found
