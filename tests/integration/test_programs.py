"""Small programs as people write them, recorded unmodified by `whyidle run`: steps, batch size and parts right.

What each program is at, it stamps itself (`programs/planted.py`): the analysis must take it for that.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.own_clock import TOLD, Stamps, assert_told_apart, written
from whyidle.analyse.intervals import clip, complement, intersect
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.facts import Facts
from whyidle.record.run import open_run
from whyidle.report.contract import run as contract

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
