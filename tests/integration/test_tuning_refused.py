"""What cannot be tuned is refused with its reason, and files that were there before are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.fakes.driver import wait_for
from support.told_trainings import BOTH, NONE, PARTS, PLAIN, TWO, in_session, tuned
from whyidle.capture.bootstrap import environment
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import NOT_MEASURED, STEP
from whyidle.record.tuning import Word


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
