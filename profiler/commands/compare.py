"""`stallscope compare SCENARIO`: trains with each loader at each batch size, and explains the table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_dir
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ..analyse.analysis import Analysis, analyse
from ..analyse.compare import Cell, compare
from ..analyse.recent import RecentReader
from ..capture.cpu_budget import cpu_budget
from ..errors import RecordError, StallscopeError
from ..record.comparison import CellRecord, is_comparison, write_comparison
from ..record.run import open_run
from ..report import bars, compare_text, contract, live
from ..tune.rounds import rounds
from ..tune.trial import Outcome, Target, TrialServer
from .console import console, show, write_json

if TYPE_CHECKING:
    from stallscope.scenarios.trial import TrialSpec

NAME = "compare"
HELP = "Trains a scenario with each loader at each batch size, and explains the table."
EXAMPLE = "stallscope compare ssd --device emulated:v100 --batch-sizes 8,16 --data data/voc"

TARGET = Target("stallscope.scenarios.trial", "run_trial")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help="name of a scenario (`stallscope scenarios` lists them)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder with images (default: a composed set)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or emulated:NAME (default: auto)")
    parser.add_argument("--net", help="default: the study's on a GPU and emulated, a small one on the CPU")
    parser.add_argument("--pipelines", type=_names, metavar="A,B", help="loaders (default: all that can run here)")
    parser.add_argument("--batch-sizes", type=_counts, metavar="N,N", help="default: the study's")
    stop = parser.add_mutually_exclusive_group()
    stop.add_argument("--epochs", type=_count, metavar="N", help="passes over the images a run (default: 2)")
    stop.add_argument("--iterations", type=_count, metavar="N", help="batches a run, whatever their size")
    parser.add_argument("--repeats", type=_count, default=2, metavar="N", help="runs a cell (default: 2)")
    parser.add_argument("--workers", type=_count, metavar="N", help="default: the CPUs this job may use")
    parser.add_argument("--prefetch", type=_count, default=2, metavar="N", help="batches ahead a worker (default: 2)")
    parser.add_argument("--limit", type=_count, metavar="N", help="use the first N images only")
    parser.add_argument("--no-augment", action="store_true", help="decode and resize only")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="order and augmentation (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- is stdout)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the runs (default: runs/…)")
    parser.add_argument("--no-live", action="store_true", help="plain lines instead of the live view")


def run(arguments: argparse.Namespace) -> int:
    sweep = _Sweep(arguments)
    interrupted = sweep.run()
    result = compare([sweep.cell(key) for key in sweep.keys])
    if arguments.json != "-":
        target = console()
        show(lambda console: compare_text.render(result, sweep.setting, console), target)
        target.print(
            f"\nruns and figures: {sweep.folder}   (stallscope report {sweep.folder})", soft_wrap=True, markup=False
        )
    if arguments.json:
        write_json(contract.comparison(result, sweep.setting), arguments.json)
    return 130 if interrupted else int(all(sweep.status[k][0] != "ok" for k in sweep.keys))


COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own images."""
LEAST_STEPS = 2
"""A run of fewer steps has no rate."""

Key = tuple[str, int]
"""A cell: loader and batch size."""


class _Sweep:
    """The cells of one comparison and what has become of them so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from stallscope.pipelines.registry import NAMES, unavailable
        from stallscope.scenarios import ssd
        from stallscope.scenarios.scenario import scenario
        from stallscope.scenarios.voc.check import summary

        from ..devices.choose import choose, describe

        chosen = scenario(arguments.scenario)
        # Checked here, before the first run: a wrong device, net, loader or folder is one message.
        device = describe(arguments.device)
        net = chosen.net_for(device["kind"], arguments.net)
        if device["kind"] == "emulated":
            ssd.step_time(choose(arguments.device), net)
        for name in arguments.pipelines or ():
            if name not in NAMES:
                raise StallscopeError(f"unknown loader {name!r}. There are {', '.join(NAMES)}.")
        data: Path = arguments.data or _composed(chosen.name)
        dataset = ssd.open_data(data, net, not arguments.no_augment, arguments.limit)
        loaders = arguments.pipelines or [n for n in NAMES if n != "dali-gpu" or device["kind"] == "cuda"]
        sizes = arguments.batch_sizes or chosen.batch_sizes
        budget = cpu_budget().budget
        self.notices = summary(dataset.findings)
        self.folder: Path = arguments.out or Path("runs") / f"{chosen.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        if is_comparison(self.folder):
            raise StallscopeError(f"{self.folder} already holds a comparison. Choose another folder with --out.")
        _require_folder(arguments.json, self.folder)
        self.keys: list[Key] = [(loader, size) for loader in loaders for size in sizes]
        self.status: dict[Key, tuple[str, str | None]] = {}
        self._analyses: dict[Key, list[Analysis]] = {key: [] for key in self.keys}
        self._runs: dict[Key, list[str]] = {key: [] for key in self.keys}
        self._arguments = arguments
        self._net = net
        self._data = data
        workers = arguments.workers or max(1, int(budget))
        stop = {"iterations": arguments.iterations} if arguments.iterations else {"epochs": arguments.epochs or 2}
        self.setting: dict[str, Any] = {
            "scenario": chosen.name,
            "net": net,
            "device": device,
            "cpu_budget": budget,
            "workers": workers,
            "stop": stop,
            "repeats": arguments.repeats,
            "augment": not arguments.no_augment,
            "dataset": {"folder": str(data), **dataset.describe()},
        }
        for key in self.keys:
            missing = unavailable(key[0])
            self.status[key] = ("skipped", missing) if missing else ("pending", None)

    def cell(self, key: Key) -> Cell:
        status, error = self.status[key]
        runs = tuple(str(self.folder / name) for name in self._runs[key])
        return Cell(key[0], key[1], status, error, runs, tuple(self._analyses[key]))

    def run(self) -> bool:
        """Run every cell, round by round. True when Ctrl-C cut it short; what was measured is kept."""
        self._save()
        target = console(stderr=True)
        for notice in self.notices:
            target.print(f"data: {notice}", soft_wrap=True, markup=False)
        todo = [k for k in self.keys if self.status[k][0] == "pending"]
        shown = _Shown(target, self, len(todo) * self._arguments.repeats, self._arguments.no_live)
        try:
            with shown:
                server = TrialServer(TARGET)
                for number, key in rounds(todo, self._arguments.repeats, self._arguments.seed):
                    if self.status[key][0] in ("pending", "ok"):
                        self._one(server, number, key, shown)
        except KeyboardInterrupt:
            self._stopped()
            return True
        finally:
            with suppress(RecordError):
                self._save()
        return False

    def _one(self, server: TrialServer, number: int, key: Key, shown: _Shown) -> None:
        name = f"{key[0]}-b{key[1]}-r{number}"
        folder = self.folder / name
        spec = self._spec(key, folder)
        self._runs[key].append(name)
        shown.begin(folder)
        description = {"trial": asdict(spec), "device": self.setting["device"], "notices": self.notices}
        try:
            outcome = server.run(folder, spec, description, shown.tick)
        except KeyboardInterrupt:
            self._keep(key, folder, Outcome("stopped", "stopped by Ctrl-C"))
            raise
        except RecordError as error:
            # A full disk: what was recorded before is still worth its table.
            outcome = Outcome("failed", str(error))
        self._keep(key, folder, outcome)
        shown.end(key)
        with suppress(RecordError):
            self._save()

    def _keep(self, key: Key, folder: Path, outcome: Outcome) -> None:
        """Take a run into its cell. A stopped run counts as far as it went, if it went anywhere."""
        status, error = outcome.status, outcome.error
        if status in ("ok", "stopped"):
            analysis = analyse(open_run(folder))
            if analysis.facts is not None and len(analysis.facts.window.steps) >= LEAST_STEPS:
                self._analyses[key].append(analysis)
                status = "ok"
            elif status == "ok":
                status, error = "failed", f"fewer than {LEAST_STEPS} steps: choose more epochs or iterations"
        if status == "stopped":
            status = "ok" if self._analyses[key] else "skipped"
        self.status[key] = (status, error)

    def _stopped(self) -> None:
        for key in self.keys:
            if self.status[key][0] == "pending":
                self.status[key] = ("skipped", "not run: stopped by Ctrl-C")

    def _spec(self, key: Key, folder: Path) -> TrialSpec:
        from stallscope.scenarios.trial import TrialSpec

        arguments = self._arguments
        return TrialSpec(
            scenario=arguments.scenario,
            net=self._net,
            pipeline=key[0],
            batch_size=key[1],
            device=self.setting["device"]["name"],
            data=str(self._data.resolve()),
            folder=str(folder.resolve()),
            epochs=self.setting["stop"].get("epochs"),
            iterations=self.setting["stop"].get("iterations"),
            workers=self.setting["workers"],
            prefetch=arguments.prefetch,
            augment=not arguments.no_augment,
            limit=arguments.limit,
            seed=arguments.seed,
        )

    def _save(self) -> None:
        records = [CellRecord(*key, *self.status[key], tuple(self._runs[key])) for key in self.keys]
        write_comparison(self.folder, self.setting, records)


class _Shown:
    """Progress while the cells run: the live view on a terminal, a line a run elsewhere."""

    def __init__(self, target: Console, sweep: _Sweep, total: int, plain: bool) -> None:
        self._target = target
        self._sweep = sweep
        self._total = total
        self._device = sweep.setting["device"]["name"]
        self._emulated = sweep.setting["device"]["kind"] == "emulated"
        self._done = 0
        self._begun = time.monotonic()
        self._reader: RecentReader | None = None
        self._folder: Path | None = None
        drawn = target.is_terminal and not plain
        self._live = Live(console=target, auto_refresh=False, transient=True) if drawn else None

    def __enter__(self) -> _Shown:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, folder: Path) -> None:
        self._folder, self._reader = folder, None

    def end(self, key: Key) -> None:
        self._done += 1
        if self._live is None:
            cell = self._sweep.cell(key)
            rate = cell.samples_per_s
            said = (
                cell.error or ""
                if cell.status != "ok" or rate is None
                else f"{rate[0]:.1f} samples/s on {self._device}"
            )
            self._target.print(
                f"[{self._done}/{self._total}] {key[0]}, batch {key[1]}: {cell.status} {said}",
                markup=False,
                soft_wrap=True,
            )

    def tick(self) -> None:
        if self._live is None or self._folder is None:
            return
        if self._reader is None:
            try:
                self._reader = RecentReader(self._folder)
            except RecordError:
                return
        ascii_only = bars.is_ascii(self._target)
        ran = tuple(self._sweep.cell(k) for k in self._sweep.keys if self._sweep.status[k][0] != "pending")
        view = live.render(self._reader.snapshot(), self._target.width, ascii_only)
        rows = max(3, self._target.height - 16)
        table = compare_text.table(ran[-rows:], ascii_only, self._emulated)
        self._live.update(Group(table, Text(), self._head(), view), refresh=True)

    def _head(self) -> Text:
        elapsed = time.monotonic() - self._begun
        left = elapsed / self._done * (self._total - self._done) if self._done else None
        said = f"run {self._done + 1} of {self._total}"
        return Text(said + (f", about {live.duration(left)} left" if left is not None else ""), style="bold")


def _composed(scenario: str) -> Path:
    """A set of images in the user's cache; composed the first time, which takes some seconds."""
    from stallscope.scenarios.voc.generate import compose

    folder = Path(user_cache_dir("stallscope")) / "data" / f"{scenario}-{COMPOSED_IMAGES}"
    if not folder.exists():
        console(stderr=True).print(f"No --data: composing {COMPOSED_IMAGES} images into {folder}", markup=False)
    compose(folder, COMPOSED_IMAGES, 0)
    return folder


def _require_folder(json_file: str | None, made: Path) -> None:
    """The file for the result must have a folder now, not only when the runs are over; `made` will be there."""
    if json_file in (None, "-"):
        return
    parent = Path(str(json_file)).absolute().parent
    if not parent.is_dir() and parent != made.absolute():
        raise StallscopeError(f"--json {json_file}: there is no folder {parent}. Make it, or name another.")


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name for name in text.split(",") if name))


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 4294967295")
    return int(text)


def _counts(text: str) -> Sequence[int]:
    return list(dict.fromkeys(_count(part) for part in text.split(",")))
