"""A training started in a child process, with its sampler, recorded into a run folder.

Children are forked from a server process that has imported torch once, so that a trial starts in tens of
milliseconds. A child that is killed, runs out of memory or crashes takes nothing else with it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from ..capture.sampler.start import NO_STACKS, StackOptions, start_sampler
from ..record.latest import note_latest
from ..record.run import create_run, open_run, update_run

STOP_SECONDS = 20.0
"""How long a child may take to close its loader and files after it was asked to stop."""
TICK_SECONDS = 0.25
"""Between two calls of what shows the progress of a trial."""
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended: `ok`, `oom`, `failed` or `stopped`, and why."""

    status: str
    error: str | None


SAFE_PATH = "PYTHONSAFEPATH"


class TrialServer:
    """Starts trials, one at a time; the server process ends with this one. `target`: what a child calls with what it is
    given, as `module:function`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([target.partition(":")[0]])
        # Ctrl-C in a terminal reaches the server too, and would interrupt it in its imports. The children it
        # forks inherit the mask and lift it.
        mask, safe_path = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), os.environ.get(SAFE_PATH)
        # A folder named `whyidle` where the command was given is not the package.
        os.environ[SAFE_PATH] = "1"
        try:
            forkserver.ensure_running()
            # It forks nothing before its imports are over: now they are, and no trial's time holds them.
            imported = self._context.Process(target=_nothing, name="whyidle-imported")
            imported.start()
            imported.join()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            del os.environ[SAFE_PATH]
            os.environ.update({} if safe_path is None else {SAFE_PATH: safe_path})

    def run(
        self,
        folder: Path,
        spec: Any,
        description: dict[str, Any],
        on_tick: Callable[[], None],
        stacks: StackOptions = NO_STACKS,
    ) -> TrialOutcome:
        """Record one training into a new run folder; `on_tick` is called while it runs, `stacks` are looked at.

        On Ctrl-C the child is left to end its recording, then KeyboardInterrupt goes on.

        Raises:
            RecordError: the run folder cannot be made.
        """
        create_run(folder, description)
        note_latest(folder)
        here, there = self._context.Pipe()
        process = self._context.Process(target=_child, args=(self._target, spec, there), name="whyidle-trial")
        process.start()
        there.close()
        assert process.pid is not None
        with start_sampler(folder, process.pid, stacks=stacks) as sampler:
            try:
                here.send("go")
                while process.is_alive():
                    process.join(TICK_SECONDS)
                    on_tick()
            except KeyboardInterrupt:
                _stop(process)
                raise
            except BrokenPipeError:
                process.join(STOP_SECONDS)
            finally:
                here.close()
                # What it may have left behind: loader workers of one that was killed.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        if sampler.error:
            notices = open_run(folder).info.get("notices", [])
            update_run(folder, {"notices": [*notices, sampler.error]})
        return _outcome(folder, process.exitcode)


def _nothing() -> None:
    """Do what a process does that is waited for only to know that there are processes now."""


def _child(target: str, spec: Any, start: Connection) -> None:
    """Wait, in the child, for the word to begin, then run; end when the command that started us is gone."""
    # A group of its own: whatever the training leaves behind when it is killed can be ended with it.
    os.setpgid(0, 0)
    # Its loaders start workers the way this Python does by default, as in a training started by hand.
    multiprocessing.set_start_method(None, force=True)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if not _word(start):
            return
        threading.Thread(target=_end_with_starter, args=(start,), name="whyidle-starter", daemon=True).start()
        module, _, function = target.partition(":")
        getattr(importlib.import_module(module), function)(spec)
    except KeyboardInterrupt:
        # Whoever pressed it knows: no traceback of whatever was being imported.
        os._exit(INTERRUPTED)


def _word(start: Connection) -> bool:
    """Wait for a message; false when the other end is gone."""
    try:
        start.recv()
    except (EOFError, OSError):
        return False
    return True


def _end_with_starter(start: Connection) -> None:
    """Wait in a read until the starter dies (it says nothing more); then end as if Ctrl-C had been pressed."""
    if not _word(start):
        os.kill(os.getpid(), signal.SIGINT)


def _stop(process: multiprocessing.process.BaseProcess) -> None:
    """Ask a child to end, then insist."""
    if process.is_alive() and process.pid is not None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        with suppress(KeyboardInterrupt):
            process.join(STOP_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def _outcome(folder: Path, code: int | None) -> TrialOutcome:
    """Tell what the training said, or what it died of that gave no reason itself."""
    ended = open_run(folder).info.get("ended")
    if isinstance(ended, dict):
        return TrialOutcome(str(ended.get("status")), ended.get("error"))
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = " (so the kernel ends a process when memory runs out)" if name == "SIGKILL" else ""
        error = f"the training was killed by {name}{hint}; its output is in output.txt in the run folder"
    else:
        said = "gave no reason; its output is above, or in output.txt in the run folder"
        error = f"the training ended with exit code {code} and {said}"
    update_run(folder, {"ended": {"status": "failed", "error": error, "exit_code": code}})
    return TrialOutcome("failed", error)
