"""What the benchmark of overhead measures in processes of their own: observers that stay in a process, and start-up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from whyidle_bench.rivals.environment import environment_beside, free_port

from .child import DEVICE, OBSERVER, SOCKET, TRACEML
from .loop import Block, Length

CHILD = Path(__file__).with_name("child.py")
START_S = 120.0
BLOCK_S = 120.0
END_S = 60.0
DROPPED = "queue full, dropping step batch"
"""What TraceML writes when its own queue had no room for a step."""


class Child:
    """A training process that waits for blocks to train."""

    def __init__(self, name: str, command: Sequence[str], device: str, folder: Path) -> None:
        self.name = name
        self.dropped = 0
        """Steps that TraceML left out for want of room, known at the end."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed in `close`
        path = folder / f"{len(list(folder.iterdir()))}.socket"
        environment = os.environ | {SOCKET: str(path), OBSERVER: name, DEVICE: device}
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen(1)
            listening.settimeout(1)
            self._process = psutil.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT
            )
            try:
                self._connection = self._accept(listening)
            except BaseException:
                self._end_all([])
                raise
        self._connection.settimeout(BLOCK_S)
        self._stream = self._connection.makefile("rw")
        self._descendants = self._process.children(recursive=True)

    def block(self, workers: int, length: Length, steps: int, discard: int) -> Block:
        asked = {
            "workers": workers,
            "target_ms": length.target_ms,
            "products": length.products,
            "steps": steps,
            "discard": discard,
        }
        print(json.dumps(asked), file=self._stream, flush=True)
        answer = self._stream.readline()
        if not answer:
            raise RuntimeError(f"the process under {self.name} ended: {self._last_words()}")
        return Block(**json.loads(answer))

    def close(self) -> None:
        """Let it end, and make sure that all it started has ended."""
        self._descendants += self._process.children(recursive=True) if self._process.is_running() else []
        with contextlib.suppress(OSError):
            self._stream.close()
            self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            self._process.wait(END_S)
        self._end_all(self._descendants)
        self._output.seek(0)
        self.dropped = len(re.findall(DROPPED, self._output.read().decode(errors="replace")))
        self._output.close()

    def _accept(self, listening: socket.socket) -> socket.socket:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                return listening.accept()[0]
            if self._process.poll() is not None:
                raise RuntimeError(f"the process under {self.name} did not start: {self._last_words()}")
        raise RuntimeError(f"the process under {self.name} was not there within {START_S:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def _end_all(self, known: list[psutil.Process]) -> None:
        """psutil tells a process from another that was given its number."""
        with contextlib.suppress(psutil.NoSuchProcess):
            known = [*known, *self._process.children(recursive=True), self._process]
        for push in ("terminate", "kill"):
            left = [each for each in known if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
            for each in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    getattr(each, push)()
            psutil.wait_procs(left, timeout=5)


@contextmanager
def children(names: Sequence[str], device: str, traceml: Path | None) -> Iterator[dict[str, Child]]:
    """A process for each of `names`. `traceml` is the interpreter of the environment that has it."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        started: dict[str, Child] = {}
        for name in names:
            started[name] = Child(name, child_command(name, traceml, Path(place)), device, Path(place))
            stack.callback(started[name].close)
        yield started


def child_command(name: str, traceml: Path | None, place: Path) -> list[str]:
    """What starts a training process under an observer; `traceml` as in `children`."""
    if name != TRACEML:
        return [sys.executable, str(CHILD)]
    assert traceml is not None
    return _traceml_command(traceml, place)


def _traceml_command(python: Path, place: Path) -> list[str]:
    """Its command for scripts, with a report at the end only: nothing draws while we measure."""
    aggregator, master = free_port(), free_port()
    command = [str(python.with_name("traceml")), "run", str(CHILD), "--mode", "summary", "--no-save-training-output"]
    command += ["--logs-dir", str(place / "logs"), "--run-name", "overhead"]
    return [*command, "--aggregator-port", str(aggregator), "--master-port", str(master)]


@dataclass(frozen=True)
class TraceMl:
    """The environment that TraceML was installed into, or why there is none."""

    python: Path | None
    version: str = ""
    error: str = ""


def install_traceml(requirement: str, folder: Path) -> TraceMl:
    """Install TraceML beside this interpreter's packages."""
    try:
        python = environment_beside(folder, [requirement])
        ask = "import importlib.metadata as m; print(m.version('traceml-ai'))"
        version = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        return TraceMl(None, error=said[-1] if said else f"{error.cmd[0]} ended with {error.returncode}")
    except OSError as error:
        return TraceMl(None, error=str(error))
    return TraceMl(python, version)


_START = """
import sys, time
import torch
def used():
    return time.perf_counter(), time.process_time()
if sys.argv[2] != "cpu":
    torch.cuda.init()
begin = used()
if sys.argv[1]:
    from pathlib import Path
    from whyidle.capture.hooks.install import install
    from whyidle.capture.session import Session
    from whyidle.devices.choose import choose
    from whyidle.record.run import create_run
    device = choose(sys.argv[2])
    session = Session(create_run(Path(sys.argv[1]), {"device": device.describe()}), device)
    hooks = install(session, device)
    end = used()
    hooks.remove()
    session.finish()
    print(*(b - a for a, b in zip(begin, end)))
"""


def start_up(rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds by what was measured: within the process after torch was there, and whole processes compared."""
    seconds: dict[str, list[float]] = {"wall": [], "cpu": [], "whole process, wall": [], "whole process, cpu": []}
    for number in range(-1 if rounds > 1 else 0, rounds):
        with tempfile.TemporaryDirectory() as place:
            order = ["", f"{place}/run"][:: 1 if number % 2 else -1]
            whole = {run: _start_process(run, device) for run in order}
        if number < 0:
            continue  # fills the page cache
        bare, ours = whole[""], whole[f"{place}/run"]
        seconds["wall"].append(ours[2])
        seconds["cpu"].append(ours[3])
        seconds["whole process, wall"].append(ours[0] - bare[0])
        seconds["whole process, cpu"].append(ours[1] - bare[1])
    return seconds


def _start_process(run: str, device: str) -> tuple[float, float, float, float]:
    """(wall, CPU of the whole process, wall and CPU of our part)"""
    begin = time.monotonic()
    before = os.times()
    done = subprocess.run([sys.executable, "-c", _START, run, device], check=True, capture_output=True, text=True)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    inside = [float(each) for each in done.stdout.split()] or [0.0, 0.0]
    return time.monotonic() - begin, cpu, inside[0], inside[1]
