"""`whyidle tune`: finds loader settings for a training, and proves the gain by trial."""

from __future__ import annotations

import argparse
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..analyse.predict.advice import MOST_WORKERS, Advice
from ..analyse.predict.fit import ReplayModel
from ..analyse.predict.observed import workload_of
from ..analyse.predict.workload import Workload
from ..analyse.run.analysis import Analysis, analyse
from ..analyse.run.facts import sample_sizes
from ..capture.cpu_budget import cpu_budget
from ..errors import RecordError, WhyidleError
from ..interrupts import end_like_ctrl_c
from ..record.run import open_run
from ..report.contract import tuning as tune_json
from ..report.contract.encode import builtins
from ..report.documents.tuning import tuning_document
from ..terminal.console import console, show_document, shown_again, write_json
from ..terminal.progress import TuneProgress
from ..tune.bench.script_bench import NothingToTune, Ready, ScriptBench
from ..tune.patch import loader_made, patch_of, require_new, write_patch
from ..tune.search.candidates import SearchPlan
from ..tune.search.result import SearchEnd
from ..tune.search.search import search
from ..tune.search.tuning import RECORDING, Tuning, TuningFile
from . import options, tune_batch, tune_jobs, tune_prove

BUDGET_S = 120.0
LEAST_BUDGET_S = 20.0
"""A first stretch of a few seconds, and a few blocks each of a few settings."""
LEAST_TRIALS_S = 12.0
"""However long the program took to start: a few settings in a few blocks."""
INTERRUPTED = 130
SHOWN_FILES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "whyidle tune [options] -- COMMAND …\n       whyidle tune [options] SCENARIO"
    parser.add_argument("what", nargs="*", metavar="SCENARIO | -- COMMAND …", help="what to tune")
    parser.add_argument(
        "--budget",
        type=_budget,
        default=BUDGET_S,
        metavar="S",
        help="seconds that it may take, the program's start counted (120)",
    )
    options.add_full(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for recordings and results (default: runs/…)")
    parser.add_argument(
        "--prove", action="store_true", help="try the first advice on the loader, and hold it against what it promises"
    )
    parser.add_argument(
        "--patch",
        type=Path,
        metavar="FILE",
        help="write the change of your source as a patch; nothing else is changed",
    )
    parser.add_argument("--overwrite", action="store_true", help="let the training overwrite files that exist")
    parser.add_argument("--out-of-order", action="store_true", help="also try in_order=False (torch 2.6 and newer)")
    parser.add_argument("--max-workers", type=options.count, metavar="N", help="try no more (default: 8, or 4 a CPU)")
    parser.add_argument(
        "--batch-sizes",
        type=_largest,
        default=tune_batch.AUTO,
        metavar="auto|none|N",
        help="look for a batch size too, of at most N samples (auto: unless on the processor)",
    )
    parser.add_argument("--no-live", action="store_true", help="plain lines instead of the line that is drawn over")
    scenarios = parser.add_argument_group("of scenarios")
    scenarios.add_argument(
        "--pipelines", type=options.names, metavar="A,B", help="loaders to try; the first is what it has now"
    )
    scenarios.add_argument("--batch-size", type=options.count, metavar="N", help="default: the study's smallest")
    scenarios.add_argument("--workers", type=_workers, default=0, metavar="N", help="that it has now (default: none)")
    scenarios.add_argument(
        "--prefetch", type=options.count, default=2, metavar="N", help="batches ahead a worker, now (default: 2)"
    )
    scenarios.add_argument("--device", default="auto", help="auto, cpu, cuda or emulated:NAME (default: auto)")
    scenarios.add_argument("--net", help="default: the study's on a GPU and emulated, a small one on the CPU")
    scenarios.add_argument("--data", type=Path, metavar="DIR", help="folder with images (default: a composed set)")
    scenarios.add_argument("--limit", type=options.count, metavar="N", help="use the first N images only")
    scenarios.add_argument("--no-augment", action="store_true", help="decode and resize only")
    scenarios.add_argument("--seed", type=int, default=0, metavar="N", help="order and augmentation (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    end_like_ctrl_c()
    require_new(arguments.patch)
    if arguments.prove:
        return tune_prove.run(arguments, _copy_recording)
    command = _Command(arguments)
    options.require_folder(arguments.json, command.folder)
    try:
        result = command.run()
    except KeyboardInterrupt:
        command.say("Stopped before anything was measured.")
        return INTERRUPTED
    if arguments.json != "-":
        target = console()
        show_document(tuning_document(result), target, arguments.full)
        target.print(f"\n{shown_again(command.folder, arguments.full)}", soft_wrap=True, markup=False)
    if arguments.patch is not None:
        command.say(write_patch(result.patch, arguments.patch))
    if arguments.json:
        write_json(tune_json.tuning(result), arguments.json)
    return INTERRUPTED if command.ended == SearchEnd.STOPPED else int(command.ended == SearchEnd.FAILED)


class _Command:
    """One tuning."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._job = tune_jobs.job(arguments)
        self.folder: Path = arguments.out or self._job.folder
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise WhyidleError(f"{self.folder} is not empty. Choose another folder with --out.")
        self._kept = TuningFile(self._job.asked, time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        self._target = console(stderr=True)
        self._begun = time.monotonic()
        self.ended = ""
        """Why the search did."""

    def say(self, sentence: str) -> None:
        self._target.print(sentence, markup=False, soft_wrap=not self._target.is_terminal)

    def run(self) -> Tuning:
        """
        Raises:
            WhyidleError: nothing can be tuned; nothing but recordings is left of it.
            KeyboardInterrupt: before anything was measured.
        """
        self._announce()
        new = not self.folder.exists()
        try:
            self.folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"cannot make {self.folder}: {error.strerror}. Choose another with --out.") from error
        progress = TuneProgress(self._target, self._arguments.no_live)
        try:
            with progress, ScriptBench(self._job.launch, self.folder, progress.tick, progress.say) as bench:
                result = self._tune(bench, progress)
        except WhyidleError:
            if new and not any(self.folder.glob("training-*/output.txt")):
                # Nothing was started, so there is nothing to keep.
                shutil.rmtree(self.folder, ignore_errors=True)
            raise
        with suppress(RecordError):
            replace(self._kept, result=builtins(tune_json.tuning(result))).save(self.folder)
        return result

    def _announce(self) -> None:
        job, arguments = self._job, self._arguments
        lines = [f"Tuning the loader of {job.title}."]
        what = "Your command" if job.scenario is None else "Its training"
        lines.append(
            f"{what} is started (again should it end), trains on its own data for some {arguments.budget:.0f} s in all "
            "with several loader settings, and is ended without finishing; what it learns is lost."
        )
        if arguments.batch_sizes != tune_batch.NONE:
            unless = "Unless it trains on the processor, batch" if arguments.batch_sizes == tune_batch.AUTO else "Batch"
            lines.append(f"{unless} sizes are tried too, in a start each (--batch-sizes none leaves that out).")
        if job.scenario is None:
            lines.append(
                "Files may be overwritten (--overwrite)."
                if arguments.overwrite
                else "It is stopped before it overwrites a file that is there now (--overwrite lets it)."
            )
            lines.append(f"What it prints goes to {self.folder}/training-1/output.txt.")
        lines += [f"data: {notice}" for notice in job.notices]
        for line in lines:
            self.say(line)

    def _tune(self, bench: ScriptBench, progress: TuneProgress) -> Tuning:
        arguments, ready = self._arguments, bench.ready
        assert bench.run_folder is not None
        _copy_recording(bench.run_folder, self.folder / RECORDING)
        for sentence in said_of_writes(bench.writes()):
            progress.say(sentence)
        self._refuse_ranks(ready)
        self._kept.save(self.folder)
        progress.phase("predicting settings")
        analysis, workload = self._observed()
        question = tune_batch.wanted(arguments.batch_sizes, ready)
        share = 1 - tune_batch.SHARE if question.looked_at else 1.0
        budget = self._left(progress)
        plan = self._plan(ready, workload, share * budget)
        model = ReplayModel(workload)
        begun = time.monotonic()
        tuned = search(bench, model, plan, progress.show)
        self.ended = tuned.ended
        if tuned.baseline.samples_per_s is None:
            if tuned.ended == SearchEnd.STOPPED:
                raise KeyboardInterrupt
            raise NothingToTune(f"nothing was measured: {tuned.because}")
        if question.looked_at and tuned.ended in (SearchEnd.DECIDED, SearchEnd.NOTHING_TO_GAIN, SearchEnd.BUDGET):
            left = budget - (time.monotonic() - begun)
            sizes, launch = sample_sizes(analysis.facts), self._job.launch
            try:
                advice = tune_batch.batch_advice(question, launch, bench, model, plan, tuned, sizes, left, progress)
                tuned = replace(tuned, batch=advice)
            except KeyboardInterrupt:
                self.ended = SearchEnd.STOPPED
                tuned = replace(tuned, ended=self.ended, because="stopped by Ctrl-C while batch sizes were tried")
        patch = None
        if self._job.scenario is None and tuned.best.settings != tuned.baseline.settings:
            made = loader_made(open_run(self.folder / RECORDING))
            patch = patch_of(made, ready.settings, tuned.best.settings, self._job.asked["command"], Path.cwd())
        return Tuning(
            what=self._job.title,
            device=analysis.info.get("device") or {},
            tuned=replace(tuned, wall_s=time.monotonic() - self._begun),
            scenario=self._job.scenario,
            batch_size=plan.batch_size,
            steps=bench.steps,
            starts=bench.starts,
            notes=tuple(_notes(bench)),
            patch=patch,
        )

    def _left(self, progress: TuneProgress) -> float:
        """Seconds for trials: what the program's start and the first stretch have left of the budget."""
        spent = time.monotonic() - self._begun
        left = float(self._arguments.budget) - spent
        if left >= LEAST_TRIALS_S:
            return left
        progress.say(
            f"The program took {spent:.0f} s to start and to be recorded; trials go on for {LEAST_TRIALS_S:.0f} s, "
            f"which is beyond the budget of {self._arguments.budget:.0f} s."
        )
        return LEAST_TRIALS_S

    def _observed(self) -> tuple[Analysis, Workload]:
        run = open_run(self.folder / RECORDING)
        analysis = analyse(run)
        if analysis.facts is None:
            raise WhyidleError(f"no steps of a training were seen: {' '.join(analysis.notes)}")
        return analysis, workload_of(run, analysis.facts)

    def _plan(self, ready: Ready, workload: Workload, budget_s: float) -> SearchPlan:
        arguments, cuda = self._arguments, ready.said.get("device") == "cuda"
        return SearchPlan(
            baseline=ready.settings,
            batch_size=ready.settings.batch_size or workload.batch_size,
            budget_s=budget_s,
            batches_per_epoch=ready.batches_per_epoch,
            cpus=workload.limits.cpus,
            cuda=cuda,
            out_of_order=arguments.out_of_order,
            pipelines=self._job.pipelines,
            # Without a CUDA device nobody expects pinned memory to be tried.
            fixed={name: why for name, why in ready.fixed.items() if cuda or name != "pin_memory"},
            most_workers=arguments.max_workers or _most_workers(workload),
        )

    def _refuse_ranks(self, ready: Ready) -> None:
        ranks = ready.said.get("world_size") or 1
        if ranks > 1:
            raise NothingToTune(
                f"the training has {ranks} ranks, which would have to change their settings together. Tune it as one "
                "process on one device; each rank's loader is as that one's."
            )


def said_of_writes(writes: list[tuple[str, str]]) -> list[str]:
    """Of (kind, path) in the order of time. What is the user's to remove is apart from what was there before."""
    kinds: dict[str, str] = {}
    for kind, path in writes:
        # What was added to first was there, whatever followed; what was made first may be added to afterwards.
        kinds.setdefault(path, kind)
    said = []
    if new := _named(kinds, "new"):
        said.append(f"The training wrote new files: {new}. They are yours to remove.")
    if added := _named(kinds, "append"):
        said.append(f"The training added to files that were there, or opened them to change them: {added}.")
    if over := _named(kinds, "overwrite"):
        said.append(f"The training overwrote or removed files that were there: {over}.")
    return said


def _named(kinds: dict[str, str], kind: str) -> str:
    paths = [path for path, each in kinds.items() if each == kind]
    more = f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else ""
    return ", ".join(paths[:SHOWN_FILES]) + more


def _most_workers(workload: Workload) -> int:
    """Each of them takes memory, and all that were tried last live side by side: a few a CPU, or as many as an advice
    would name."""
    asked = Advice(workload).most_workers
    return min(MOST_WORKERS, max(8, 4 * round(cpu_budget().budget), asked))


def _copy_recording(of: Path, to: Path) -> None:
    """The first stretch, with the program's own settings, as it is while the training waits: its recording goes on."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(0o700)
    for path in (*of.glob("*.rec"), *of.glob("*.json"), *of.glob("*.jsonl"), *of.glob("*notices.txt")):
        shutil.copyfile(path, to / path.name)


def _notes(bench: ScriptBench) -> list[str]:
    kept = [path for kind, path in bench.writes() if kind == "refused"]
    return [f"The training was kept from overwriting {path}." for path in kept]


def _workers(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _largest(text: str) -> str | int:
    if text in (tune_batch.AUTO, tune_batch.NONE):
        return text
    return options.count(text)


def _budget(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_BUDGET_S <= seconds < 1e6:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too little, or no number of seconds: a few settings need {LEAST_BUDGET_S:.0f} s at least"
        )
    return seconds
