"""`whyidle run -- python train.py …`: runs a training unchanged, records it, and says what it waited for."""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path

from ..capture.bootstrap import RUN, environment
from ..capture.limits import cpu_budget
from ..capture.sampler.start import StackOptions, start_sampler
from ..errors import WhyidleError
from ..record.code import CODE, CodeRevision
from ..record.files import plain
from ..record.latest import note_latest
from ..record.notices import TRAINING_NOTICES, Notices, why_unseen
from ..record.run import RUN_JSON, create_run, new_folder_for, open_run, processes, read_image_files, update_run
from ..record.schema import STEP
from ..report.export.scalars import Figures
from ..results.recordings import RunResult
from ..terminal import child
from ..terminal.console import console, json_text, show_document, shown_again
from .options import add_full, number

SHOWN = ("panel", "line")
"""Values of --live, which once chose between forms and now all mean the same."""
STACKS = ("auto", "outside", "off")
"""Values of --stacks, of which the first is meant where none is given."""
RATE = number("is not a number above 0 and up to 50", 0, 50, above=True)
LOOK_SECONDS = 1.0
"""Between two looks at whether figures are due."""
TO_WATCH = "to watch: whyidle live in another terminal, or run --live"


def spelled_out(words: Sequence[str]) -> list[str]:
    """These arguments with a value for each `--live`: argparse would take the command's first word for one."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = {name: action for action in parser._actions for name in action.option_strings}
    given = list(words)
    at = 0
    while at < len(given) and given[at] != "--" and given[at].startswith("-"):
        if given[at] == "--live" and given[at + 1 : at + 2] not in ([value] for value in SHOWN):
            given[at] += f"={SHOWN[0]}"
        action = options.get(given[at])
        at += 1 if action is None or action.nargs == 0 else 2
    return given


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "whyidle run [options] -- COMMAND …"
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the recording (default: runs/…)")
    parser.add_argument(
        "--live",
        choices=SHOWN,
        nargs="?",
        const=SHOWN[0],
        help="show how it goes, never where the command's output goes: on the terminal where that goes into files, "
        "in a pane of tmux, or by `whyidle live` in another terminal, which it names",
    )
    parser.add_argument("--no-live", action="store_true", help="do not print where it records")
    parser.add_argument("--rate", type=RATE, default=5.0, metavar="HZ", help="samples of host and GPU per second (5)")
    add_full(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON (on stderr)")
    parser.add_argument(
        "--prometheus", type=Path, metavar="FILE", help="keep a file of figures for node_exporter's textfile collector"
    )
    parser.add_argument(
        "--stacks",
        choices=STACKS,
        default=STACKS[0],
        help="which lines of code take the time is seen from outside the training; where the system forbids that, by a "
        "thread within it (auto, the default), or not at all (outside); off: never",
    )
    parser.add_argument("--no-source", action="store_true", help="keep no lines of source in the recording")
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
    figures = Figures(folder, arguments.prometheus)
    new = not os.path.lexists(folder)
    create_run(folder, {"command": command})
    lacks = f"no report; `whyidle report {folder}` makes one"
    ended: list[int] = []

    def report() -> None:
        with _in_a_line(lacks):
            _report(folder, arguments.json, arguments.full, figures)

    try:
        _record(folder, command, arguments, figures, ended)
        with _in_a_line(lacks):
            if ended[0] == 0 and (files := read_image_files(folder)):
                # How fast this machine decodes the training's images: the report holds it against what it took.
                from ..matrix.ceilings import decoding_of

                if (found := decoding_of(files, max(1, int(cpu_budget().budget)))) is not None:
                    update_run(folder, found.told())
            child.in_bounds(report)
    except WhyidleError:
        # Nothing was started, so there is no run. In a folder of the user's own there may be anything else.
        with suppress(OSError):
            (folder / RUN_JSON).unlink(missing_ok=True)
            if new:
                folder.rmdir()
        raise
    except KeyboardInterrupt:
        # It ends the report; the command has ended as it did.
        if not ended:
            raise
    return child.end_as(ended[0])


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
            why = str(error) if isinstance(error, WhyidleError) else f"{type(error).__name__}: {error}."
        with suppress(OSError):
            print(plain(f"whyidle: {what}: {why}"), file=sys.stderr)


def _record(
    folder: Path, command: list[str], arguments: argparse.Namespace, figures: Figures, ended: list[int]
) -> None:
    """Run the command to its end. `ended` gets what it returned, before a signal can raise anything."""
    stacks = StackOptions(0.0) if arguments.stacks == "off" else StackOptions()
    stacks = replace(stacks, source=not arguments.no_source, within=arguments.stacks == "auto")
    settings = environment(folder, os.environ, {"stacks": asdict(stacks)})
    view = child.Beside(folder) if arguments.live and not arguments.no_live else None
    around_stops = view.away if view else nullcontext
    with view or nullcontext(), CodeRevision(command) as revision, child.Signals(around_stops) as signals:
        if not (arguments.no_live or arguments.json):
            _say(f"whyidle: recording into {folder}; {view.how if view else TO_WATCH}")
        process = child.start(command, settings, signals)

        def note(code: int) -> None:
            status = "ok" if code == 0 else "stopped" if code in (-2, -15, 130, 143) else "failed"
            # What went wrong, the program itself has said.
            error = None if code == 0 else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            update_run(folder, {"ended": {"status": status, "error": error, "exit_code": code}, CODE: revision.found()})

        def over(code: int) -> None:
            end_looks()
            sampler.stop()
            with _in_a_line("no note of what was missed"):
                _say_what_was_missed(folder)
                if sampler.error:
                    Notices(folder / TRAINING_NOTICES)(sampler.error)
            with _in_a_line("how the command ended is not recorded"):
                note(code)

        # Whatever is raised from here on: the command goes on, and we end as it does.
        try:
            try:
                note_latest(folder)
                with (
                    start_sampler(folder, process.pid, arguments.rate, stacks) as sampler,
                    _beside(figures.tick) as end_looks,
                ):
                    # Until it is noted no signal can come in between.
                    ended.append(child.wait(process, signals, over))
            except BaseException:
                ended.append(child.wait(process, signals))
                note(ended[0])
        except BaseException:
            ended.append(child.wait(process, signals))


@contextmanager
def _beside(call: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Makes a call in a thread, about once a second: what it reads or waits for holds up no signals.

    Its errors are nothing to the command. Yields what ends it, which may be called twice.
    """
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            with suppress(Exception):
                call()
            over.wait(LOOK_SECONDS)

    def end() -> None:
        over.set()
        if thread.is_alive():
            thread.join()

    thread = threading.Thread(target=look, daemon=True)
    # Where there is no thread to be had, nothing is looked at.
    with suppress(RuntimeError):
        thread.start()
    try:
        yield end
    finally:
        end()


def _say(sentence: str) -> None:
    """A line in one write, so that no other can come in between; none where that would have to wait."""
    with suppress(OSError):
        to = sys.stderr.fileno()
        looked = select.poll()
        looked.register(to, select.POLLOUT)
        if looked.poll(0):
            os.write(to, f"{plain(sentence)}\n".encode())


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


def _report(folder: Path, as_json: bool, full: bool, figures: Figures) -> None:
    result = RunResult([open_run(folder)])
    figures.finish()
    if as_json:
        print(json_text(result.contract()), file=sys.stderr)
        return
    print(file=sys.stderr)
    show_document(result.document(), console(stderr=True), full)
    print(f"\n{shown_again(folder, full)}", file=sys.stderr)
