"""`whyidle tune --prove`: the first advice on a training's loader, tried within one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..analyse.run.analysis import Analysis, analyse
from ..errors import RecordError, WhyidleError
from ..record.run import Run, open_run
from ..record.tuning import LoaderSettings
from ..report.contract import proof as proof_json
from ..report.contract.common import finding
from ..report.contract.encode import builtins
from ..report.documents.proof import proof_document
from ..report.words.figures import prediction
from ..terminal.console import console, show_document, write_json
from ..terminal.progress import TuneProgress
from ..tune.bench.script_bench import NothingToTune, Ready, ScriptBench
from ..tune.patch import loader_made, patch_of, write_patch
from ..tune.prove import Proof, advised_of, prove
from ..tune.search.candidates import Entry, SearchPlan
from ..tune.search.tuning import RECORDING
from . import tune_jobs

STRETCHES = ((80, 5.0), (40, 1.0))
"""Steps and seconds that are recorded before advice is asked for, as a short run would be; and of a training that ends
before."""
MOST_STARTS = 12
"""Trainings of few steps are started for each pair of blocks."""
ANNOUNCED = (
    "whyidle starts and records your command, then lets it train with its own loader and the advised one in turns. It "
    "ends the command before it is done: do not keep what it learned."
)


def run(arguments: argparse.Namespace, copied: Callable[[Path, Path], None]) -> int:
    """`copied`: keeps a recording as it is."""
    job = tune_jobs.job(arguments)
    if job.scenario is not None:
        raise WhyidleError("--prove takes a command, not a scenario: whyidle tune --prove -- python train.py")
    folder: Path = arguments.out or job.folder
    if folder.is_dir() and any(folder.iterdir()):
        raise WhyidleError(f"{folder} is not empty. Choose another folder with --out.")
    target = console(stderr=True)
    progress = TuneProgress(target, arguments.no_live)
    progress.say(f"Proving the advice on the loader of {job.title}.")
    progress.say(ANNOUNCED)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make {folder}: {error.strerror}. Choose another folder with --out.") from error
    with progress:
        for steps, seconds in STRETCHES:
            launch = replace(job.launch, after_steps=steps, after_s=seconds, most_starts=MOST_STARTS)
            with ScriptBench(launch, folder, progress.tick, progress.say) as bench:
                try:
                    ready = bench.ready
                except NothingToTune:
                    if (steps, seconds) == STRETCHES[-1]:
                        raise
                    continue
                assert bench.run_folder is not None
                copied(bench.run_folder, folder / RECORDING)
                recorded = open_run(folder / RECORDING)
                return _proven(arguments, job, bench, ready, recorded, progress)
    raise AssertionError("the last stretch either is taken or raises")


def _proven(
    arguments: argparse.Namespace,
    job: tune_jobs.TuneJob,
    bench: ScriptBench,
    ready: Ready,
    recorded: Run,
    progress: TuneProgress,
) -> int:
    analysis = analyse(recorded)
    advised = advised_of(analysis.findings, ready.settings)
    if advised is None or analysis.facts is None:
        bench.end()
        if arguments.patch is not None:
            progress.say(write_patch(None, arguments.patch))
        return _nothing(arguments, job.title, analysis, ready.settings)
    plan = SearchPlan(
        baseline=ready.settings,
        batch_size=ready.settings.batch_size or analysis.facts.batch_size or 1,
        budget_s=arguments.budget,
        batches_per_epoch=ready.batches_per_epoch,
    )
    progress.phase("measuring both loaders in turns")

    def on_block(entry: Entry) -> None:
        if entry.block is not None:
            name = "advised" if entry.settings == advised.settings else "as it is"
            progress.say(f"{name}: {entry.block.samples_per_s:.0f} samples/s in this block")

    told = prove(bench, plan, advised, analysis.facts.parts.share("boundary"), on_block)
    bench.end()
    if told.measured is not None and told.measured.low > 1:
        patch = patch_of(loader_made(recorded), ready.settings, advised.settings, job.asked["command"], Path.cwd())
        told = replace(told, patch=patch)
    _show(arguments, job.title, told, ready.settings, analysis)
    if arguments.patch is not None:
        progress.say(write_patch(told.patch, arguments.patch))
    return int(told.measured is None)


def _show(arguments: argparse.Namespace, what: str, told: Proof, own: LoaderSettings, analysis: Analysis) -> None:
    if arguments.json != "-":
        show_document(proof_document(what, told), console())
    _write(arguments, proof_json.proof(what, told, own, "", builtins(finding(analysis.verdict))))


def _nothing(arguments: argparse.Namespace, what: str, analysis: Analysis, own: LoaderSettings) -> int:
    first = analysis.verdict.next[0] if analysis.verdict.next else None
    why = f"no advice on {what} changes a setting of its loader. {analysis.verdict.title}"
    if analysis.verdict.cause is None:
        why += " A larger --budget records more steps."
    if first is not None:
        now = None if analysis.facts is None or not analysis.facts.samples_known else analysis.facts.samples_per_s
        why += (
            f" The first advice: {first.change}{prediction(first, now)}. Follow it, run again, and compare "
            "both runs with `whyidle diff`."
        )
    if arguments.json != "-":
        console().print(why[:1].upper() + why[1:], markup=False, soft_wrap=True)
    _write(arguments, proof_json.proof(what, None, own, why, builtins(finding(analysis.verdict))))
    return 0


def _write(arguments: argparse.Namespace, content: Any) -> None:
    if arguments.json:
        write_json(content, arguments.json)
