"""One start of a training that takes orders: its processes, the pipes to it, and what it left when it ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ...capture.sampler.start import Sampler, start_sampler
from ...record.files import plain
from ...record.notices import TRAINING_NOTICES, Notices, read_notices
from ...record.processes import processes
from ...record.run import create_run, update_run
from ...record.signs import LOADED, why_unseen
from ...record.tuning import ANSWERS, ORDERS, Channel, ChannelClosed, LoaderSettings, Word
from .bench import BenchEnded
from .launch import OUTPUT, Launch, how_it_ended, last_lines, popen
from .orphan_cleanup import end_all, members, temporary_folders
from .watchdog import watched

WRITES = "tuning.writes"
STOP_SECONDS = 3.0
"""For a training to end that was told to."""
TICK_SECONDS = 0.25
LAST_LINES = 12
"""Of its output, where it failed."""


class StartedTraining:
    """It is made first and started then, so that a start which Ctrl-C cuts short is ended as well: see `end`."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        create_run(folder, {"command": list(launch.command)} | dict(launch.description))
        self.folder = folder
        """With its recording."""
        self._launch = launch
        self._mark = launch.mark(folder)
        self._channel = Channel.of_tuner(folder)
        self._started: subprocess.Popen[bytes] | None = None
        self._sampler: Sampler | None = None
        self._watch = ExitStack()
        """Over its processes, should this one be killed."""
        self._tell: Callable[[Iterable[Path]], None] = lambda _: None
        """Tells the watch of folders that are to be removed then."""
        self._temporary: set[Path] = set()
        """Folders of its processes that these remove only when they end well."""
        self.busy = False
        """An order is not answered yet: it would not listen."""

    def start(self, options: Mapping[str, Any]) -> None:
        """Start the command, with these options for `tune`, and the sampler beside it.

        Raises:
            WhyidleError: it cannot be started.
        """
        self._tell = self._watch.enter_context(watched(self._mark))
        environment = self._launch.environment(self.folder, options)
        self._started = popen(list(self._launch.command), environment, self.folder / OUTPUT)
        self._sampler = start_sampler(self.folder, self._started.pid)

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self._started is not None
        return self._started

    def order(self, say: str, settings: LoaderSettings, seconds: float) -> None:
        self.busy = True
        self._channel.send(say, settings=settings.to_json(), seconds=seconds)

    def close(self, settings: LoaderSettings) -> None:
        """Tell it that these settings will not be asked for again."""
        self.look_for_folders()
        with suppress(OSError):
            self._channel.send(Word.CLOSE, settings=settings.to_json())

    def receive(self) -> dict[str, Any] | None:
        """The next answer, if one comes soon.

        Raises:
            BenchEnded: what comes is no answer.
        """
        try:
            return self._channel.receive(TICK_SECONDS)
        except ChannelClosed as error:
            raise BenchEnded(f"the training cannot be understood: {error}") from error

    def alive(self) -> bool:
        """Whether anything of it still runs; a launcher may end before what it started."""
        return self._process.poll() is None or bool(members(self._mark))

    def look_for_folders(self) -> None:
        """Of workers that may be killed next."""
        found = temporary_folders(members(self._mark))
        self._tell(found - self._temporary)
        self._temporary |= found

    def stop_sampler(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is None:
            return
        sampler.stop()
        if sampler.error:
            Notices(self.folder / TRAINING_NOTICES)(sampler.error)

    def end(self) -> None:
        """End it and all that it started."""
        with self._watch:
            self.stop_sampler()
            if self._started is not None:
                self._end(self._started)
            self._channel.close()
            for name in (ORDERS, ANSWERS):
                (self.folder / name).unlink(missing_ok=True)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self.look_for_folders()
        if not self.busy:
            with suppress(OSError, subprocess.TimeoutExpired):
                self._channel.send(Word.STOP)
                process.wait(STOP_SECONDS)
        end_all(self._mark, process.pid, self._temporary)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        update_run(self.folder, {"ended": {"status": "stopped", "error": None, "exit_code": process.returncode}})

    def exit_code(self) -> int:
        """Once it has ended."""
        return self._process.wait()

    def died(self, when: str) -> str:
        """That it ended by itself, how, and what it printed: for a message."""
        return f"the command ended {when}, {how_it_ended(self.exit_code())}.{self._unseen()}{self.output()}"

    def _unseen(self) -> str:
        """Why no training of it was seen, where the hooks looked for one: an old torch, or none at all."""
        if processes(self.folder) or not (self.folder / LOADED).exists():
            return ""
        return "".join(f" {why}" for why in (*read_notices(self.folder), why_unseen(self.folder)) if why)

    def refused(self, why: str) -> str:
        """That it says itself why it cannot be tuned: for a message."""
        kept = [path for kind, path in writes(self.folder) if kind == "refused"]
        if kept:
            return (
                f"the training would overwrite {kept[0]}, which was there before, and was stopped. Let it write "
                "elsewhere, or allow it with --overwrite."
            )
        return f"nothing can be tuned: {plain(why).rstrip('.')}.{self.output() if self._failed() else ''}"

    def _failed(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_SECONDS) != 0
        return False

    def output(self) -> str:
        """The last it printed: for a message."""
        path = self.folder / OUTPUT
        lines = last_lines(path, LAST_LINES)
        if not lines:
            return f" It printed nothing ({path})."
        return "\n".join((f" The last it printed ({path}):", *(f"  {plain(line)}" for line in lines)))


def writes(folder: Path) -> list[tuple[str, str]]:
    """(kind, path) of what a training wrote, by its run folder."""
    found: dict[tuple[str, str], None] = {}
    with suppress(OSError):
        for line in (folder / WRITES).read_text(errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                said = plain(json.loads(line))
                found[str(said["kind"]), str(said["path"])] = None
    return list(found)
