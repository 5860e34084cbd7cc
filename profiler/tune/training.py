"""The user's command as a training that takes orders: started when it is first needed, again where it ends, and told
its loader settings (`record.tuning` has what the two sides say to each other)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from ..capture.sampler.start import Sampler, start_sampler
from ..errors import WhyidleError
from ..interrupts import held, ignored_before, start_program
from ..record.files import plain
from ..record.notices import LOADED, TRAINING_NOTICES, Notices, read_notices, why_unseen
from ..record.run import create_run, processes, update_run
from ..record.tuning import ANSWERS, LONGEST_BLOCK, ORDERS, Block, Channel, ChannelClosed, LoaderSettings, Word

RUN = "WHYIDLE_RUN"
"""Variable that names the run folder, as `capture.bootstrap` has it."""
OUTPUT = "output.txt"
WRITES = "tuning.writes"
KILLED = {-signal.SIGKILL, -signal.SIGBUS, 128 + signal.SIGKILL, 128 + signal.SIGBUS}
"""Exit codes, a shell's among them, of what lacked memory; nobody else has reason to."""
STOP_SECONDS = 3.0
"""For a training to end that was told to."""
TICK_SECONDS = 0.25
LAST_LINES = 12
"""Lines of its output that are shown where it failed."""
BEFORE_SECONDS, BEFORE_SHARE = 60.0, 0.5
"""After its first step, by when a training is taken over or says why not; that, or so much of the budget."""
READY_SECONDS = 900.0
"""Without a training to be seen. Downloads and compilers may take long."""
ANSWER_SECONDS = 60.0
"""Beyond `LONGEST_BLOCK` times the seconds that were asked for: then the training hangs."""
SHARES = "torch_shm_manag"
"""Name in /proc of torch's process that removes the shared memory of others once they are gone, and then ends."""
GONE_SECONDS = 5.0
"""How long killed processes may take to be gone."""


class TrialFailed(WhyidleError):
    """These settings do not work here; others may. `ended`: the training came to its end meanwhile; a shorter block may
    fit into it."""

    def __init__(self, message: str, out_of_memory: bool = False, ended: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory
        self.ended = ended


class BenchEnded(WhyidleError):
    """The training is gone, and could not be started again: nothing more can be measured."""


class NothingToTune(WhyidleError):
    """The training says why it cannot be tuned."""


@dataclass(frozen=True)
class Launch:
    """How a training is started."""

    command: Sequence[str]
    environment: Callable[[Path, Mapping[str, Any]], Mapping[str, str]]
    """Makes the environment, of a run folder and the options for `tune`. `WHYIDLE_RUN` is in it."""
    after_steps: int = 60
    after_s: float = 2.0
    """What is recorded before the first order: so many steps, and so many seconds."""
    overwrite: bool = False
    budget_s: float | None = None
    """For all of it; `None`: the training is taken over no sooner on its account."""
    most_starts: int = 3
    """Times that it is started in all, should it end."""
    description: Mapping[str, Any] = field(default_factory=dict)
    """For the run.json of its recordings."""
    limit_s: float = inf
    """Seconds from when the bench is made after which nothing is waited for any longer."""


def script_hint(command: Sequence[str]) -> str:
    """Add to a message that there is no such program: a script was meant, perhaps."""
    return f" To tune a script, write: whyidle tune -- python {command[0]}" if command[0].endswith(".py") else ""


def writes(folder: Path) -> list[tuple[str, str]]:
    """Give (kind, path) of what a training wrote, by its run folder."""
    found: dict[tuple[str, str], None] = {}
    with suppress(OSError):
        for line in (folder / WRITES).read_text(errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                said = plain(json.loads(line))
                found[str(said["kind"]), str(said["path"])] = None
    return list(found)


class StartedTraining:
    """One start: its processes, the pipes to it, and what it left when it ended.

    It is made first and started then, so that a start which Ctrl-C cuts short is ended as well: see `end`.
    """

    def __init__(self, launch: Launch, folder: Path) -> None:
        create_run(folder, {"command": list(launch.command)} | dict(launch.description))
        self.folder = folder
        """With its recording."""
        self._launch = launch
        self._mark = ""
        """`NAME=value` in the environment by which its processes are known."""
        self.channel = Channel.of_tuner(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._sampler: Sampler | None = None
        self._temporary = Path(tempfile.mkdtemp(prefix="pymp-"))
        """For the sockets of multiprocessing: processes that are killed leave theirs."""
        self.busy = False
        """An order is not answered yet: it would not listen."""

    def start(self, options: Mapping[str, Any]) -> None:
        """Start the command, with these options for `tune`, and the sampler beside it.

        Raises:
            WhyidleError: it cannot be started.
        """
        environment = self._launch.environment(self.folder, {**options, "temporary": str(self._temporary)})
        self._mark, command = f"{RUN}={environment[RUN]}", list(self._launch.command)
        with (self.folder / OUTPUT).open("ab") as file:
            self._process = start_program(
                command,
                script_hint(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in our terminal is for us
                preexec_fn=ignored_before(),
            )
        self._sampler = start_sampler(self.folder, self._process.pid)

    @property
    def alive(self) -> bool:
        """Whether anything of it still runs; a launcher may end before what it started."""
        return self._process is None or self._process.poll() is None or bool(members(self._mark))

    def stop_sampler(self) -> None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
            if sampler.error:
                Notices(self.folder / TRAINING_NOTICES)(sampler.error)

    def end(self) -> None:
        """End it and all that it started."""
        self.stop_sampler()
        if (process := self._process) is not None:
            if not self.busy:
                with suppress(OSError, subprocess.TimeoutExpired):
                    self.channel.send(Word.STOP)
                    process.wait(STOP_SECONDS)
            end_all(self._mark, process.pid)
            code = self.exit_code(STOP_SECONDS)
            update_run(self.folder, {"ended": {"status": "stopped", "error": None, "exit_code": code}})
        shutil.rmtree(self._temporary, ignore_errors=True)
        self.channel.close()
        for name in (ORDERS, ANSWERS):
            (self.folder / name).unlink(missing_ok=True)

    def exit_code(self, seconds: float | None = None) -> int | None:
        """Wait for its end, for so long at most, and give its exit code; `None`: it still runs."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def died(self, when: str) -> str:
        """Tell that it ended by itself, how, and what it printed: for a message."""
        code = self.exit_code() or 0
        how = f"with exit code {code}"
        if code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
            hint = {
                "SIGKILL": " (so the kernel ends a process when memory runs out)",
                "SIGBUS": " (usual when /dev/shm is full)",
            }
            how = f"killed by {name}{hint.get(name, '')}"
        unseen = ""
        if not processes(self.folder) and (self.folder / LOADED).exists():
            # The hooks saw no training: an old torch, or none at all.
            unseen = "".join(f" {why}" for why in (*read_notices(self.folder), why_unseen(self.folder)) if why)
        return f"the command ended {when}, {how}.{unseen}{self.output()}"

    def refused(self, why: str) -> str:
        """Tell why it cannot be tuned, as it said itself: for a message."""
        kept = [path for kind, path in writes(self.folder) if kind == "refused"]
        if kept:
            return (
                f"the training was stopped, as it would overwrite {kept[0]}, which existed before. Let it write "
                "elsewhere, or allow it with --overwrite."
            )
        output = self.output() if self.exit_code(STOP_SECONDS) else ""
        return f"nothing can be tuned: {plain(why).rstrip('.')}.{output}"

    def output(self) -> str:
        """Give its last output: for a message."""
        path, lines = self.folder / OUTPUT, deque[str](maxlen=LAST_LINES)
        with suppress(OSError), path.open(errors="replace") as file:
            lines.extend(line.rstrip() for line in file if line.strip())
        if not lines:
            return f" It printed nothing ({path})."
        return "\n".join((f" Its last output ({path}):", *(f"  {plain(line)}" for line in lines)))


def members(mark: str) -> dict[int, str]:
    """Find processes with this `NAME=value` in their environment, and what each is called. Processes of others cannot
    be looked into."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes().split(b"\0") and int(entry.name) != os.getpid():
                found[int(entry.name)] = (entry / "comm").read_text().strip()
    return found


def end_all(mark: str, group: int) -> None:
    """Kill the process group and every process so marked: launchers put what they start into sessions of their own.
    Never raises."""
    until = time.monotonic() + GONE_SECONDS
    while True:
        left = members(mark)
        pids = [pid for pid, name in left.items() if name != SHARES or time.monotonic() > until]
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left or (pids and time.monotonic() > until):
            break
        time.sleep(0.02)


@dataclass(frozen=True)
class Ready:
    """What a training said of itself."""

    settings: LoaderSettings
    batches_per_epoch: int | None = None
    samples: int | None = None
    fixed: dict[str, str] = field(default_factory=dict)
    """Settings that other values cannot be tried of, each with why."""
    steps: int = 0
    """Steps done until then."""
    device: str | None = None
    """`cpu`, `cuda` or `emulated`."""


class ScriptBench:
    """A training under way; started when it is first needed, and again when it ends, `Launch.most_starts` times in all.

    Its runs go to `folder/training-1` and so on. Use as a context manager: at its end nothing of the training is left.
    """

    def __init__(
        self,
        launch: Launch,
        folder: Path,
        on_tick: Callable[[], None],
        say: Callable[[str], None],
        began: float | None = None,
    ) -> None:
        self._launch = launch
        self.folder = folder
        self._on_tick = on_tick
        self._say = say
        self.began = time.time() if began is None else began
        """As `time.time()`; files that are older are guarded."""
        self._limit = time.monotonic() + launch.limit_s
        self._training: StartedTraining | None = None
        self.open: set[LoaderSettings] = set()
        """Settings whose workers live, with all that they have made ready."""
        self._why = ""
        """Why it ended the last time."""
        self._ready: Ready | None = None
        self.run_folder: Path | None = None
        """Run folder of the latest start."""
        self.starts = 0
        self._paused = 0
        """Times that it was ended by us."""
        self.steps = 0
        """Steps that were recorded or measured, over all starts."""

    def __enter__(self) -> ScriptBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def ready(self) -> Ready:
        """What the training said of itself; it is started where it has not been.

        Raises:
            NothingToTune: it says that nothing can be tuned.
            WhyidleError: it cannot be started, or ends before it could be taken over.
        """
        if self._ready is None:
            self._start()
        assert self._ready is not None
        return self._ready

    @property
    def baseline(self) -> LoaderSettings:
        """The program's own settings."""
        return self.ready.settings

    def now(self) -> float:
        """Give the seconds on a clock that only goes forward."""
        return time.monotonic()

    def measure(self, settings: LoaderSettings, seconds: float, first: Sequence[int] | None = None) -> Block:
        """Train on with these settings and measure so long, or as long as the block needs to mean anything.

        Args:
            first: samples that its first batches are made of: what memory it takes is measured too; `None`: it is not.

        Raises:
            TrialFailed: these settings do not work.
            BenchEnded: nothing works any more.
        """
        tried = False
        while True:
            training = self._training
            if training is None:
                if self.starts > self._paused:
                    number, most = self.starts + 1, self._launch.most_starts + self._paused
                    self._say(f"The training has ended: starting it again ({number} of at most {most} starts).")
                try:
                    training = self._start()
                except WhyidleError as error:
                    raise BenchEnded(str(error)) from error
            training.busy = True
            training.channel.send(Word.MEASURE, settings=settings, seconds=seconds, first=first)
            answer = self._await_block(training, LONGEST_BLOCK * seconds + ANSWER_SECONDS)
            if answer is None:
                continue
            if answer["say"] == Word.BLOCK:
                block: Block = answer["block"]
                self.steps += block.batches
                if not settings.held:
                    self.open.add(settings)
                return block
            out_of_memory, ended = answer["say"] == Word.OOM, bool(answer.get("ended"))
            only = tried or self._launch.most_starts == 1
            if only or not self._may_do_alone(settings, out_of_memory, ended):
                why = str(answer.get("why", ""))
                raise TrialFailed(why if answer.get("died") else plain(why), out_of_memory, ended)
            tried = True

    def close(self, settings: LoaderSettings) -> None:
        """End the workers of settings that will not be asked for again."""
        self.open.discard(settings)
        if self._training is not None:
            with suppress(OSError):
                self._training.channel.send(Word.CLOSE, settings=settings)

    def writes(self) -> list[tuple[str, str]]:
        """Give (kind, path) of the files that the training wrote outside temporary folders, or was kept from
        overwriting."""
        return [] if self.run_folder is None else writes(self.run_folder)

    def pause(self) -> None:
        """End the training for now; that it is started again for the next order is not counted as its doing."""
        if self._training is not None:
            self.end()
            self._paused += 1

    def end(self) -> None:
        """End the training and all that it started. Safe to call twice; Ctrl-C waits until it is done."""
        with held():
            training, self._training = self._training, None
            if training is not None:
                training.end()

    def _start(self) -> StartedTraining:
        """Start the command and wait until its training can be told what to do."""
        if self.starts == self._launch.most_starts + self._paused:
            last = f"; the last end: {self._why}" if self._why else ""
            raise BenchEnded(f"the training was started {self._launch.most_starts} times and ended each time{last}")
        self.starts += 1
        self.open.clear()
        launch, first = self._launch, self._ready is None
        folder = self.folder / f"training-{len(list(self.folder.glob('training-*'))) + 1}"
        training = self._training = StartedTraining(launch, folder)
        self.run_folder = folder
        training.start(
            {
                "after_steps": launch.after_steps if first else 8,
                "after_s": launch.after_s if first else 0.5,
                "before_s": min(BEFORE_SECONDS, BEFORE_SHARE * (launch.budget_s or 2 * BEFORE_SECONDS)),
                "tuner": os.getpid(),
                # Of the first start: what that wrote, a later one may write again.
                "began": self.began,
                "overwrite": launch.overwrite,
            }
        )
        answer = self._answer(training, READY_SECONDS, (Word.READY, Word.REFUSED))
        if answer is None and not training.alive:
            raise WhyidleError(training.died("before whyidle could take over its training"))
        if answer is None:
            raise WhyidleError(
                f"whyidle saw no training with a torch DataLoader within {READY_SECONDS:.0f} s.{training.output()}"
            )
        if answer["say"] == Word.REFUSED:
            raise NothingToTune(training.refused(str(answer.get("why", ""))))
        del answer["say"]
        self._ready = Ready(**answer)
        self.steps += self._ready.steps
        training.stop_sampler()
        return training

    def _may_do_alone(self, settings: LoaderSettings, out_of_memory: bool, ended: bool) -> bool:
        """Tell whether what went wrong may be others' doing; they are out of the way then.

        A training ends of itself too: its data or its schedule are used up, with whatever settings. And queues of
        loaders that are paused take memory that these settings would have in real use.
        """
        others = self.open - {settings, self.baseline}
        if ended:
            self.end()
        else:
            for each in others:
                self.close(each)
        return bool(others) if out_of_memory else ended

    def _await_block(self, training: StartedTraining, seconds: float) -> dict[str, Any] | None:
        """Wait for the answer; `None`: the program came to its own end, which is not these settings' doing."""
        answer = self._answer(training, seconds, (Word.BLOCK, Word.FAILED, Word.OOM))
        if answer is not None:
            training.busy = False
            return answer
        if training.alive:
            hangs = "with these settings it or a worker hangs"
            self._why = f"the training did not answer for {seconds:.0f} s and was ended: {hangs}"
            self.end()
            raise TrialFailed(self._why)
        code, why = training.exit_code(), training.died("during a measurement")
        self.end()
        if code == 0:
            return None
        self._why = why
        return {"say": Word.OOM if code in KILLED else Word.FAILED, "why": why, "ended": True, "died": True}

    def _answer(self, training: StartedTraining, seconds: float, words: Sequence[str]) -> dict[str, Any] | None:
        """Give the next answer that is one of these words; `None`: none came in time, or the training has ended.

        Raises:
            BenchEnded: what comes is no answer.
        """
        until = min(time.monotonic() + seconds, self._limit)
        while True:
            self._on_tick()
            try:
                answer = training.channel.receive(TICK_SECONDS)
            except ChannelClosed as error:
                raise BenchEnded(f"the training sent an unreadable answer: {error}") from error
            if answer is not None and answer["say"] in words:
                return answer
            if time.monotonic() > until or (answer is None and not training.alive):
                return None
