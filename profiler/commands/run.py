"""`stallscope run -- python train.py …`: runs a training unchanged, records it, and says what it waited for."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..analyse.analysis import analyse
from ..analyse.recent import RecentReader
from ..capture.bootstrap import LOADED, RUN, environment
from ..capture.sampler.start import start_sampler
from ..errors import RecordError, StallscopeError
from ..record.latest import note_latest
from ..record.notices import TRAINING_NOTICES, Notices
from ..record.processes import processes
from ..record.run import create_run, open_run, update_run
from ..report import contract, live, text
from . import child
from .console import console, json_text, show
from .status_line import StatusLine, usable

NAME = "run"
HELP = "Runs a training command unchanged, records it, and says what it waited for."
EXAMPLE = "stallscope run -- python train.py --epochs 3"

LINE_SECONDS = 1.0
"""Between two states of the status line."""
PLAIN_SECONDS = 30.0
"""Between lines where the output is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stallscope run [options] -- COMMAND …"
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default: runs/…)")
    parser.add_argument("--no-live", action="store_true", help="show nothing while the command runs")
    parser.add_argument("--rate", type=_rate, default=5.0, metavar="HZ", help="looks at host and GPU a second (5)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON (to stderr, like all we print)")
    parser.add_argument(
        "--activity-windows", action="store_true", help="record every kernel of a few steps in a thousand (CUDA)"
    )
    parser.add_argument(
        "--headroom",
        action="store_true",
        help="measure what an infinitely fast loader would give, in stretches whose batches are fetched ahead: "
        "not where samplers or datasets depend on the training's progress",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="what to run")


def run(arguments: argparse.Namespace) -> int:
    if sys.stderr is None:
        # Closed by whoever started us: then nothing of ours is shown, least of all among the command's output.
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    command: list[str] = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise StallscopeError("no command given. Write: stallscope run -- python train.py")
    folder = arguments.out or child.new_folder(command)
    create_run(folder, {"command": command, "headroom": arguments.headroom})
    note_latest(folder)
    options = {"activity_windows": arguments.activity_windows, "headroom": arguments.headroom}
    settings = environment(folder, os.environ, options)
    try:
        code = _record(folder, command, settings, arguments)
    except StallscopeError:
        # Nothing was started, so there is no run.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _say_what_was_missed(folder)
    status = "ok" if code == 0 else "stopped" if code in (-2, -15, 130, 143) else "failed"
    # What went wrong, the program itself has said.
    update_run(folder, {"ended": {"status": status, "error": _error_of(code), "exit_code": code}})
    _report(folder, arguments.json)
    return child.end_as(code)


def _record(folder: Path, command: list[str], settings: dict[str, str], arguments: argparse.Namespace) -> int:
    """Run the command to its end; what it returned."""
    divided = not arguments.no_live and usable()
    with child.Signals() as signals:
        if not divided:
            process = child.start(command, settings, signals)
            with start_sampler(folder, process.pid, arguments.rate) as sampler:
                tick = (lambda: None) if arguments.no_live else _every(PLAIN_SECONDS, _Lines(folder))
                code = child.wait(process, signals, tick, 1.0)
        else:
            screen = StatusLine()
            process = child.start(command, settings, signals, screen.streams, screen.prepare)
            with start_sampler(folder, process.pid, arguments.rate) as sampler, screen:
                view = _View(folder)
                screen.draw(view.line())
                code = screen.wait(process, signals, lambda: screen.draw(view.line()), LINE_SECONDS)
    if sampler.error:
        Notices(folder / TRAINING_NOTICES)(sampler.error)
    return code


class _View:
    """The recording in one line, as it stands. Never raises: it only informs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader: RecentReader | None = None

    def line(self) -> str:
        try:
            self._reader = self._reader or RecentReader(self._folder)
            return f" stallscope: {live.state(self._reader.snapshot())}"
        except Exception as error:
            return f" stallscope: {type(error).__name__}: {error}"


class _Lines:
    """Prints it, for an output that is no terminal."""

    def __init__(self, folder: Path) -> None:
        self._view = _View(folder)

    def __call__(self) -> None:
        with suppress(OSError):
            # One write, so that no other line can come in between.
            os.write(sys.stderr.fileno(), (self._view.line().strip() + "\n").encode())


def _every(seconds: float, call: Callable[[], None]) -> Callable[[], None]:
    due = time.monotonic() + seconds

    def tick() -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + seconds
            call()

    return tick


def _say_what_was_missed(folder: Path) -> None:
    """Why there is nothing to say about steps, where there is not."""
    if processes(folder):
        return
    notice = Notices(folder / TRAINING_NOTICES)
    if not (folder / LOADED).exists():
        within = f" ({RUN} points to another folder)" if os.environ.get(RUN) else ""
        notice(
            "The hooks never loaded: the command started no Python that reads its environment "
            f"(python -I, -E and -S do not){within}. Only host and accelerator figures were recorded."
        )
    else:
        notice(
            "No training was seen: no process made an optimizer, ran a backward pass or iterated over a torch "
            "DataLoader. Only host and accelerator figures were recorded."
        )


def _report(folder: Path, as_json: bool) -> None:
    target = console(stderr=True)
    try:
        analysis = analyse(open_run(folder))
        if as_json:
            print(json_text(contract.report(analysis)), file=sys.stderr)
            return
        print(file=sys.stderr)
        show(lambda to: text.render(analysis, to), target)
        print(f"\nThe recording is in {folder}; `stallscope report {folder}` shows this again.", file=sys.stderr)
    except RecordError as error:
        # The folder may be gone, or the disk full: no reason to end otherwise than the command did.
        print(f"stallscope: no report: {error}", file=sys.stderr)
    except OSError as error:
        with suppress(OSError):
            print(f"stallscope: no report: {error.strerror or error}.", file=sys.stderr)


def _error_of(code: int) -> str | None:
    if code == 0:
        return None
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _rate(given: str) -> float:
    try:
        rate = float(given)
    except ValueError:
        rate = 0.0
    if not 0 < rate <= 50:
        raise argparse.ArgumentTypeError(f"{given!r} is not a number above 0 and up to 50")
    return rate
