"""`whyidle tune`: finds loader settings for a training, and proves the gain by trial; with `--prove`, tries the first
advice on a training's loader within one run."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..analyse.predict.observed import workload_of
from ..analyse.predict.predict import MOST_WORKERS, Advice, predict
from ..analyse.run.analysis import Analysis, analyse
from ..analyse.run.facts import largest_samples
from ..capture.bootstrap import RUN, environment
from ..capture.limits import cpu_budget
from ..errors import RecordError, WhyidleError
from ..interrupts import end_like_ctrl_c
from ..matrix.experiment import check_profiles, described
from ..record.run import new_folder, new_folder_for, open_run
from ..record.secret import without_secrets
from ..record.tuning import LoaderSettings
from ..report.contract import tuning as tune_json
from ..report.contract.encode import Json
from ..report.document import Document
from ..report.documents.tuning import proof_document, tuning_document
from ..report.words.code import command_line
from ..terminal.console import console, show_result, shown_again
from ..terminal.progress import TuneProgress
from ..tune.batch import Question, advise, cannot, child_probe
from ..tune.patch import Patch, loader_made, patch_of, require_new, write_patch
from ..tune.prove import Proof, advised_of, prove
from ..tune.result import RECORDING, BatchAdvice, SearchEnd, Tuning, keep
from ..tune.search import search
from ..tune.standing import Entry, SearchPlan
from ..tune.training import Launch, NothingToTune, Ready, ScriptBench, script_hint
from . import options

BUDGET_S = 120.0
LEAST_BUDGET_S = 20.0
"""A first stretch of a few seconds, and a few blocks each of a few settings."""
BUDGET = options.number(
    f"is too little, or no number of seconds: a few settings need {LEAST_BUDGET_S:.0f} s at least", LEAST_BUDGET_S, 1e6
)
WORKERS = options.number("is not a whole number from 0 on", 0, math.inf, int)
LEAST_TRIALS_S = 12.0
"""However long the program took to start: a few settings in a few blocks."""
AUTO, NONE = "auto", "none"
BATCH_SHARE, LEAST_BATCH_S = 0.4, 10.0
"""Share of the budget that is kept for batch sizes, and seconds that they need at least."""
OF_SCENARIOS = ("data", "device", "net", "pipelines", "limit", "no_augment", "seed", "workers", "prefetch")
MODULE = "whyidle.scenarios.tuning"
PARALLEL = ("workers", "threads", "prefetch", "dali-cpu", "dali-gpu")
"""Loaders that do more than one thing at a time, and so have something to tune."""
INTERRUPTED = 130
SHOWN_FILES = 5
STRETCHES = ((80, 5.0), (40, 1.0))
"""Steps and seconds that are recorded before `--prove` asks for advice, as a short run would be; and of a training that
ends before."""
MOST_STARTS = 12
"""Trainings of few steps are started for each pair of blocks."""
PROVING = (
    "whyidle starts and records your command, then lets it train with its own loader and the advised one in turns. It "
    "ends the command before it is done: do not keep what it learned."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "whyidle tune [options] -- COMMAND …\n       whyidle tune [options] SCENARIO"
    add("what", nargs="*", metavar="SCENARIO | -- COMMAND …", help="what to tune")
    add(
        "--budget",
        type=BUDGET,
        default=BUDGET_S,
        metavar="S",
        help="seconds that it may take, the program's start counted (120)",
    )
    options.add_full(parser)
    add("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    add("--out", type=Path, metavar="DIR", help="folder for recordings and results (default: runs/…)")
    add("--prove", action="store_true", help="try the first advice on the loader, and hold it against what it promises")
    add(
        "--patch", type=Path, metavar="FILE", help="write the change of your source as a patch; nothing else is changed"
    )
    add("--overwrite", action="store_true", help="let the training overwrite files that exist")
    add("--out-of-order", action="store_true", help="also try in_order=False (torch 2.6 and newer)")
    add("--max-workers", type=options.count, metavar="N", help="try no more (default: 8, or 4 a CPU)")
    add(
        "--batch-sizes",
        type=lambda text: text if text in (AUTO, NONE) else options.count(text),
        default=AUTO,
        metavar="auto|none|N",
        help="look for a batch size too, of at most N samples (auto: unless on the processor)",
    )
    add("--no-live", action="store_true", help="plain lines instead of the line that is drawn over")
    add = parser.add_argument_group("of scenarios").add_argument
    add("--pipelines", type=options.names, metavar="A,B", help="loaders to try; the first is what it has now")
    add("--batch-size", type=options.count, metavar="N", help="default: the study's smallest")
    add("--workers", type=WORKERS, default=0, metavar="N", help="that it has now (default: none)")
    add("--prefetch", type=options.count, default=2, metavar="N", help="batches ahead a worker, now (default: 2)")
    add("--device", default="auto", help="auto, cpu, cuda or emulated:NAME (default: auto)")
    add("--net", help="default: the study's on a GPU and emulated, a small one on the CPU")
    add("--data", type=Path, metavar="DIR", help="folder with images (default: a composed set)")
    add("--limit", type=options.count, metavar="N", help="use the first N images only")
    add("--no-augment", action="store_true", help="decode and resize only")
    add("--seed", type=int, default=0, metavar="N", help="order and augmentation (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    end_like_ctrl_c()
    require_new(arguments.patch)
    command = _Command(arguments)
    if arguments.prove:
        return command.prove()
    options.require_folder(arguments.json, command.folder)
    return command.tune()


class _Command:
    """One tuning, or one proof."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._job = _job(arguments)
        if arguments.prove and self._job.scenario is not None:
            raise WhyidleError("--prove takes a command, not a scenario: whyidle tune --prove -- python train.py")
        self.folder: Path = arguments.out or self._job.folder
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise WhyidleError(f"{self.folder} is not empty. Choose another folder with --out.")
        self._keep = partial(keep, self.folder, self._job.asked, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        self.progress = TuneProgress(console(stderr=True), arguments.no_live)
        self._begun = time.monotonic()

    def tune(self) -> int:
        """Search, keep the result in the folder and show it, and give the exit code.

        Raises:
            WhyidleError: nothing can be tuned; nothing but recordings is left of it.
        """
        self._announce()
        new, progress = not self.folder.exists(), self.progress
        self._make_folder()
        try:
            with progress, ScriptBench(self._job.launch, self.folder, progress.tick, progress.say) as bench:
                result = self._tune(bench)
        except KeyboardInterrupt:
            progress.say("Stopped before anything was measured.")
            return INTERRUPTED
        except WhyidleError:
            if new and not any(self.folder.glob("training-*/output.txt")):
                # Nothing was started, so there is nothing to keep.
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        told = tune_json.tuning(result)
        with suppress(RecordError):
            self._keep(told)
        again = shown_again(self.folder, self._arguments.full)
        self._give(tuning_document(result), told, result.patch, f"\n{again}")
        return INTERRUPTED if result.ended == SearchEnd.STOPPED else int(result.ended == SearchEnd.FAILED)

    def _give(self, document: Document, told: Json, patch: Patch | None, more: str = "") -> None:
        """Show a result, unless its JSON goes there, and write its JSON and its patch where that is asked for."""
        arguments = self._arguments
        show_result(lambda: document, lambda: told, arguments.json, arguments.full)
        if more and arguments.json != "-":
            console().print(more, soft_wrap=True, markup=False)
        if arguments.patch is not None:
            self.progress.say(write_patch(patch, arguments.patch))

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"cannot make {self.folder}: {error.strerror}. Choose another with --out.") from error

    def _announce(self) -> None:
        job, arguments = self._job, self._arguments
        what = "Your command" if job.scenario is None else "Its training"
        lines = [
            f"Tuning the loader of {job.title}.",
            f"{what} is started (again should it end), trains on its own data for some {arguments.budget:.0f} s in all "
            "with several loader settings, and is ended without finishing; what it learns is lost.",
        ]
        if arguments.batch_sizes != NONE:
            unless = "Unless it trains on the processor, batch" if arguments.batch_sizes == AUTO else "Batch"
            lines.append(f"{unless} sizes are tried too, in a start each (--batch-sizes none leaves that out).")
        if job.scenario is None:
            lines.append(
                "Files may be overwritten (--overwrite)."
                if arguments.overwrite
                else "It is stopped before it overwrites a file that is there now (--overwrite lets it)."
            )
            lines.append(f"What it prints goes to {self.folder}/training-1/output.txt.")
        for line in (*lines, *(f"data: {notice}" for notice in job.notices)):
            self.progress.say(line)

    def _tune(self, bench: ScriptBench) -> Tuning:
        ready, progress = bench.ready, self.progress
        analysis = self._recorded(bench)
        for sentence in said_of_writes(bench.writes()):
            progress.say(sentence)
        self._keep()
        progress.phase("predicting settings")
        if analysis.facts is None:
            raise WhyidleError(f"no steps of a training were seen: {' '.join(analysis.notes)}")
        workload = workload_of(open_run(self.folder / RECORDING), analysis.facts)
        sizes = self._arguments.batch_sizes
        # `auto` is for accelerators: on a processor, trying what fits means to fill the machine's memory.
        of_sizes = sizes != NONE and not (sizes == AUTO and ready.device == "cpu")
        # What the program's start and the first stretch have left.
        spent = time.monotonic() - self._begun
        budget = max(self._arguments.budget - spent, LEAST_TRIALS_S)
        if self._arguments.budget - spent < LEAST_TRIALS_S:
            progress.say(
                f"The program took {spent:.0f} s to start and to be recorded; trials go on for {LEAST_TRIALS_S:.0f} s, "
                f"which is beyond the budget of {self._arguments.budget:.0f} s."
            )
        plan = self._plan(ready, workload.batch_size, budget * (1 - BATCH_SHARE if of_sizes else 1))
        # All that were tried last live side by side: a few workers a CPU, or as many as an advice would name.
        most = min(MOST_WORKERS, max(8, 4 * round(plan.cpus), Advice(workload).most_workers))
        plan, begun = replace(plan, most_workers=self._arguments.max_workers or most), time.monotonic()
        tuned = search(bench, partial(predict, workload), plan, progress.show)
        if of_sizes and tuned.ended in (SearchEnd.DECIDED, SearchEnd.NOTHING_TO_GAIN, SearchEnd.BUDGET):
            left = budget - (time.monotonic() - begun)
            try:
                tuned = replace(tuned, batch=self._batch(bench, plan, tuned, analysis, left))
            except KeyboardInterrupt:
                because = "stopped by Ctrl-C while batch sizes were tried"
                tuned = replace(tuned, ended=SearchEnd.STOPPED, because=because)
        kept = [path for kind, path in bench.writes() if kind == "refused"]
        return replace(
            tuned,
            what=self._job.title,
            device=analysis.info.get("device") or {},
            wall_s=time.monotonic() - self._begun,
            scenario=self._job.scenario,
            batch_size=plan.batch_size,
            steps=bench.steps,
            starts=bench.starts,
            notes=tuple(f"The training was kept from overwriting {path}." for path in kept),
            patch=self._patch(ready, tuned.best.settings) if tuned.changed and self._job.scenario is None else None,
        )

    def _recorded(self, bench: ScriptBench) -> Analysis:
        """Keep the first stretch, with the program's own settings, as it is while the training waits; its recording
        goes on. Analyse it."""
        assert bench.run_folder is not None
        of, to = bench.run_folder, self.folder / RECORDING
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(0o700)
        for path in (*of.glob("*.rec"), *of.glob("*.json"), *of.glob("*.jsonl"), *of.glob("*notices.txt")):
            shutil.copyfile(path, to / path.name)
        return analyse(open_run(to))

    def _plan(self, ready: Ready, batch_size: int, budget_s: float) -> SearchPlan:
        cuda = ready.device == "cuda"
        return SearchPlan(
            baseline=ready.settings,
            batch_size=ready.settings.batch_size or batch_size,
            budget_s=budget_s,
            batches_per_epoch=ready.batches_per_epoch,
            cuda=cuda,
            out_of_order=self._arguments.out_of_order,
            pipelines=self._job.pipelines,
            # Without a CUDA device nobody expects pinned memory to be tried.
            fixed={name: why for name, why in ready.fixed.items() if cuda or name != "pin_memory"},
            cpus=cpu_budget().budget,
        )

    def _patch(self, ready: Ready, settings: LoaderSettings) -> Patch:
        made = loader_made(open_run(self.folder / RECORDING))
        return patch_of(made, ready.settings, settings, self._job.asked["command"], Path.cwd())

    def _batch(
        self, bench: ScriptBench, plan: SearchPlan, tuned: Tuning, analysis: Analysis, left_s: float
    ) -> BatchAdvice:
        """Advise a batch size: half of the time goes to children that try what fits."""
        if why := plan.fixed.get("batch_size"):
            return cannot(why)
        if left_s < LEAST_BATCH_S:
            return cannot(f"only {max(0.0, left_s):.0f} s of the budget were left")
        progress, largest, asked = self.progress, largest_samples(analysis.facts), self._arguments.batch_sizes
        if plan.cuda:
            # The children need its part of the GPU's memory; it is started again for what follows.
            bench.pause()
        own, most = replace(plan.baseline, batch_size=plan.batch_size), None if asked == AUTO else int(asked)
        probe = child_probe(self._job.launch, bench.folder, own, largest or (), bench.began, progress.tick)
        question = Question(tuned.best.settings, bench.ready.samples, most, largest is not None)
        return advise(bench, probe, question, left_s, progress.phase)

    def prove(self) -> int:
        """Try the first advice on the loader, and tell whether it kept its promise; exit code 1 where that could not be
        measured."""
        progress = self.progress
        progress.say(f"Proving the advice on the loader of {self._job.title}.")
        progress.say(PROVING)
        self._make_folder()
        with progress:
            for steps, seconds in STRETCHES:
                launch = replace(self._job.launch, after_steps=steps, after_s=seconds, most_starts=MOST_STARTS)
                with ScriptBench(launch, self.folder, progress.tick, progress.say) as bench:
                    try:
                        ready = bench.ready
                    except NothingToTune:
                        if (steps, seconds) == STRETCHES[-1]:
                            raise
                        continue
                    return self._prove(bench, ready)
        raise AssertionError("the last stretch either is taken or raises")

    def _prove(self, bench: ScriptBench, ready: Ready) -> int:
        analysis, title = self._recorded(bench), self._job.title
        advised = advised_of(analysis.findings, ready.settings)
        if advised is None or analysis.facts is None:
            again = f"whyidle report {self.folder / RECORDING}"
            why = f"Nothing to prove: no advice on {title} changes a setting of its loader. What it is: {again}"
            proof = Proof(None, ready.settings, None, 0, why)
        else:
            plan = self._plan(ready, analysis.facts.batch_size or 1, self._arguments.budget)
            self.progress.phase("measuring both loaders in turns")

            def on_block(entry: Entry) -> None:
                name = "as it is" if entry.settings == ready.settings else "advised"
                rate = entry.block.samples_per_s if entry.block is not None else 0.0
                self.progress.say(f"{name}: {rate:.0f} samples/s in this block")

            proof = prove(bench, plan, advised, analysis.facts.parts.share("boundary"), on_block)
        bench.end()
        if proof.advised is not None and proof.measured is not None and proof.measured.low > 1:
            proof = replace(proof, patch=self._patch(ready, proof.advised.settings))
        self._give(proof_document(title, proof), tune_json.proof(title, proof, analysis.verdict), proof.patch)
        return int(proof.advised is not None and proof.measured is None)


def said_of_writes(writes: list[tuple[str, str]]) -> list[str]:
    """Tell of (kind, path) in the order of time. What is the user's to remove is apart from what was there before."""
    kinds: dict[str, str] = {}
    for kind, path in writes:
        # What was added to first was there, whatever followed; what was made first may be added to afterwards.
        kinds.setdefault(path, kind)
    said = {
        "new": "The training wrote new files: {}. They are yours to remove.",
        "append": "The training added to files that were there, or opened them to change them: {}.",
        "overwrite": "The training overwrote or removed files that were there: {}.",
    }
    sentences = []
    for kind, sentence in said.items():
        paths = [path for path, each in kinds.items() if each == kind]
        more = f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else ""
        sentences += [sentence.format(", ".join(paths[:SHOWN_FILES]) + more)] if paths else []
    return sentences


# What there is to tune: a command of the user's, or a scenario.


@dataclass(frozen=True)
class TuneJob:
    """One thing to tune."""

    asked: dict[str, Any]
    """What is tuned, as the command was given it: kept in the tuning's folder."""
    title: str
    folder: Path
    """Where it goes if nothing else is asked for; not made yet."""
    launch: Launch
    scenario: str | None = None
    pipelines: tuple[str, ...] = ()
    """Further loaders to try."""
    notices: tuple[str, ...] = ()


def _job(arguments: argparse.Namespace) -> TuneJob:
    """Read what the command line asks for.

    Raises:
        WhyidleError: a mistake in it.
    """
    from whyidle.scenarios.registry import NAMES

    words: list[str] = arguments.what
    if not words:
        raise WhyidleError("nothing to tune was given. Write `whyidle tune -- python train.py`, or name a scenario.")
    first = words[0]
    # One word alone is a scenario's name unless it is to be run. The parser does not tell whether `--` came before.
    runs = first not in NAMES and (os.sep in first or first.endswith(".py") or shutil.which(first) is not None)
    if len(words) == 1 and sys.argv[-2:] != ["--", first] and not runs:
        return _scenario_job(arguments, first)
    options.refuse_given(arguments, OF_SCENARIOS, "scenarios, and this is a command")
    # Asked here, before a folder is made for it.
    if shutil.which(first) is None:
        raise WhyidleError(f"there is no program {first!r} to run.{script_hint(words)}")

    def settings(folder: Path, tune: Mapping[str, Any]) -> Mapping[str, str]:
        return environment(folder, os.environ, {"tune": dict(tune)})

    launch = Launch(words, settings, overwrite=arguments.overwrite, budget_s=arguments.budget)
    said = without_secrets(words)
    return TuneJob({"command": said}, command_line(said), new_folder_for(words, "tune-"), launch)


def _scenario_job(arguments: argparse.Namespace, name: str) -> TuneJob:
    """Check a scenario's options before anything starts: a wrong device, net, loader or folder is one message.

    Raises:
        WhyidleError: such a mistake.
    """
    from whyidle.pipelines.registry import unavailable, unfit
    from whyidle.scenarios.registry import require_installed, scenario

    chosen = scenario(name)
    # Not before the scenario, which says it where there is no torch.
    from whyidle.scenarios.scenario import DataRequest

    [device] = described([arguments.device])
    [net] = chosen.nets_for(device["kind"], [arguments.net] if arguments.net else None)
    check_profiles(chosen, [device], net)
    for each in arguments.pipelines or ():
        if each not in PARALLEL:
            raise WhyidleError(
                f"loader {each!r} has nothing to tune. Loaders with workers or threads are {', '.join(PARALLEL)}; "
                f"`whyidle compare {name} --pipelines {each}` shows how fast it is."
            )
        if missing := unavailable(each):
            raise WhyidleError(missing)
    data = arguments.data or chosen.find_data(net, lambda text: console(stderr=True).print(text, markup=False))
    dataset = chosen.open_data(
        DataRequest(
            folder=data, net=net, augment=not arguments.no_augment, store=chosen.stores[0], limit=arguments.limit
        )
    )
    fitting = [each for each in PARALLEL if not unavailable(each) and not unfit(each, dataset)]
    pipelines, notices = list(arguments.pipelines or fitting), list(dataset.notices())
    asked = {
        "scenario": name,
        "net": net,
        "device": device["name"],
        "data": str(data.resolve()),
        "batch_size": arguments.batch_size or chosen.batch_sizes[0],
        "workers": arguments.workers or 0,
        "prefetch": arguments.prefetch,
        "augment": not arguments.no_augment,
        "limit": arguments.limit,
        "seed": arguments.seed,
    }
    require_installed(f"scenario {name}")
    spec = {**asked, "pipeline": pipelines[0]}

    def settings(folder: Path, tune: Mapping[str, Any]) -> Mapping[str, str]:
        told = json.dumps({**spec, "tune": dict(tune)})
        return {**os.environ, RUN: str(folder.resolve()), "WHYIDLE_TUNING": told}

    # -P: what lies in the user's working folder must not stand in for a module of ours.
    command, description = [sys.executable, "-P", "-m", MODULE], {"trial": spec, "command": None}
    launch = Launch(command, settings, budget_s=arguments.budget, description=description)
    asked |= {"pipelines": pipelines, "notices": notices}
    folder = new_folder(f"tune-{name}")
    return TuneJob(asked, f"{name} · {net}", folder, launch, name, tuple(pipelines[1:]), tuple(notices))
