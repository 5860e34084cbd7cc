"""Small programs as people write them, recorded unmodified by `whyidle run`, and loops observed in this process: steps,
batch size, parts and settings right.

What each program is at, it stamps itself (`programs/planted.py`): the analysis must take it for that. Stamps are
compared with stamps, by which of them lie within which: that holds however long anything took, and whatever else the
machine did meanwhile."""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

import support.warm as warm
from support.crafted import analysis_of_run, facts_of_run
from whyidle.analyse.intervals import EMPTY, Intervals, clip, complement, intersect, subtract, total, union, union_of
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import HOST, STEP
from whyidle.report.contract import run as contract

Stamps = dict[str, Intervals]
"""Part of a step (`PARTS`, or any other name) → when the training was at it, in ns."""
TOLD = ("compute", "input", "host", "boundary")
"""Parts that trainings stamp."""
OUTSIDE = "outside"
"""A stretch in which all that is stamped is a boundary, whatever it is called; its rims are nothing that was."""


def stamps(spans: Iterable[tuple[str, int, int]]) -> Stamps:
    """Of (what, begin, end)."""
    found: dict[str, list[tuple[int, int]]] = {}
    for what, begin, end in spans:
        found.setdefault(what, []).append((begin, end))
    united = {what: union(*np.array(each, dtype=np.int64).T) for what, each in found.items()}
    outside = united.pop(OUTSIDE, EMPTY)
    inside = {what: subtract(each, outside) for what, each in united.items()}
    for each in united.values():
        inside["boundary"] = union_of(inside.get("boundary", EMPTY), intersect(each, outside))
    return inside


def written(folder: Path) -> Stamps:
    """What `programs/planted.py` wrote there."""
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]
    return stamps((what, int(begin), int(end)) for what, begin, end in lines)


def assert_told_apart(facts: Facts, spans: Stamps, parts: Iterable[str] = TOLD) -> None:
    """In the recording's window each of the parts holds all that the training stamped as such, and nothing that it
    stamped as another; what it stamped as none may be anybody's. All parts make up the window to the nanosecond."""
    window, found = facts.window, facts.parts
    for part in parts:
        for other in TOLD:
            own = clip(spans.get(other, EMPTY), window.begin_ns, window.end_ns)
            wrong = subtract(own, found.when[part]) if other == part else intersect(own, found.when[part])
            what = f"not taken for {part}" if other == part else f"{other} taken for {part}"
            assert not len(wrong), (what, total(wrong), total(own), wrong - window.begin_ns)
    assert sum(getattr(found, f"{part}_ns") for part in PARTS) == found.wall_ns == window.wall_ns


PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Truth:
    steps: int
    """With the warm-up."""
    batch: int | None
    """`None`: cannot be known."""
    parts: tuple[str, ...] = TOLD
    """Those that are told apart."""
    samples: int | None = None
    """Those of the window, where not each step has one batch."""
    workers: int | None = None
    needs: str = ""
    says: str = ""
    """Part of a note that the report must have."""
    input_known: bool = True
    made_aside: bool = False
    """Batches are made in other processes or threads: between two steps the training waits for one."""
    missing: int = 0
    """Steps that may not have been seen, where the machine held up the training."""
    compiler: bool = False
    """Needs torch's compiler, whose import takes as long as the rest of a program's start."""

    variant: bool = False
    """Another one that is quick takes nearly the same way through the hooks."""

    @property
    def slow(self) -> bool:
        """It compiles, imports a library for seconds, or is a variant."""
        return self.compiler or self.variant or self.needs not in ("", "tqdm", "torchdata")


NO_LOADER = "whyidle sees no loader of the training's batches"
TRUTHS = {
    "basic_epochs": Truth(60, 4, workers=0),
    "workers_tqdm": Truth(60, 8, ("input", "compute"), workers=2, made_aside=True, needs="tqdm"),
    # The first batch is not seen to be learnt from before the second is fetched, unless the machine held up the two.
    "prefetch_by_hand": Truth(
        60, 5, workers=0, missing=1, says="forward pass runs between the optimizer and the next fetch", variant=True
    ),
    "nested_validation": Truth(70, 3, workers=0),
    "lbfgs": Truth(40, 4, workers=0),
    "compiled_step": Truth(120, 4, workers=0, compiler=True),
    # Steps are taken from optimizer steps once there were three of those.
    "get_batch": Truth(57, None, (), says=NO_LOADER, input_known=False),
    "get_batch_phase": Truth(60, None, says='phase "checkpoint"'),
    "generator_watch": Truth(60, 5),
    "reinforcement": Truth(40, None, says='phase "evaluation games"', variant=True),
    "lightning_fit": Truth(
        40, 4, ("input", "boundary"), workers=0, needs="lightning", compiler=True, says="After the training, a pass"
    ),
    "hf_trainer": Truth(40, 4, ("input", "boundary"), workers=0, needs="transformers", compiler=True),
    "hf_accumulation": Truth(
        42,
        4,
        ("input",),
        samples=6 * 104 - 2 * 16,
        workers=0,
        needs="transformers",
        compiler=True,
        says="fetches 4 batches for each update",
    ),
    "accelerate_loop": Truth(60, 4, workers=0, needs="accelerate", compiler=True),
    "own_loader": Truth(60, 4, ("input",), workers=0),
    "torchdata_nodes": Truth(60, 4, needs="torchdata", variant=True),
    "webdataset_loader": Truth(60, 4, ("input", "compute"), workers=0, made_aside=True, needs="webdataset"),
    # Of its second loop some fetches are not told from computing, nor what is collected in them from the host's.
    "hf_datasets": Truth(60, 5, (), needs="datasets"),
    "dali_cpu": Truth(60, 4, ("input", "compute"), made_aside=True, needs="nvidia.dali"),
    "spdl_pipeline": Truth(60, 4, ("input", "compute"), made_aside=True, needs="spdl"),
}


def _installed(name: str) -> bool:
    try:
        return not name or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _recorded(name: str, folder: Path) -> tuple[Analysis, Stamps]:
    """The recording of a program, and its own stamps."""
    truth, own = TRUTHS.get(name, Truth(40, 4, compiler=True)), folder / "truth"
    own.mkdir()
    settings = {
        "PLANTED_TRUTH": str(own),
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
    }
    if not truth.compiler:
        settings["PLANTED_WITHOUT_COMPILER"] = "1"
    done = warm.run(folder / "run", sys.executable, PROGRAMS / f"{name}.py", env=os.environ | settings, cwd=folder)
    assert done.returncode == 0, done.stderr
    return analyse(open_run(folder / "run")), written(own)


def _programs() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.slow] * truth.slow) for name, truth in TRUTHS.items()]


@pytest.mark.parametrize("name", _programs())
def test_a_program_is_seen_as_it_is(tmp_path: Path, name: str) -> None:
    truth = TRUTHS[name]
    if not _installed(truth.needs):
        pytest.skip(f"{truth.needs} is not installed")
    analysis, own = _recorded(name, tmp_path)
    if truth.says:
        assert any(truth.says in note for note in analysis.notes), analysis.notes
    facts = analysis.facts
    assert facts is not None, analysis.notes
    window = facts.window
    assert truth.steps - truth.missing <= window.count + window.warmup_steps <= truth.steps, analysis.notes
    assert facts.batch_size == truth.batch, analysis.notes
    assert facts.set_workers == truth.workers
    report = contract.report(analysis)
    if truth.batch is None:
        assert report["window"]["samples"] is None
        assert report["window"]["samples_per_s"] is None
    else:
        assert facts.samples == (truth.samples or truth.batch * window.count)
    assert (report["breakdown"]["input_pct"] is not None) == truth.input_known
    if not truth.input_known:
        assert report["verdict"]["cause"] is None
        assert "whyidle.watch(iterable)" in report["verdict"]["next"][0]["change"]
        assert report["breakdown"]["compute_pct"] is None
        assert (report["device"]["busy_pct"], report["device"]["au_pct"]) == (None, None)
    assert_told_apart(facts, own, truth.parts)
    if truth.made_aside:
        assert_waits_between_steps(facts, own)


def assert_waits_between_steps(facts: Facts, own: Stamps) -> None:
    window = facts.window
    computing = clip(own["compute"], window.begin_ns, window.end_ns)
    gaps = complement(computing, int(computing[0, 0]), int(computing[-1, 1]))
    assert len(gaps) == window.count - 1
    for begin, end in gaps.tolist():
        assert len(intersect(clip(facts.parts.when["input"], begin, end), facts.parts.when["input"]))


@pytest.mark.slow
def test_spawned_ranks_are_seen_each(tmp_path: Path) -> None:
    analysis, _ = _recorded("spawn_ranks", tmp_path)
    assert [rank.rank for rank in analysis.ranks] == [0, 1]
    for rank in analysis.ranks:
        facts = rank.analysis.facts
        assert facts.window.count + facts.window.warmup_steps == 40
        assert facts.batch_size == 4
        # The same for both: the files in the folder are each rank's own.
        assert len(facts.parts.when["input"]) >= facts.window.count


class Clock:
    """What the training does, by its own stamps."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, int]] = []

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begin = time.monotonic_ns()
        yield
        self.spans.append((what, begin, time.monotonic_ns()))


class Data(Dataset[torch.Tensor]):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index))


class Drawing(Sampler[int]):
    """Takes its time over each sample: in the training's own process, whoever makes the batches."""

    def __init__(self, samples: int, clock: Clock, what: str = "input") -> None:
        self.samples, self.clock, self.what = samples, clock, what

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        for index in range(self.samples):
            with self.clock(self.what):
                time.sleep(0.001)
            yield index


def train(
    loader: DataLoader[torch.Tensor], clock: Clock, epochs: int = 1, every: int = 1, validation: bool = False
) -> None:
    """`every`: batches for each step of the optimizer."""
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    for _ in range(epochs):
        for number, batch in enumerate(loader, 1):
            loss = net(batch).square().mean()
            with clock("compute"):
                time.sleep(0.001)
            loss.backward()
            if number % every == 0:
                optimizer.step()
                with clock("host"):
                    time.sleep(0.002)
                    optimizer.zero_grad()
        if validation:
            with torch.no_grad():
                for batch in DataLoader(Data(12), 4, sampler=Drawing(12, clock, "boundary")):
                    net(batch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_loops_time_is_told_apart_as_by_its_own_clock(tmp_path: Path, workers: int) -> None:
    clock = Clock()
    loader = DataLoader(Data(96), 4, sampler=Drawing(96, clock), num_workers=workers, persistent_workers=workers > 0)
    with recording(tmp_path / "run", "cpu", sampler=False):
        train(loader, clock, epochs=2, validation=True)
    analysis = analysis_of_run(tmp_path / "run")
    facts = analysis.facts
    assert facts.window.count + facts.window.warmup_steps == 48
    assert facts.samples == 4 * facts.window.count
    assert_told_apart(facts, stamps(clock.spans))
    report = contract.report(analysis)
    assert report["input"]["workers"] == workers
    assert (report["breakdown"]["boundary_pct"] or 0) > 0


@pytest.mark.parametrize("way", ["accumulated", "in a thread", "from an endless generator"])
def test_other_loops_make_a_step_of_each_batch_and_are_told_apart_too(tmp_path: Path, way: str) -> None:
    clock = Clock()
    loader: Any = DataLoader(Data(160), 4, sampler=Drawing(160, clock))
    if way == "from an endless generator":
        # Two epochs of twenty batches.
        short = DataLoader(Data(80), 4, sampler=Drawing(80, clock))
        loader = itertools.islice((batch for _ in itertools.count() for batch in short), 40)
    training = threading.Thread(target=train, args=(loader, clock, 1, 4 if way == "accumulated" else 1), name="fit")
    with recording(tmp_path / "run", "cpu", sampler=False):
        training.start() if way == "in a thread" else training.run()
        if way == "in a thread":
            training.join()
    facts = facts_of_run(tmp_path / "run")
    # Which thread trains is known from its first step on.
    assert facts.window.count + facts.window.warmup_steps == 40 - (way == "in a thread")
    # What comes after an optimizer step is the host's, and no computing.
    assert_told_apart(facts, stamps(clock.spans))


def test_a_recording_has_its_sampler_and_says_how_it_ended(tmp_path: Path) -> None:
    loader = DataLoader(Data(80), batch_size=4)
    epochs, until = 0, time.monotonic() + 240
    with pytest.raises(ZeroDivisionError), recording(tmp_path / "run", "cpu"):
        while not len(open_run(tmp_path / "run").records(HOST)):
            assert time.monotonic() < until, "the sampler never began"
            train(loader, Clock())
            epochs += 1
        raise ZeroDivisionError
    run = open_run(tmp_path / "run")
    assert run.info["ended"]["status"] == "failed"
    facts = facts_of_run(tmp_path / "run")
    assert facts.window.count + facts.window.warmup_steps == 20 * epochs
    assert facts.sampled.cpu_budget > 0
    # Everything is as it was: the same loop again leaves nothing behind.
    before = len(run.records(STEP))
    train(loader, Clock())
    assert len(open_run(tmp_path / "run").records(STEP)) == before
