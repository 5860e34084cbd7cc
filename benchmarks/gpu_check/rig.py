"""What checks run on: this machine's GPU, or in their own tests what plays one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from .checks import NotMeasured

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last thing it said."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1] if lines else "it said nothing"


@dataclass
class Rig:
    folder: Path
    """For what checks make; nobody keeps it."""
    python: tuple[str, ...] = (sys.executable,)
    """What starts a program that uses the GPU."""
    environment: dict[str, str] = field(default_factory=dict)
    unplayed: type[BaseException] = NotMeasured
    """What is raised where a stand-in does not play something."""
    played: bool = False
    log: io.StringIO = field(default_factory=io.StringIO)
    kept: dict[str, Any] = field(default_factory=dict)
    """What several checks look at, recorded once."""
    _made: int = 0

    def needs(self, what: str) -> None:
        """A check goes on only where this is a GPU.

        Raises:
            NotMeasured: a stand-in cannot play `what`.
        """
        if self.played:
            raise NotMeasured(f"the stand-in does not play {what}")

    def place(self, name: str) -> Path:
        self._made += 1
        return self.folder / f"{self._made}-{name}"

    def program(self, name: str, *arguments: str) -> list[str]:
        """The command of one of our programs."""
        return [*self.python, str(PROGRAMS / f"{name}.py"), *arguments]

    def command(self, command: Sequence[str], limit_s: float = 120.0) -> Done:
        """Run a command to its end; what it says goes to the log.

        Raises:
            TimeoutError: it did not end in time; it and all it started have been killed.
        """
        self.log.write(f"$ {' '.join(command)}\n")
        out, err = self.place("out"), self.place("err")
        with open(out, "wb") as to_out, open(err, "wb") as to_err:
            code = self.ended(command, to_out, to_err, limit_s)
        said = out.read_text(errors="replace"), err.read_text(errors="replace")
        done = Done(-signal.SIGKILL if code is None else code, *said)
        self.log.write(f"{done.out}\n{done.err}\nexit code {done.code}\n")
        if code is None:
            raise TimeoutError(f"{Path(command[0]).name} … did not end within {limit_s:.0f} s: {done.last}")
        return done

    def ended(self, command: Sequence[str], out: BinaryIO, err: BinaryIO, limit_s: float) -> int | None:
        """The exit code of a command; `None`: it was killed for taking too long."""
        process = self._start(command, out, err)
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _kill(process)

    @contextlib.contextmanager
    def beside(self, command: Sequence[str]) -> Iterator[Path]:
        """Have a command run meanwhile; where its output goes."""
        out = self.place("beside")
        with open(out, "wb") as file:
            process = self._start(command, file, subprocess.DEVNULL)
            try:
                yield out
            finally:
                _kill(process)
                self.log.write(f"$ {' '.join(command)} &\n{out.read_text(errors='replace')}\n")

    def run(self, command: Sequence[str], *options: str, limit_s: float = 120.0) -> Recording:
        """Record a command with `whyidle run`."""
        folder = self.place("run")
        head = [sys.executable, "-m", "whyidle", "run", "--no-live", "--json", *options, "--out", str(folder)]
        return Recording(self.command([*head, "--", *command], limit_s), folder)

    def variables(self) -> dict[str, str]:
        """The environment of commands, in which Python finds this package too."""
        paths = [str(ROOT), self.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
        return os.environ | self.environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def _start(self, command: Sequence[str], out: Any, err: Any) -> subprocess.Popen[bytes]:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        return subprocess.Popen(command, cwd=self.folder, env=self.variables(), process_group=0, **streams)


@dataclass(frozen=True)
class Recording:
    """A command that was recorded."""

    done: Done
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """As `--json` prints it.

        Raises:
            ValueError: there is none.
        """
        text = self.done.err
        start = text.find('{\n "format": "whyidle-report"')
        if start < 0:
            raise ValueError(f"no report: {self.done.last}")
        found: dict[str, Any] = json.JSONDecoder().raw_decode(text[start:])[0]
        return found

    @property
    def shares(self) -> dict[str, float]:
        """Part → percent of the wall time."""
        return {name.removesuffix("_pct"): share for name, share in self.report["breakdown"].items()}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and what it started: all of them are in its group. (A session of its own would outlive whoever kills ours.)"""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def mono_of(epoch_ns: int) -> int:
    """A moment of the clock that files are stamped with, on the monotonic one."""
    clock = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return epoch_ns - (time.time_ns() - clock)
