"""The user's command, started so that it takes orders about its loader: see `record.tuning`."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...capture.sampler.start import Sampler, start_sampler
from ...errors import WhyidleError
from ...interrupts import held
from ...record.files import plain
from ...record.notices import TRAINING_NOTICES, Notices, read_notices
from ...record.processes import processes
from ...record.run import create_run, update_run
from ...record.signs import LOADED, why_unseen
from ...record.tuning import ANSWERS, LONGEST_BLOCK, ORDERS, Block, Channel, ChannelClosed, LoaderSettings, Word
from .bench import BenchEnded, TrialFailed
from .orphan_cleanup import end_all, members, temporary_folders
from .watchdog import watched

OUTPUT = "output.txt"
WRITES = "tuning.writes"
MOST_STARTS = 3
BEFORE_SECONDS = 60.0
"""After its first step, by when a training is taken over or says why not; or `BEFORE_SHARE` of the budget."""
BEFORE_SHARE = 0.5
READY_SECONDS = 900.0
"""Without a training to be seen. Downloads and compilers may take long."""
ANSWER_SECONDS = 120.0
"""Beyond `LONGEST_BLOCK` times the seconds that were asked for: then the training hangs."""
LEAST_ANSWER_SECONDS = 30.0
"""The same, where no more is left of the budget."""
STOP_SECONDS = 3.0
"""For a training to end that was told to."""
TICK_SECONDS = 0.25
KILLED = {-signal.SIGKILL, -signal.SIGBUS, 128 + signal.SIGKILL, 128 + signal.SIGBUS}
"""Exit codes, a shell's among them, of what lacked memory; nobody else has reason to."""
LAST_LINES = 12
"""Of its output, where it failed."""


class NothingToTune(WhyidleError):
    """The training says why it cannot be tuned."""


@dataclass(frozen=True)
class Launch:
    """How a training is started."""

    command: Sequence[str]
    environment: Callable[[Path, Mapping[str, Any]], Mapping[str, str]]
    """Of a run folder and the options for `tune`."""
    mark: Callable[[Path], str]
    """The `NAME=value` in it by which its processes are known, of a run folder."""
    after_steps: int = 60
    after_s: float = 2.0
    """What is recorded before the first order: so many steps, and so many seconds."""
    overwrite: bool = False
    budget_s: float | None = None
    """For all of it, from when the bench is made; `None`: no answer is waited for any shorter on its account."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """For the run.json of its recordings."""


@dataclass(frozen=True)
class Ready:
    """What a training said of itself."""

    settings: LoaderSettings
    batches_per_epoch: int | None = None
    samples: int | None = None
    fixed: dict[str, str] = field(default_factory=dict)
    """What other values cannot be tried of, each with why."""
    steps: int = 0
    """Done until then."""
    said: dict[str, Any] = field(default_factory=dict)
    """All of it."""

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Ready:
        return cls(
            LoaderSettings.from_json(said["settings"]),
            said.get("batches_per_epoch"),
            said.get("samples"),
            dict(said.get("fixed") or {}),
            int(said.get("steps") or 0),
            dict(said),
        )


class ScriptBench:
    """A training under way; started when it is first needed, and again when it ends, `MOST_STARTS` times in all.

    Its runs go to `folder/training-1` and so on. Use as a context manager: at its end nothing of the training is left.
    """

    def __init__(self, launch: Launch, folder: Path, on_tick: Callable[[], None], say: Callable[[str], None]) -> None:
        self._launch = launch
        self.folder = folder
        self._on_tick = on_tick
        self._say = say
        self.began = time.time()
        """Files that are older are guarded."""
        self._until = None if launch.budget_s is None else time.monotonic() + launch.budget_s
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._sampler: Sampler | None = None
        self._watch = ExitStack()
        """Over its processes, should this one be killed."""
        self._tell: Callable[[Iterable[Path]], None] = lambda _: None
        """Tells the watch of folders that are to be removed then."""
        self._busy = False
        """An order is not answered yet: the training would not listen."""
        self._open: set[LoaderSettings] = set()
        """Whose workers live, with all that they have made ready."""
        self._why = ""
        """It ended the last time."""
        self._temporary: set[Path] = set()
        """Folders of its processes that these remove only when they end well."""
        self._ready: Ready | None = None
        self.run_folder: Path | None = None
        """Of the latest start."""
        self.starts = 0
        self._paused = 0
        """Times that it was ended by us."""
        self.steps = 0
        """Recorded or measured, over all starts."""

    def __enter__(self) -> ScriptBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def ready(self) -> Ready:
        """Starts the training where it has not been.

        Raises:
            NothingToTune: it says that nothing can be tuned.
            WhyidleError: it cannot be started, or ends before it could be taken over.
        """
        if self._ready is None:
            self._start()
        assert self._ready is not None
        return self._ready

    def adopt(self, ready: Ready) -> None:
        """What an earlier training said: this one is only started once something is to be measured."""
        self._ready = ready

    @property
    def baseline(self) -> LoaderSettings:
        return self.ready.settings

    @property
    def batches_per_epoch(self) -> int | None:
        return self.ready.batches_per_epoch

    def now(self) -> float:
        return time.monotonic()

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        return self._order(Word.MEASURE, settings, seconds)

    def held(self, seconds: float) -> Block:
        return self._order(Word.HELD, self.baseline, seconds)

    def close(self, settings: LoaderSettings) -> None:
        if self._process is not None and self._channel is not None:
            self._look_for_folders()
            self._open.discard(settings)
            with suppress(OSError):
                self._channel.send(Word.CLOSE, settings=settings.to_json())

    def writes(self) -> list[tuple[str, str]]:
        """(kind, path) of the files that the training wrote outside temporary folders, or was kept from overwriting."""
        return [] if self.run_folder is None else writes(self.run_folder)

    def pause(self) -> None:
        """End the training for now; that it is started again for the next order is not counted as its doing."""
        if self._process is not None:
            self.end()
            self._paused += 1

    def end(self) -> None:
        """End the training and all that it started. Safe to call twice; Ctrl-C waits until it is done."""
        with held(), self._watch:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        channel, self._channel = self._channel, None
        self._stop_sampler()
        if process is None or self.run_folder is None:
            return
        mark = self._launch.mark(self.run_folder)
        self._look_for_folders()
        folders, self._temporary = self._temporary, set()
        if channel is not None and not self._busy:
            with suppress(OSError, subprocess.TimeoutExpired):
                channel.send(Word.STOP)
                process.wait(STOP_SECONDS)
        end_all(mark, process.pid, folders)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        if channel is not None:
            channel.close()
        for name in (ORDERS, ANSWERS):
            (self.run_folder / name).unlink(missing_ok=True)
        update_run(self.run_folder, {"ended": {"status": "stopped", "error": None, "exit_code": process.returncode}})

    def _start(self) -> None:
        """Start the command and wait until its training can be told what to do."""
        if self.starts == MOST_STARTS + self._paused:
            last = f"; the last time: {self._why}" if self._why else ""
            raise BenchEnded(f"the training was started {MOST_STARTS} times and ended each time{last}")
        self.starts += 1
        self._busy = False
        self._open.clear()
        launch = self._launch
        command = list(launch.command)
        folder = self.folder / f"training-{len(list(self.folder.glob('training-*'))) + 1}"
        create_run(folder, {"command": command} | dict(launch.description))
        first = self._ready is None
        options = {
            "after_steps": launch.after_steps if first else 8,
            "after_s": launch.after_s if first else 0.5,
            "before_s": min(BEFORE_SECONDS, BEFORE_SHARE * (launch.budget_s or 2 * BEFORE_SECONDS)),
            "tuner": os.getpid(),
            # Of the first start: what that wrote, a later one may write again.
            "began": self.began,
            "overwrite": launch.overwrite,
        }
        self._channel = Channel.of_tuner(folder)
        self.run_folder = folder
        self._tell = self._watch.enter_context(watched(launch.mark(folder)))
        self._process = popen(command, launch.environment(folder, options), folder / OUTPUT)
        self._sampler = start_sampler(folder, self._process.pid)
        self._await_ready()
        self._stop_sampler()

    def _await_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            answer = self._receive()
            if answer is not None and answer["say"] == Word.READY:
                self._ready = Ready.from_json(answer)
                self.steps += self._ready.steps
                return
            if answer is not None and answer["say"] == Word.REFUSED:
                raise NothingToTune(self._refused(str(answer.get("why", ""))))
            if answer is None and not self._alive():
                raise WhyidleError(self._died("before its training could be taken over"))
            if time.monotonic() > until:
                raise WhyidleError(
                    f"no training with a torch DataLoader was seen in {READY_SECONDS:.0f} s.{self._output()}"
                )

    def _order(self, say: str, settings: LoaderSettings, seconds: float) -> Block:
        tried = False
        while True:
            if self._process is None or self._channel is None:
                self._begin_again()
            assert self._channel is not None
            self._busy = True
            self._channel.send(say, settings=settings.to_json(), seconds=seconds)
            answer = self._await_answer(self._patience(seconds))
            self._busy = False
            if answer is None:
                continue
            if answer["say"] == Word.BLOCK:
                block = Block.from_json(answer["block"])
                self.steps += block.batches
                self._look_for_folders()
                if say == Word.MEASURE:
                    self._open.add(settings)
                return block
            out_of_memory = answer["say"] == Word.OOM
            why = str(answer["why"]) if answer.get("died") else plain(str(answer.get("why", "")))
            if tried or not self._may_do_alone(settings, out_of_memory, bool(answer.get("ended"))):
                raise TrialFailed(why, out_of_memory)
            tried = True

    def _may_do_alone(self, settings: LoaderSettings, out_of_memory: bool, ended: bool) -> bool:
        """Whether what went wrong may be others' doing; they are out of the way then.

        A training ends of itself too: its data or its schedule are used up, with whatever settings. And queues of
        loaders that are paused take memory that these settings would have in real use.
        """
        others = self._open - {settings, self.baseline}
        if ended:
            self.end()
        else:
            for each in others:
                self.close(each)
        return bool(others) if out_of_memory else ended

    def _patience(self, seconds: float) -> float:
        """How long the answer to an order is waited for."""
        longest = LONGEST_BLOCK * seconds
        left = ANSWER_SECONDS if self._until is None else self._until - time.monotonic() - longest
        return longest + min(ANSWER_SECONDS, max(LEAST_ANSWER_SECONDS, left))

    def _await_answer(self, seconds: float) -> dict[str, Any] | None:
        """`None`: the program came to its own end, which is not these settings' doing."""
        until = time.monotonic() + seconds
        while True:
            answer = self._receive()
            if answer is not None and answer["say"] in (Word.BLOCK, Word.FAILED, Word.OOM):
                return answer
            if answer is None and not self._alive():
                assert self._process is not None
                code = self._process.wait()
                why = self._died("in the midst of it")
                self.end()
                if code == 0:
                    return None
                self._why = why
                word = Word.OOM if code in KILLED else Word.FAILED
                return {"say": word, "why": why, "ended": True, "died": True}
            if time.monotonic() > until:
                self._why = (
                    f"the training did not answer for {seconds:.0f} s and was ended: a worker or the training itself "
                    "hangs with these settings"
                )
                self.end()
                raise TrialFailed(self._why)

    def _begin_again(self) -> None:
        if self.starts > self._paused:
            most = MOST_STARTS + self._paused
            self._say(f"The training has ended: starting it again ({self.starts + 1} of at most {most} starts).")
        try:
            self._start()
        except BenchEnded:
            raise
        except WhyidleError as error:
            raise BenchEnded(str(error)) from error

    def _receive(self) -> dict[str, Any] | None:
        """The next answer, if one comes soon."""
        assert self._channel is not None
        self._on_tick()
        try:
            return self._channel.receive(TICK_SECONDS)
        except ChannelClosed as error:
            raise BenchEnded(f"the training cannot be understood: {error}") from error

    def _alive(self) -> bool:
        """Whether anything of it still runs; a launcher may end before what it started."""
        assert self._process is not None
        assert self.run_folder is not None
        return self._process.poll() is None or bool(members(self._launch.mark(self.run_folder)))

    def _look_for_folders(self) -> None:
        """Of workers that may be killed next."""
        assert self.run_folder is not None
        found = temporary_folders(members(self._launch.mark(self.run_folder)))
        self._tell(found - self._temporary)
        self._temporary |= found

    def _stop_sampler(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is None or self.run_folder is None:
            return
        sampler.stop()
        if sampler.error:
            Notices(self.run_folder / TRAINING_NOTICES)(sampler.error)

    def _refused(self, why: str) -> str:
        kept = [path for kind, path in self.writes() if kind == "refused"]
        if kept:
            return (
                f"the training would overwrite {kept[0]}, which was there before, and was stopped. Let it write "
                "elsewhere, or allow it with --overwrite."
            )
        return f"nothing can be tuned: {plain(why).rstrip('.')}.{self._output() if self._failed() else ''}"

    def _failed(self) -> bool:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_SECONDS) != 0
        return False

    def _died(self, when: str) -> str:
        assert self._process is not None
        code = self._process.wait()
        return f"the command ended {when}, {_how(code)}.{self._unseen()}{self._output()}"

    def _unseen(self) -> str:
        """Why no training of it was seen, where the hooks looked for one: an old torch, or none at all."""
        folder = self.run_folder
        if folder is None or processes(folder) or not (folder / LOADED).exists():
            return ""
        return "".join(f" {why}" for why in (*read_notices(folder), why_unseen(folder)) if why)

    def _output(self) -> str:
        """The last it printed, for a message."""
        assert self.run_folder is not None
        path = self.run_folder / OUTPUT
        lines: deque[str] = deque(maxlen=LAST_LINES)
        with suppress(OSError), path.open(errors="replace") as file:
            lines.extend(line.rstrip() for line in file if line.strip())
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


def popen(command: list[str], environment: Mapping[str, str], output: Path) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in our terminal is for us.

    Raises:
        WhyidleError: there is no such program, or it cannot be run.
    """
    hint = f" To tune a script write: whyidle tune -- python {command[0]}" if command[0].endswith(".py") else ""
    try:
        with output.open("ab") as file:
            return subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except FileNotFoundError as error:
        raise WhyidleError(f"there is no program {command[0]!r}.{hint}") from error
    except OSError as error:
        if error.errno == errno.ENOEXEC and command[0] != "/bin/sh":
            # A script without a first line that names its shell.
            return popen(["/bin/sh", *command], environment, output)
        raise WhyidleError(f"{command[0]} cannot be run: {error.strerror}.{hint}") from error


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    known = -code in set(signal.Signals)
    name = signal.Signals(-code).name if known else str(-code)
    hint = {
        "SIGKILL": " (the kernel kills a process so when memory runs out)",
        "SIGBUS": " (usual where /dev/shm is full)",
    }
    return f"killed by {name}{hint.get(name, '')}"
