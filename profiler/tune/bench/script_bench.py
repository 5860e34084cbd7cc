"""The user's command as a bench: started when it is first needed, and told its loader settings, see `record.tuning`.

One start of a training that takes orders: its processes, the pipes to it, and what it left when it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...capture.sampler.start import Sampler, start_sampler
from ...errors import WhyidleError
from ...interrupts import held
from ...record.files import plain
from ...record.notices import LOADED, TRAINING_NOTICES, Notices, read_notices, why_unseen
from ...record.run import create_run, processes, update_run
from ...record.tuning import ANSWERS, LONGEST_BLOCK, ORDERS, Block, Channel, ChannelClosed, LoaderSettings, Word
from .bench import BenchEnded, TrialFailed
from .launch import KILLED, OUTPUT, Launch, how_it_ended, last_lines, popen
from .watchdog import end_all, members, temporary_folders, watched

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
            raise BenchEnded(f"the training sent an unreadable answer: {error}") from error

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
        """Tell that it ended by itself, how, and what it printed: for a message."""
        return f"the command ended {when}, {how_it_ended(self.exit_code())}.{self._unseen()}{self.output()}"

    def _unseen(self) -> str:
        """Tell why the hooks saw no training: an old torch, or none at all."""
        if processes(self.folder) or not (self.folder / LOADED).exists():
            return ""
        return "".join(f" {why}" for why in (*read_notices(self.folder), why_unseen(self.folder)) if why)

    def refused(self, why: str) -> str:
        """Tell why it cannot be tuned, as it said itself: for a message."""
        kept = [path for kind, path in writes(self.folder) if kind == "refused"]
        if kept:
            return (
                f"the training was stopped, as it would overwrite {kept[0]}, which existed before. Let it write "
                "elsewhere, or allow it with --overwrite."
            )
        return f"nothing can be tuned: {plain(why).rstrip('.')}.{self.output() if self._failed() else ''}"

    def _failed(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(STOP_SECONDS) != 0
        return False

    def output(self) -> str:
        """Give its last output: for a message."""
        path = self.folder / OUTPUT
        lines = last_lines(path, LAST_LINES)
        if not lines:
            return f" It printed nothing ({path})."
        return "\n".join((f" Its last output ({path}):", *(f"  {plain(line)}" for line in lines)))


def writes(folder: Path) -> list[tuple[str, str]]:
    """(kind, path) of what a training wrote, by its run folder."""
    found: dict[tuple[str, str], None] = {}
    with suppress(OSError):
        for line in (folder / WRITES).read_text(errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError):
                said = plain(json.loads(line))
                found[str(said["kind"]), str(said["path"])] = None
    return list(found)


BEFORE_SECONDS = 60.0
"""After its first step, by when a training is taken over or says why not; or `BEFORE_SHARE` of the budget."""
BEFORE_SHARE = 0.5
READY_SECONDS = 900.0
"""Without a training to be seen. Downloads and compilers may take long."""
ANSWER_SECONDS = 120.0
"""Beyond `LONGEST_BLOCK` times the seconds that were asked for: then the training hangs."""
LEAST_ANSWER_SECONDS = 30.0
"""The same, where no more is left of the budget."""


class NothingToTune(WhyidleError):
    """The training says why it cannot be tuned."""


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
    """A training under way; started when it is first needed, and again when it ends, `Launch.most_starts` times in all.

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
        self._training: StartedTraining | None = None
        self._open: set[LoaderSettings] = set()
        """Whose workers live, with all that they have made ready."""
        self._why = ""
        """It ended the last time."""
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

    def held(self, seconds: float, batch_size: int | None = None) -> Block:
        size = self.baseline.batch_size if batch_size is None else batch_size
        return self._order(Word.HELD, replace(self.baseline, batch_size=size), seconds)

    def close(self, settings: LoaderSettings) -> None:
        if self._training is not None:
            self._open.discard(settings)
            self._training.close(settings)

    def writes(self) -> list[tuple[str, str]]:
        """(kind, path) of the files that the training wrote outside temporary folders, or was kept from overwriting."""
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
        self._open.clear()
        launch = self._launch
        first = self._ready is None
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
        self._await_ready(training)
        training.stop_sampler()
        return training

    def _await_ready(self, training: StartedTraining) -> None:
        until = time.monotonic() + READY_SECONDS
        while True:
            answer = self._receive(training)
            if answer is not None and answer["say"] == Word.READY:
                self._ready = Ready.from_json(answer)
                self.steps += self._ready.steps
                return
            if answer is not None and answer["say"] == Word.REFUSED:
                raise NothingToTune(training.refused(str(answer.get("why", ""))))
            if answer is None and not training.alive():
                raise WhyidleError(training.died("before whyidle could take over its training"))
            if time.monotonic() > until:
                raise WhyidleError(
                    f"whyidle saw no training with a torch DataLoader within {READY_SECONDS:.0f} s.{training.output()}"
                )

    def _order(self, say: str, settings: LoaderSettings, seconds: float) -> Block:
        tried = False
        while True:
            training = self._training or self._begin_again()
            training.order(say, settings, seconds)
            answer = self._await_answer(training, self._patience(seconds))
            if answer is None:
                continue
            if answer["say"] == Word.BLOCK:
                block = Block.from_json(answer["block"])
                self.steps += block.batches
                training.look_for_folders()
                if say == Word.MEASURE:
                    self._open.add(settings)
                return block
            out_of_memory = answer["say"] == Word.OOM
            why = str(answer["why"]) if answer.get("died") else plain(str(answer.get("why", "")))
            if tried or not self._may_do_alone(settings, out_of_memory, bool(answer.get("ended"))):
                raise TrialFailed(why, out_of_memory, bool(answer.get("ended")))
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

    def _await_answer(self, training: StartedTraining, seconds: float) -> dict[str, Any] | None:
        """`None`: the program came to its own end, which is not these settings' doing."""
        until = time.monotonic() + seconds
        while True:
            answer = self._receive(training)
            if answer is not None and answer["say"] in (Word.BLOCK, Word.FAILED, Word.OOM):
                training.busy = False
                return answer
            if answer is None and not training.alive():
                code = training.exit_code()
                why = training.died("during a measurement")
                self.end()
                if code == 0:
                    return None
                self._why = why
                word = Word.OOM if code in KILLED else Word.FAILED
                return {"say": word, "why": why, "ended": True, "died": True}
            if time.monotonic() > until:
                self._why = (
                    f"the training did not answer for {seconds:.0f} s and was ended: with these settings it or a "
                    "worker hangs"
                )
                self.end()
                raise TrialFailed(self._why)

    def _begin_again(self) -> StartedTraining:
        if self.starts > self._paused:
            most = self._launch.most_starts + self._paused
            self._say(f"The training has ended: starting it again ({self.starts + 1} of at most {most} starts).")
        try:
            return self._start()
        except BenchEnded:
            raise
        except WhyidleError as error:
            raise BenchEnded(str(error)) from error

    def _receive(self, training: StartedTraining) -> dict[str, Any] | None:
        """The next answer, if one comes soon."""
        self._on_tick()
        return training.receive()
