"""`whyidle run -- python train.py …`: runs a training unchanged, records it, and says what it waited for."""

from __future__ import annotations

import argparse
import os
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..analyse.recent.reader import SharedReader
from ..capture.bootstrap import RUN, environment
from ..capture.sampler.start import start_sampler
from ..errors import RecordError, WhyidleError
from ..record.code import CODE
from ..record.code_revision import CodeRevision
from ..record.files import plain
from ..record.latest import note_latest
from ..record.notices import TRAINING_NOTICES, Notices
from ..record.processes import processes
from ..record.run import RUN_JSON, create_run, new_folder_for, open_run, update_run
from ..record.schema import STEP
from ..record.signs import why_unseen
from ..report import live
from ..report.export.scalar_stream import Figures
from ..report.render import bars
from ..results.recordings import RunResult
from ..terminal import child
from ..terminal.console import console, json_text, show
from ..terminal.own_terminal import usable
from ..terminal.status_line import StatusLine

NAME = "run"
HELP = "Runs a training command unchanged, records it, and says what it waited for."
EXAMPLE = "whyidle run -- python train.py --epochs 3"

LINE_SECONDS = 1.0
"""Between two states of the panel."""
PLAIN_SECONDS = 30.0
"""Between lines where the output is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "whyidle run [options] -- COMMAND …"
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
        raise WhyidleError("no command given. Write: whyidle run -- python train.py")
    folder = arguments.out or new_folder_for(command)
    reader = SharedReader(folder)
    figures = Figures(reader, arguments.prometheus)
    new = not os.path.lexists(folder)
    create_run(folder, {"command": command, "headroom": arguments.headroom})
    options = {"activity_windows": arguments.activity_windows, "headroom": arguments.headroom}
    settings = environment(folder, os.environ, options)

    def note(code: int) -> None:
        status = "ok" if code == 0 else "stopped" if code in (-2, -15, 130, 143) else "failed"
        # What went wrong, the program itself has said.
        ended = {"status": status, "error": _error_of(code), "exit_code": code}
        update_run(folder, {"ended": ended, CODE: revision.found()})

    try:
        with CodeRevision(command) as revision:
            code, deaf = _record(
                reader, command, settings, arguments, lambda call: revision.after(figures.after(call)), note
            )
    except WhyidleError:
        _forget(folder, new)
        raise
    # Ctrl-C ends the report; the command has ended as it did.
    with suppress(KeyboardInterrupt), _in_a_line("no report"):
        if not deaf:
            _report(folder, arguments.json, figures)
    return child.end_as(code)


def _forget(folder: Path, new: bool) -> None:
    """Nothing was started, so there is no run. In a folder of the user's own there may be anything else."""
    with suppress(OSError):
        (folder / RUN_JSON).unlink(missing_ok=True)
        if new:
            folder.rmdir()


@contextmanager
def _in_a_line(what: str) -> Iterator[None]:
    """The command has ended, and we end as it did: what goes wrong from here on is a line at most.

    The folder may be gone, the disk full, or a record be what nobody thought of.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError):
            why = f"{error.strerror or error}."
        else:
            why = str(error) if isinstance(error, RecordError) else f"{type(error).__name__}: {error}."
        with suppress(OSError):
            print(plain(f"whyidle: {what}: {why}"), file=sys.stderr)


def _record(
    reader: SharedReader,
    command: list[str],
    settings: dict[str, str],
    arguments: argparse.Namespace,
    and_more: Callable[[Callable[[], object]], Callable[[], None]],
    note: Callable[[int], None],
) -> tuple[int, bool]:
    """Run the command to its end; what it returned, and whether nobody can be told of it.

    Args:
        and_more: a call with what else is due every second.
        note: records how the command ended. It may be called twice.
    """
    folder = reader.folder
    with child.Signals() as signals:
        screen = _screen(arguments)
        if screen is None:
            tick = (lambda: None) if arguments.no_live else _every(PLAIN_SECONDS, _Lines(reader))
            process = child.start(command, settings, signals)
            note_latest(folder)
            with start_sampler(folder, process.pid, arguments.rate) as sampler:
                code = child.wait(process, signals, and_more(tick), 1.0)
        else:
            view = _View(reader)
            process = child.start(command, settings, signals, screen.streams, screen.prepare)
            note_latest(folder)
            with start_sampler(folder, screen.command(process), arguments.rate) as sampler, screen:
                screen.draw(view.rows)

                def over(code: int) -> None:
                    sampler.stop()
                    note(code)

                tick = and_more(lambda: screen.draw(view.rows))
                code = screen.wait(process, signals, tick, LINE_SECONDS, over)
        # Here no signal can come in between.
        with _in_a_line("no note of what was missed"):
            _say_what_was_missed(folder)
            if sampler.error:
                Notices(folder / TRAINING_NOTICES)(sampler.error)
        with _in_a_line("how the command ended is not recorded"):
            note(code)
    return code, screen is not None and screen.deaf


def _screen(arguments: argparse.Namespace) -> StatusLine | None:
    """The terminal, divided; `None` where nothing is to be shown there, or it cannot be."""
    if arguments.no_live or not usable():
        return None
    try:
        return StatusLine(live.rows_for if arguments.live == "panel" else lambda _: 1)
    except (OSError, termios.error):
        return None  # the system has no further terminal for the command, say


class _View:
    """The recording as it stands. Never raises: it only informs."""

    def __init__(self, reader: SharedReader) -> None:
        self._reader = reader
        target = console(stderr=True)
        self._colour = target.color_system is not None and not target.no_color
        self._options = live.Options(ascii_only=bars.is_ascii(target))

    def rows(self, columns: int, count: int) -> list[str]:
        """A panel of so many rows, as a terminal takes them."""
        try:
            panel = live.panel(self._reader.snapshot(), columns, count, self._options)
            return [row.ansi(self._colour) for row in panel]
        except Exception as error:
            return [*([""] * (count - 1)), _in_a_row(error)[:columns]]

    def line(self) -> str:
        try:
            return f" whyidle: {live.state(self._reader.snapshot())}"
        except Exception as error:
            return _in_a_row(error)


def _in_a_row(error: Exception) -> str:
    """Without what a terminal acts on or no encoding can write: an error may name files."""
    return str(plain(f" whyidle: {type(error).__name__}: {error}".replace("\n", " ")))


class _Lines:
    """Prints it, for an output that is no terminal."""

    def __init__(self, reader: SharedReader) -> None:
        self._view = _View(reader)

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
    if any(folder.glob(f"{STEP.name}-*.rec")):
        why: str | None = (
            "A training was seen, but what it is could not be written into the run folder: was the disk full?"
        )
    else:
        why = why_unseen(folder, f" ({RUN} points to another folder)" if os.environ.get(RUN) else "")
    if why is not None:
        Notices(folder / TRAINING_NOTICES)(f"{why} Only host and accelerator figures were recorded.")


def _report(folder: Path, as_json: bool, figures: Figures) -> None:
    result = RunResult([open_run(folder)])
    figures.finish(result.analysis)
    if as_json:
        print(json_text(result.contract()), file=sys.stderr)
        return
    print(file=sys.stderr)
    show(result.render, console(stderr=True))
    again = f"`whyidle report {folder}` shows this again, with --format html as a page."
    print(f"\nThe recording is in {folder}; {again}", file=sys.stderr)


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
