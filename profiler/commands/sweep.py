"""The runs of a comparison: every loader at every batch size, round by round, each in a process of its own."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_dir

from ..analyse.analysis import Analysis, analyse
from ..analyse.compare import Cell
from ..analyse.diagnosis import LEAST_STEPS
from ..capture.cpu_budget import cpu_budget
from ..errors import RecordError, StallscopeError
from ..record.comparison import CellRecord, is_comparison, write_comparison
from ..record.run import open_run
from ..tune.rounds import rounds
from ..tune.trial import Outcome, Target, TrialServer
from .console import console
from .progress import Progress

if TYPE_CHECKING:
    from stallscope.scenarios.trial import TrialSpec

TARGET = Target("stallscope.scenarios.trial", "run_trial")
COMPOSED_IMAGES = 256
"""In the set that stands in for a user's own images."""
FEWEST_STEPS = 2
"""A run of fewer steps has no rate."""

Key = tuple[str, int]
"""A cell: loader and batch size."""


class Sweep:
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
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise StallscopeError(f"{self.folder} is not empty. Choose another folder with --out.")
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
        shown = Progress(target, self, len(todo) * self._arguments.repeats, self._arguments.no_live)
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

    def _one(self, server: TrialServer, number: int, key: Key, shown: Progress) -> None:
        name = f"{key[0]}-b{key[1]}-r{number}"
        folder = self.folder / name
        spec = self._spec(key, folder)
        self._runs[key].append(name)
        with suppress(RecordError):
            self._save()  # so that a report finds this run even if this command is killed
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
            steps = 0 if analysis.facts is None else analysis.facts.window.count
            # Beside whole runs a stopped one counts only where it went far enough to be judged.
            enough = LEAST_STEPS if status == "stopped" and self._analyses[key] else FEWEST_STEPS
            if steps >= enough:
                self._analyses[key].append(analysis)
                status = "ok"
            elif status == "ok":
                status, error = "failed", f"fewer than {FEWEST_STEPS} steps: choose more epochs or iterations"
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
            activity_windows=arguments.activity_windows,
            seed=arguments.seed,
        )

    def _save(self) -> None:
        records = [CellRecord(*key, *self.status[key], tuple(self._runs[key])) for key in self.keys]
        write_comparison(self.folder, self.setting, records)


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
    if Path(str(json_file)).is_dir():
        raise StallscopeError(f"--json {json_file} is a folder. Name a file, or - for stdout.")
    if not parent.is_dir() and parent != made.absolute():
        raise StallscopeError(f"--json {json_file}: there is no folder {parent}. Make it, or name another.")
