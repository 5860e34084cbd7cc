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
from ..analyse.recent.reader import RecentReader
from ..capture.bootstrap import LOADED, RUN, environment
from ..capture.sampler.start import start_sampler
from ..errors import RecordError, StallscopeError
from ..record.files import plain
from ..record.latest import note_latest
from ..record.notices import TRAINING_NOTICES, Notices
from ..record.processes import processes
from ..record.run import create_run, open_run, update_run
from ..report import bars, contract, live, text
from . import child
from .console import console, json_text, show
from .scalars import Figures
from .status_line import StatusLine, usable

NAME = "run"
HELP = "Runs a training command unchanged, records it, and says what it waited for."
EXAMPLE = "stallscope run -- python train.py --epochs 3"

LINE_SECONDS = 1.0
"""Between two states of the panel."""
PLAIN_SECONDS = 30.0
"""Between lines where the output is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "stallscope run [options] -- COMMAND …"
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default: runs/…)")
    parser.add_argument("--no-live", action="store_true", help="show nothing while the command runs")
    parser.add_argument(
        "--live", choices=("panel", "line"), default="panel", help="what is shown: a few rows (panel), or one (line)"
    )
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
    parser.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="keep a file of figures for node_exporter's textfile collector"
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
        figures = Figures(folder, arguments.prometheus)
        code = _record(folder, command, settings, arguments, figures)
    except StallscopeError:
        # Nothing was started, so there is no run.
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _say_what_was_missed(folder)
    status = "ok" if code == 0 else "stopped" if code in (-2, -15, 130, 143) else "failed"
    # What went wrong, the program itself has said.
    update_run(folder, {"ended": {"status": status, "error": _error_of(code), "exit_code": code}})
    _report(folder, arguments.json, figures)
    return child.end_as(code)


def _record(
    folder: Path, command: list[str], settings: dict[str, str], arguments: argparse.Namespace, figures: Figures
) -> int:
    """Run the command to its end; what it returned."""
    divided = not arguments.no_live and usable()
    with child.Signals() as signals:
        if not divided:
            process = child.start(command, settings, signals)
            with start_sampler(folder, process.pid, arguments.rate) as sampler:
                tick = (lambda: None) if arguments.no_live else _every(PLAIN_SECONDS, _Lines(folder))
                code = child.wait(process, signals, figures.after(tick), 1.0)
        else:
            screen = StatusLine(live.rows_for if arguments.live == "panel" else lambda _: 1)
            process = child.start(command, settings, signals, screen.streams, screen.prepare)
            with start_sampler(folder, process.pid, arguments.rate) as sampler, screen:
                view = _View(folder)
                screen.draw(view.rows)
                code = screen.wait(process, signals, figures.after(lambda: screen.draw(view.rows)), LINE_SECONDS)
    if sampler.error:
        Notices(folder / TRAINING_NOTICES)(sampler.error)
    return code


class _View:
    """The recording as it stands. Never raises: it only informs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader: RecentReader | None = None
        target = console(stderr=True)
        self._colour = target.color_system is not None and not target.no_color
        self._options = live.Options(ascii_only=bars.is_ascii(target))

    def rows(self, columns: int, count: int) -> list[str]:
        """A panel of so many rows, as a terminal takes them."""
        try:
            self._reader = self._reader or RecentReader(self._folder)
            panel = live.panel(self._reader.snapshot(), columns, count, self._options)
            return [row.ansi(self._colour) for row in panel]
        except Exception as error:
            return [*([""] * (count - 1)), _in_a_row(error)[:columns]]

    def line(self) -> str:
        try:
            self._reader = self._reader or RecentReader(self._folder)
            return f" stallscope: {live.state(self._reader.snapshot())}"
        except Exception as error:
            return _in_a_row(error)


def _in_a_row(error: Exception) -> str:
    """Without what a terminal acts on or no encoding can write: an error may name files."""
    return str(plain(f" stallscope: {type(error).__name__}: {error}".replace("\n", " ")))


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


def _report(folder: Path, as_json: bool, figures: Figures) -> None:
    target = console(stderr=True)
    try:
        analysis = analyse(open_run(folder))
        figures.finish(analysis)
        if as_json:
            print(json_text(contract.report(analysis)), file=sys.stderr)
            return
        print(file=sys.stderr)
        show(lambda to: text.render(analysis, to), target)
        again = f"`stallscope report {folder}` shows this again, with --format html as a page."
        print(f"\nThe recording is in {folder}; {again}", file=sys.stderr)
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
