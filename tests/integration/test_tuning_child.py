"""A training that takes orders about its loader: real processes, told what a tuner tells them.

Batch sizes are tried in processes of their own, with real memory limits and ends; what cannot be tuned is refused with
its reason, and files that were there before are kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.fakes.driver import wait_for
from support.runs import WITHOUT_COMPILER, short_folder
from whyidle.capture.bootstrap import environment
from whyidle.capture.tuning.switching import FEWEST, KEPT
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import NOT_MEASURED, STEP
from whyidle.record.tuning import Block, Channel, LoaderSettings, Word
from whyidle.tune.batch import ProbeOutcome, child_probe, climb
from whyidle.tune.training import Launch

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


SAMPLE_NS = 2_000_000
"""What a sample takes at least."""
ALONE = {(0, -1)}
"""Who makes batches without workers."""


def cold(argv: list[str], folder: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *argv], env=env, text=True, cwd=folder, start_new_session=True, **pipes)


def test_blocks_of_several_settings_are_measured_in_one_training(tmp_path: Path) -> None:
    with tuned(tmp_path, PARTS + PLAIN) as tuner:
        ready = tuner.ready()
        assert ready["settings"] == NONE
        assert (ready["batches_per_epoch"], ready["samples"]) == (100, 400)
        assert set(ready["fixed"]) <= {"pin_memory", "in_order"}
        taken_at = len(tuner.batches())

        serial, parallel = tuner.block(NONE), tuner.block(TWO)
        assert serial.start_ns is not None
        assert parallel.start_ns is not None
        assert parallel.restart_ns is None
        assert tuner.makers(serial) == ALONE
        assert tuner.makers(parallel) == BOTH
        again = tuner.block(NONE)
        assert again.start_ns is None
        # Four samples, one after the other, while the training waits.
        for block in (serial, again):
            assert block.wait_ns >= 4 * SAMPLE_NS * block.batches
        assert parallel.workers_bytes > 10**6
        # The kernel counts in hundredths of a second: workers that sleep may use none of them.
        assert parallel.workers_cpus is not None
        assert (serial.workers_bytes, serial.workers_cpus) == (None, None)

        larger = tuner.block(LoaderSettings(2, 1, batch_size=10))
        assert larger.samples == 10 * larger.batches
        out_of_order = tuner.block(LoaderSettings(2, 2, batch_size=4, in_order=False))
        assert tuner.makers(out_of_order) <= BOTH
        persistent = tuner.block(LoaderSettings(2, 2, batch_size=4, persistent_workers=True))
        assert persistent.restart_ns is not None
        assert persistent.start_ns is not None
        loaded = tuner.batches()[taken_at:]
        held = tuner.block(NONE.without_loader())
        # A few batches, over and over: no loader makes so many alike in a row.
        assert len({tuple(batch.indices) for batch in tuner.batches(held)}) <= KEPT

        assert {len(batch.indices) for batch in loaded} == {4, 10}
        # Sequential batches, whichever loader they come from.
        for batch in tuner.batches():
            assert batch.indices == list(range(batch.indices[0], batch.indices[0] + len(batch.indices)))

        tuner.channel.send(Word.CLOSE, settings=TWO)
        tuner.stop()
        wait_for(lambda: not in_session(tuner.process.pid))
    # The recording went on through the blocks: with the samples of each batch, which is none of the program's loader.
    recorded = open_run(tmp_path / "run").records(STEP)
    assert set(recorded["samples"].tolist()) == {4, 10}
    assert set(recorded["batch"].tolist()) == {NOT_MEASURED}


def test_the_training_ends_when_its_tuner_is_gone(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "1000"])
    with tuned(tmp_path, PARTS + PLAIN, tuner=other.pid) as tuner:
        tuner.ready()
        assert tuner.makers(tuner.block(TWO)) == BOTH
        other.kill()
        other.wait()
        assert tuner.ends() is not None
        wait_for(lambda: not in_session(tuner.process.pid))


VALIDATED = """
class Marked(Numbers):
    def __getitem__(self, index):
        return super().__getitem__(index) - torch.tensor([1000.0, 0.0, 0.0, 0.0])

loader, checks = DataLoader(Numbers(0.001, 120), batch_size=4), DataLoader(Marked(0.001, 40), batch_size=4)
for epoch in range(10000):
    for number, batch in zip(range(len(loader)), loader):
        assert batch[:, 0].min() >= 0
        train(batch)
    began = time.monotonic_ns()
    with torch.no_grad():
        for batch in checks:
            assert batch[:, 0].max() < 0
            model(batch)
    with open("checked.jsonl", "a") as file:
        file.write(json.dumps([began, time.monotonic_ns()]) + chr(10))
"""


def test_validation_keeps_its_loader_and_is_no_part_of_a_block(tmp_path: Path) -> None:
    with tuned(tmp_path, PARTS + VALIDATED) as tuner:
        ready = tuner.ready()
        assert ready["batches_per_epoch"] == 30
        assert ready["samples"] == 120
        # An epoch has 30 batches, and checks come after each. What is longer than an epoch is cut.
        blocks = [tuner.block(NONE, 0.05), tuner.block(NONE, 200.0)]
        assert blocks[1].batches < 30
        checked = [json.loads(line) for line in (tmp_path / "checked.jsonl").read_text().splitlines()]
        assert checked
        assert all(end <= b.begin_ns or b.end_ns <= begin for b in blocks for begin, end in checked)


def test_iterable_datasets_begin_anew_and_pass_their_ends(tmp_path: Path) -> None:
    program = """
class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        each, of = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(each, 12, of):
            time.sleep(0.001)
            yield sample(index)

while True:
    for batch in DataLoader(Stream(), batch_size=4, num_workers=1):
        train(batch)
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        ready = tuner.ready()
        assert ready["samples"] is None
        assert ready["batches_per_epoch"] is None
        taken_at = len(tuner.batches())
        assert tuner.makers(tuner.block(NONE)) == ALONE
        assert tuner.makers(tuner.block(TWO)) == BOTH
        # A pass has four batches at most, and a block five, with those it settles with.
        passes = [batch.makers for batch in tuner.batches()[taken_at:] if 0 in batch.indices]
        assert passes.count(ALONE) >= 2
        assert passes.count({(2, 0)}) >= 2


def test_a_training_that_changes_its_batches_gets_no_batch_twice_once_that_is_seen(tmp_path: Path) -> None:
    program = """
def collate(samples):
    return {"x": torch.stack(samples), "name": "some"}

while True:
    for given in DataLoader(Numbers(), batch_size=4, collate_fn=collate):
        batch = given.pop("x")
        train(batch)
        batch.add_(1.0)
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        tuner.ready()
        assert tuner.makers(tuner.block(NONE)) == ALONE
        said = tuner.order(Word.MEASURE, NONE.without_loader())
        assert (said["say"], "changes its batches in place" in said["why"]) == (Word.FAILED, True)
        assert tuner.makers(tuner.block(NONE)) == ALONE


def test_batches_that_torch_does_not_make_keep_their_size(tmp_path: Path) -> None:
    program = """
while True:
    for batch in DataLoader(Numbers(), batch_sampler=[[1, 2, 3], [4, 5, 6]]):
        train(batch)
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        ready = tuner.ready()
        assert ready["settings"].batch_size is None
        assert "list" in ready["fixed"]["batch_size"]
        refused = tuner.order(Word.MEASURE, LoaderSettings(0, batch_size=8))
        assert refused["say"] == Word.FAILED
        assert "forms its batches" in refused["why"]
        block = tuner.block(LoaderSettings(2, 2))
        assert block.samples == 3 * block.batches


WRAPPED = {
    "accelerate": """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
loader = DataLoader(Numbers(0.002), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
while True:
    for batch in loader:
        tell(batch)
        optimizer.zero_grad()
        accelerator.backward(model(batch).mean())
        optimizer.step()
""",
    "torchdata": """
from torchdata.stateful_dataloader import StatefulDataLoader
while True:
    for batch in StatefulDataLoader(Numbers(0.002), batch_size=4, num_workers=1):
        train(batch)
""",
    "lightning": """
import logging, warnings
import lightning
warnings.simplefilter("ignore")
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(4, 1)
    def training_step(self, batch, number):
        tell(batch)
        return self.model(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-9)
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=10000, logger=False, enable_progress_bar=False, enable_checkpointing=False
)
trainer.fit(Module(), DataLoader(Numbers(0.002, 200), batch_size=4))
""",
}


@pytest.mark.parametrize(
    "library", ["torchdata", *(pytest.param(name, marks=pytest.mark.slow) for name in ("accelerate", "lightning"))]
)
def test_loaders_that_libraries_wrap_are_taken_over(tmp_path: Path, library: str) -> None:
    pytest.importorskip(library)
    # Lightning and accelerate ask torch for its compiler, and are to find it as it is.
    plain = library == "torchdata"
    parts, start = (PARTS, Program) if plain else (PARTS.removeprefix(WITHOUT_COMPILER), cold)
    with tuned(tmp_path, parts + WRAPPED[library], start=start) as tuner:
        ready = tuner.ready()
        assert ready["settings"].batch_size == 4
        assert tuner.makers(tuner.block(NONE)) == ALONE
        assert tuner.makers(tuner.block(TWO)) == BOTH
        larger = tuner.block(LoaderSettings(2, 2, batch_size=8))
        assert larger.samples == 8 * larger.batches
        tuner.stop()


@pytest.mark.slow
def test_settings_that_fail_are_said_and_the_training_goes_on(tmp_path: Path) -> None:
    program = """
class Fragile(Numbers):
    def __getitem__(self, index):
        info = get_worker_info()
        if info is not None and info.num_workers == 3:
            os._exit(7)
        if info is not None and info.num_workers == 4:
            raise MemoryError("no room for this sample")
        if info is not None and info.num_workers == 1 and index == 100:
            raise ValueError("a sample that cannot be read")
        return super().__getitem__(index)

loader = DataLoader(Fragile(0.001), batch_size=4, num_workers=2)
while True:
    for batch in loader:
        train(batch)
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        ready = tuner.ready()
        assert ready["settings"] == TWO
        died = tuner.order(Word.MEASURE, TWO.with_workers(3))
        assert died["say"] == Word.FAILED
        assert "exit code 7" in died["why"]
        full = tuner.order(Word.MEASURE, TWO.with_workers(4))
        assert full["say"] == Word.OOM
        assert "no room for this sample" in full["why"]
        late = tuner.order(Word.MEASURE, TWO.with_workers(1), seconds=200.0)
        assert late["say"] == Word.FAILED
        assert "a sample that cannot be read" in late["why"]
        assert tuner.makers(tuner.block(TWO)) == BOTH
        # The workers of what failed are gone, and so are those of the program's own loader.
        wait_for(lambda: len(in_session(tuner.process.pid)) <= 1 + 2)
        tuner.stop()
    # Which batch of its loader a step trained on is known until then, and not from there on.
    numbers = open_run(tmp_path / "run").records(STEP)["batch"].tolist()
    assert numbers[:10] == list(range(10))
    assert set(numbers[ready["steps"] :]) == {NOT_MEASURED}


def test_files_that_were_there_before_are_not_overwritten(tmp_path: Path) -> None:
    old, log, fresh = tmp_path / "model.pt", tmp_path / "log.txt", tmp_path / "new.pt"
    old.write_bytes(b"weights of last week")
    log.write_text("begin\n")
    for path in (old, log):
        os.utime(path, (time.time() - 1000, time.time() - 1000))
    program = """
import shutil
old, log, fresh = sys.argv[1:]
def refused(call, *arguments):
    try:
        call(*arguments)
    except PermissionError as error:
        print("refused", str(error)[:40], flush=True)
    else:
        print("done", call, flush=True)
open(log, "a").write("more")
torch.save(model.state_dict(), fresh)
torch.save(model.state_dict(), fresh)
refused(open, old, "wb")
refused(open, log, "w")
refused(os.remove, old)
refused(os.replace, fresh, old)
refused(shutil.copyfile, fresh, old)
loader = DataLoader(Numbers(0), batch_size=4)
for number in range(10):
    for batch in loader:
        train(batch)
    torch.save(model.state_dict(), old)
"""
    with tuned(tmp_path, PARTS + program, old, log, fresh, after_steps=1000) as tuner:
        said = tuner.answer()
        assert said["say"] == Word.REFUSED
        assert "keeps the program from overwriting" in said["why"]
        output, errors = tuner.process.communicate(timeout=100)
        assert tuner.process.returncode == 1
        assert "--overwrite" in errors
        assert output.count("refused") == 5
        assert "done" not in output
        kept = {("refused", str(old)), ("refused", str(log))}
        assert set(tuner.writes()) == {("append", str(log)), ("new", str(fresh)), *kept}
    assert old.read_bytes() == b"weights of last week"
    assert log.read_text() == "begin\nmore"


def test_overwriting_can_be_allowed_and_ordinary_recordings_are_not_guarded(tmp_path: Path) -> None:
    old = tmp_path / "model.pt"
    old.write_bytes(b"old")
    os.utime(old, (1, 1))
    program = "torch.save(model.state_dict(), sys.argv[1])\n" + PLAIN
    with tuned(tmp_path, PARTS + program, old, overwrite=True) as tuner:
        tuner.ready()
        assert tuner.writes() == [("overwrite", str(old))]
    assert old.read_bytes() != b"old"
    os.utime(old, (1, 1))
    create_run(tmp_path / "plain", {"command": []})
    (tmp_path / "once.py").write_text(PARTS + program.partition("while True")[0] + "\nprint(sorted(sys.modules))")
    done = warm.bare(tmp_path / "once.py", old, env=environment(tmp_path / "plain", dict(os.environ), {}), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "whyidle.capture.bootstrap.arm" in done.stdout
    assert "whyidle.capture.tuning" not in done.stdout


STREAM = """
class Rows(IterableDataset):
    # Its own iterator.
    at = 0
    def __iter__(self):
        {again}
        return self
    def __next__(self):
        if self.at >= 400:
            raise StopIteration
        time.sleep(0.002)
        self.at += 1
        return sample(self.at)

"""
TWO_LOADERS = "for a, b in zip(DataLoader(Numbers(0)), DataLoader(Numbers(0))):"
ENDLESS = """
while True:
    for batch in {loader}:
        train(batch)
"""
SEVERAL = f"while True:\n    {TWO_LOADERS}\n        train(a + b)\n"
REFUSALS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "several ranks": (PLAIN, "2 ranks", {"extra": {"RANK": "0", "WORLD_SIZE": "2"}}),
    "no loader": ("while True:\n    train(torch.rand(4, 4))\n", "no torch DataLoader", {}),
    "short": ("for batch in DataLoader(Numbers(0), batch_size=100):\n    train(batch)\n", "Let it train longer", {}),
    "one pass": (
        ENDLESS.format(loader="DataLoader(Numbers(0), batch_sampler=iter([[1, 2]] * 10**6))"),
        "only once",
        {},
    ),
    "two loaders": (SEVERAL, "several loaders at a time", {}),
    "two loaders, soon over": (
        SEVERAL.replace("while True", "for _ in range(10)").replace("(0)", "(0, 4)"),
        "several loaders at a time",
        {},
    ),
    # Once a time has passed: what they have done by then is bounded by what they sleep, from one side.
    "two loaders, slow": (
        SEVERAL.replace("(0)", "()"),
        "several loaders at a time",
        {"after_steps": 10**6, "before_s": 10.0},
    ),
    "slow": ("for batch in DataLoader(Numbers(2.0)):\n    train(batch)\n", "too few", {"before_s": 3.0}),
    "nothing learnt": (
        ENDLESS.format(loader="DataLoader(Numbers(0.01))").replace("train(batch)", "model(batch).detach()"),
        "no DataLoader fed a training",
        {"before_s": 2.0},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * ("before_s" in how)) for case, (*_, how) in REFUSALS.items()]
)
def test_what_cannot_be_tuned_is_refused_with_its_reason(tmp_path: Path, case: str) -> None:
    program, why, how = REFUSALS[case]
    with tuned(tmp_path, PARTS + program, **how) as tuner:
        said = tuner.answer()
        assert said["say"] == Word.REFUSED, said
        assert why in said["why"]
        tuner.stop()


AGAIN = """
class Again(Rows):
    def __next__(self):
        try:
            return super().__next__()
        except StopIteration:
            self.at = 0
            raise

"""


@pytest.mark.parametrize(
    "program",
    [
        # Long before its first pass is over.
        STREAM.format(again="self.at = 0") + "loader = DataLoader(Rows(), batch_size=4)",
        # Which its __iter__ does not show, but the training's further passes do.
        STREAM.format(again="pass").replace("400", "40") + AGAIN + "loader = DataLoader(Again(), batch_size=4)",
    ],
    ids=["by __iter__", "by what the training does"],
)
def test_a_stream_that_is_its_own_iterator_and_begins_anew_is_tuned(tmp_path: Path, program: str) -> None:
    with tuned(tmp_path, PARTS + program + ENDLESS.format(loader="loader")) as tuner:
        ready = tuner.ready()
        assert ready["settings"] == NONE
        assert tuner.makers(tuner.block(NONE)) == {(0, -1)}
        assert tuner.makers(tuner.block(NONE.with_workers(1))) == {(1, 0)}
        assert tuner.makers(tuner.block(NONE)) == {(0, -1)}
        tuner.stop()


def test_no_workers_are_tried_around_a_data_set_with_workers_of_its_own(tmp_path: Path) -> None:
    program = """
class Queue(Dataset):
    samples = iter(())
    def __len__(self):
        return 400
    def __getitem__(self, index):
        one = next(self.samples, None)
        if one is None:
            self.samples = iter(DataLoader(Numbers(), batch_size=None, num_workers=1))
            one = next(self.samples)
        return one

loader = DataLoader(Queue(), batch_size=4)
"""
    why = "the dataset has its own workers, which a loader's worker cannot start"
    with tuned(tmp_path, PARTS + program + ENDLESS.format(loader="loader")) as tuner:
        assert tuner.ready()["fixed"]["num_workers"] == why
        said = tuner.order(Word.MEASURE, NONE.with_workers(1))
        assert (said["say"], why in said["why"]) == (Word.FAILED, True)
        assert tuner.makers(tuner.block(NONE)) == {(1, 0)}
        tuner.stop()


def test_a_loader_made_anew_for_each_epoch_is_said_with_the_way_out(tmp_path: Path) -> None:
    program = """
while True:
    for number, batch in enumerate(DataLoader(Numbers(), batch_size=4)):
        train(batch)
        if number == 30:
            break
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        tuner.ready()
        said = tuner.order(Word.MEASURE, NONE, 100.0)
        assert said["say"] == Word.FAILED
        assert said["ended"] is True
        assert "Make the DataLoader once" in said["why"]


def test_a_training_that_ends_by_itself_answers_the_order_under_way(tmp_path: Path) -> None:
    program = """
for number, batch in zip(range(60), DataLoader(Numbers(), batch_size=4)):
    train(batch)
raise MemoryError("at the end")
"""
    with tuned(tmp_path, PARTS + program) as tuner:
        tuner.ready()
        said = tuner.order(Word.MEASURE, NONE, 100.0)
        assert said["say"] == Word.OOM
        assert said["ended"] is True
        assert "after 60 steps" in said["why"]
        assert "at the end" in said["why"]
        assert tuner.ends() == 1


SECONDS = 250.0
"""For a probe, which takes a few on a machine of its own."""
OWN = LoaderSettings(0, batch_size=8)
PROGRAM = """
import resource, signal
MB = 1 << 20
A_SAMPLE = 2 * MB
learn = train

def train(batch):
    # What a large activation would hold.
    held = torch.empty(len(batch), A_SAMPLE, dtype=torch.uint8)
    learn(batch)

def used():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmSize:"))
    return 1024 * int(line.split()[1])
"""
LIMITED = """
train(torch.zeros(8, 4))
room = 700 * MB
limit = used() + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""
LOOP = """
while True:
    for batch in DataLoader(Numbers(0, 3000), batch_size=8, shuffle=True):
        train(batch)
"""


def launch(program: Path) -> Launch:
    return Launch(
        [sys.executable, str(program)], lambda folder, tune: environment(folder, os.environ, {"tune": dict(tune)})
    )


def script(tmp_path: Path, *parts: str) -> Launch:
    path = tmp_path / "train.py"
    path.write_text("".join(map(textwrap.dedent, (PARTS, PROGRAM, *parts))))
    return launch(path)


@pytest.mark.slow
def test_the_ladder_finds_the_limit_of_the_address_space_and_names_only_what_was_run(tmp_path: Path) -> None:
    """2 MiB a sample, of 700 MiB and of all that torch maps anyway, 5 % of which are the margin."""
    probe = child_probe(script(tmp_path, LIMITED, LOOP), tmp_path / "probes", OWN)
    found = climb(probe, 8, 100 * SECONDS, dataset_samples=3000)
    ran = found.probes[found.b_max]
    assert ran.outcome == ProbeOutcome.OK
    assert ran.steps >= 3
    assert ran.memory.peak_bytes is not None
    exact = 8 + (ran.room_bytes - found.probes[8].memory.peak_bytes) / (2 << 20)  # type: ignore[operator]
    assert 0.75 * exact <= found.b_max <= 1.05 * exact
    assert len(found.probes) <= 7
    assert all(size <= found.b_max or not tried.fits for size, tried in found.probes.items())


def test_a_size_that_does_not_fit_is_out_of_memory_and_takes_nobody_along(tmp_path: Path) -> None:
    probe = child_probe(script(tmp_path, LIMITED, LOOP), tmp_path / "probes", OWN)
    tried = probe(500, SECONDS)
    assert tried.outcome == ProbeOutcome.OOM
    assert "allocate memory" in tried.reason
    assert not tried.fits


@pytest.mark.slow
def test_what_the_kernel_kills_counts_as_out_of_memory(tmp_path: Path) -> None:
    kills = LOOP.replace("train(batch)", "train(batch) if len(batch) < 9 else os.kill(os.getpid(), signal.SIGKILL)")
    tried = child_probe(script(tmp_path, kills), tmp_path / "probes", OWN)(16, SECONDS)
    assert tried.outcome == ProbeOutcome.OOM
    assert "killed" in tried.reason


def test_the_largest_samples_come_first(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    told = f"""
    file = open({str(seen)!r}, "w", buffering=1)
    while True:
        for batch in DataLoader(Numbers(0, 3000), 8):
            file.write(" ".join(str(int(x)) for x in batch[:, 0]) + "\\n")
            train(batch)
    """
    tried = child_probe(script(tmp_path, told), tmp_path / "probes", OWN, [2999, 17, 5])(4, SECONDS)
    assert tried.outcome == ProbeOutcome.OK
    lines = seen.read_text().splitlines()
    own = [line for line in lines if line.count(" ") == 7]
    assert own[:2] == ["0 1 2 3 4 5 6 7", "8 9 10 11 12 13 14 15"]
    first, second, third = [line for line in lines if line.count(" ") == 3][:3]
    assert (first, second) == ("2999 17 5 2999", "17 5 2999 17")
    assert third == "0 1 2 3"
