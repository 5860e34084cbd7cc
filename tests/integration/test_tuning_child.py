"""A training that takes orders about its loader: real processes, told what a tuner tells them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.runs import WITHOUT_COMPILER
from support.told_trainings import BOTH, NONE, PARTS, PLAIN, TWO, Program, in_session, tuned
from whyidle.capture.tuning.switching import KEPT
from whyidle.record.run import open_run
from whyidle.record.schema import NOT_MEASURED, STEP
from whyidle.record.tuning import LoaderSettings, Word

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
