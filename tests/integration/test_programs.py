"""Small programs as people write them, recorded unmodified by `whyidle run`: steps, batch size and shares right.

What each program spends its time on, it tells itself by its own clock (`programs/planted.py`); sleeping is nearly all
of it, so that shares do not depend on the machine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whyidle.analyse.analysis import Analysis, analyse
from whyidle.analyse.intervals import EMPTY, Intervals, clip, subtract, total, union
from whyidle.record.run import open_run
from whyidle.report import contract

PROGRAMS = Path(__file__).parent / "programs"
POINTS = 5.0
"""What a share may be off by."""
AT_A_TIME = 2


@dataclass(frozen=True)
class Truth:
    steps: int | None
    """With the warm-up; `None`: no training."""
    batch: int | None
    """`None`: cannot be known."""
    parts: tuple[str, ...] = ("input", "host", "boundary")
    """Shares that the program's own clock knows."""
    workers: int | None = None
    needs: str = ""
    says: str = ""
    """Part of a note that the report must have."""
    module: bool = False
    """Run by `python -m`."""
    input_known: bool = True
    made_aside: bool = False
    """Compute only is known: what else there is, is waiting."""
    missing: int = 0
    """Steps that may not have been seen, depending on which thread is first."""
    compiler: bool = False
    """Needs torch's compiler, whose import takes as long as the rest of a program's start."""


NO_LOADER = "come from no loader that is seen"
TRUTHS = {
    "basic_epochs": Truth(60, 4, workers=0),
    "workers_tqdm": Truth(60, 8, (), workers=2, made_aside=True, needs="tqdm"),
    "iter_next": Truth(60, 7, workers=0),
    # The first batch is not seen to be learnt from before the second is fetched.
    "prefetch_by_hand": Truth(59, 5, workers=0, says="forward pass runs between the optimizer and the next fetch"),
    "infinite_cycle": Truth(60, 4, workers=0),
    "gan": Truth(40, 5, workers=0),
    "cyclegan": Truth(60, 2, workers=0),
    "semi_supervised": Truth(50, 3, workers=0),
    "accumulation": Truth(60, 4, workers=0),
    "grad_scaler": Truth(60, 3, workers=0),
    "nested_validation": Truth(70, 3, workers=0),
    "iterable_dataset": Truth(50, 5, workers=0),
    "lbfgs": Truth(40, 4, workers=0),
    "manual_sgd": Truth(50, 4, workers=0),
    # Its thread is known to train once it did.
    "thread_fit": Truth(49, 4, workers=0, says="The training runs in thread"),
    "notebook": Truth(40, 8, workers=0, module=True),
    "compiled_step": Truth(120, 4, workers=0, compiler=True),
    # Steps are taken from optimizer steps once there were three of those.
    "get_batch": Truth(57, None, (), says=NO_LOADER, input_known=False),
    "list_of_batches": Truth(57, None, (), says=NO_LOADER, input_known=False),
    "prefetch_thread": Truth(47, None, (), missing=3, says="fetched in another thread", input_known=False),
    "evaluate_only": Truth(None, None, says="No backward pass"),
    "get_batch_phase": Truth(60, None, says='phase "checkpoint"'),
    "generator_watch": Truth(60, 5),
    "reinforcement": Truth(40, None, says='phase "evaluation games"'),
    "lightning_fit": Truth(40, 4, ("input", "boundary"), workers=0, needs="lightning", compiler=True),
    "hf_trainer": Truth(40, 4, ("input", "boundary"), workers=0, needs="transformers", compiler=True),
    "accelerate_loop": Truth(60, 4, workers=0, needs="accelerate", compiler=True),
    "stateful_loader": Truth(60, 4, workers=0, needs="torchdata"),
    "torchdata_nodes": Truth(60, 4, needs="torchdata"),
    "webdataset_plain": Truth(60, 5, (), made_aside=True, needs="webdataset"),
    "webdataset_loader": Truth(60, 4, (), workers=0, made_aside=True, needs="webdataset"),
    "hf_datasets": Truth(60, 5, ("host",), needs="datasets"),
    "dali_cpu": Truth(60, 4, (), made_aside=True, needs="nvidia.dali"),
    "spdl_pipeline": Truth(60, 4, (), made_aside=True, needs="spdl"),
}
JOB = "spawn_ranks"


@dataclass(frozen=True)
class Done:
    process: subprocess.CompletedProcess[str]
    analysis: Analysis
    truth: Path


def _installed(name: str) -> bool:
    try:
        return not name or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _run(name: str, folder: Path) -> Done:
    truth = folder / "truth"
    truth.mkdir(parents=True)
    how = ["-m", name] if name in TRUTHS and TRUTHS[name].module else [str(PROGRAMS / f"{name}.py")]
    settings = {
        "PLANTED_TRUTH": str(truth),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(PROGRAMS),
        "HF_HOME": str(folder / "hf"),
        "HF_HUB_OFFLINE": "1",
    }
    if name in TRUTHS and not TRUTHS[name].compiler:
        settings["PLANTED_WITHOUT_COMPILER"] = "1"
    process = subprocess.run(
        [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", folder / "run", "--", sys.executable, *how],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=folder,
        env=os.environ | settings,
    )
    return Done(process, analyse(open_run(folder / "run")), truth)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Done]]]:
    """The programs of the tests that were chosen, two at a time; each test waits for its own."""
    asked = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] if hasattr(item, "callspec") else JOB for item in asked]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {
            name: pool.submit(_run, name, tmp_path_factory.mktemp(name))
            for name in dict.fromkeys(names)
            if _installed(TRUTHS[name].needs if name in TRUTHS else "")
        }


def _planted(folder: Path, begin_ns: int, end_ns: int) -> dict[str, Intervals]:
    """What the program's clock says of the window; time outside the steps is nothing else."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for file in folder.iterdir():
        for line in file.read_text().splitlines():
            what, begin, end = line.split()
            spans.setdefault(what, []).append((int(begin), int(end)))
    cut = {}
    for what, found in spans.items():
        both = np.array(found, dtype=np.int64)
        cut[what] = clip(union(both[:, 0], both[:, 1]), begin_ns, end_ns)
    outside = cut.get("boundary", EMPTY)
    return {what: found if what == "boundary" else subtract(found, outside) for what, found in cut.items()}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_program_is_seen_as_it_is(runs: dict[str, Future[Done]], name: str) -> None:
    truth = TRUTHS[name]
    if name not in runs:
        pytest.skip(f"{truth.needs} is not installed")
    done = runs[name].result()
    assert done.process.returncode == 0, done.process.stderr
    analysis = done.analysis
    if truth.says:
        assert any(truth.says in note for note in analysis.notes), analysis.notes
    if truth.steps is None:
        assert analysis.facts is None
        return
    facts = analysis.facts
    assert facts is not None, analysis.notes
    window = facts.window
    assert truth.steps - truth.missing <= window.count + window.warmup_steps <= truth.steps, analysis.notes
    assert facts.batch_size == truth.batch, analysis.notes
    assert facts.set_workers == truth.workers
    report: dict[str, Any] = contract.report(analysis)
    if truth.batch is None:
        assert report["window"]["samples"] is None
        assert report["window"]["samples_per_s"] is None
    else:
        assert facts.samples == truth.batch * window.count
    assert (report["breakdown"]["input_pct"] is not None) == truth.input_known
    if not truth.input_known:
        assert report["verdict"]["cause"] is None
        assert "whyidle.watch(iterable)" in report["verdict"]["next"][0]["change"]
        assert report["breakdown"]["compute_pct"] is None
        assert (report["device"]["busy_pct"], report["device"]["au_pct"]) == (None, None)
    planted = _planted(done.truth, window.begin_ns, window.end_ns)
    own = {what: 100 * total(spans) / window.wall_ns for what, spans in planted.items()}
    for part in truth.parts:
        assert 100 * facts.parts.share(part) == pytest.approx(own.get(part, 0.0), abs=POINTS), (part, own)
    if truth.made_aside:
        waiting = 100 - own["compute"]
        assert report["breakdown"]["input_pct"] == pytest.approx(waiting, abs=2 * POINTS), own


def test_spawned_ranks_are_seen_each(runs: dict[str, Future[Done]]) -> None:
    done = runs[JOB].result()
    assert done.process.returncode == 0, done.process.stderr
    assert [rank.rank for rank in done.analysis.ranks] == [0, 1]
    for rank in done.analysis.ranks:
        facts = rank.analysis.facts
        assert facts is not None
        assert facts.window.count + facts.window.warmup_steps == 40
        assert facts.batch_size == 4
        assert facts.parts.share("input") > 0.2
