"""What is measured in processes of their own: observers that stay in a process, whole trainings, and start-up.

A process is faster than another for no reason but where its memory lies, so a difference takes many rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psutil

from whyidle_bench.rivals.cost import MedianInterval, median_interval
from whyidle_bench.rivals.environment import environment_beside, free_port

from .child import DEVICE, OBSERVER, SOCKET, TRACEML
from .loop import Block, Length
from .observers import NONE

CHILD = Path(__file__).with_name("child.py")
START_S = 120.0
BLOCK_S = 120.0
END_S = 60.0
DROPPED = "queue full, dropping step batch"
"""What TraceML writes when its own queue had no room for a step."""
WHOLE_LENGTHS = (Length(0.26, 0), Length(1.0, 12), Length(10.0, 30))
"""The last filled with larger matrices. How long the steps are then, the bare processes tell."""
WHOLE_STEPS = (3000, 1500, 150)
DISCARD = 80
"""Steps at the begin that do not count: the first are looked at whatever that costs, and what is compiled or looked for
once is then over."""


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
        asked = {"workers": workers, "steps": steps, "discard": discard} | asdict(length)
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
    # Its command for scripts, with a report at the end only: nothing draws while we measure.
    command = [str(traceml.with_name("traceml")), "run", str(CHILD), "--mode", "summary", "--no-save-training-output"]
    command += ["--logs-dir", str(place / "logs"), "--run-name", "overhead"]
    return [*command, "--aggregator-port", str(free_port()), "--master-port", str(free_port())]


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
    hooks = install(session)
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


def added_by_processes(names: Sequence[str], pairs: int, device: str, traceml: Path | None, seed: int) -> list[str]:
    """Lines of a table: what each observer adds to a step, µs, with the 90 % interval of its median."""
    source = random.Random(seed)
    found: dict[str, list[list[tuple[dict[str, float], dict[str, float]]]]] = {name: [] for name in names}
    for _ in range(pairs):
        blocks = {each: _train(each, device, traceml) for each in source.sample([NONE, *names], 1 + len(names))}
        for name in names:
            pairs = zip(blocks[name], blocks[NONE], strict=True)
            found[name].append([(watched.per_step_us(), bare.per_step_us()) for watched, bare in pairs])
    lines = [f"\nAdded by whole processes, µs a step around what fills it, {pairs} interleaved pairs"]
    for number, steps in enumerate(WHOLE_STEPS):
        bare = median_interval([each[number][1]["wall"] for rounds in found.values() for each in rounds])
        lines.append(f"steps of {bare.median / 1e3:.3g} ms, {steps} a process")
        for name, rounds in found.items():
            wall, cpu = (_difference(rounds, number, column) for column in ("wall_around", "cpu_around"))
            share = 100 * cpu.median / bare.median
            lines.append(f"  {name:<28}wall {wall!s:>22}   CPU {cpu!s:>22}   {share:.2f} % of the step")
    return lines


def _difference(
    rounds: Sequence[Sequence[tuple[dict[str, float], dict[str, float]]]], number: int, column: str
) -> MedianInterval:
    return median_interval([each[number][0][column] - each[number][1][column] for each in rounds])


def _train(name: str, device: str, traceml: Path | None) -> list[Block]:
    """One process from its start to its end, a block of each length."""
    with tempfile.TemporaryDirectory() as place:
        child = Child(name, child_command(name, traceml, Path(place)), device, Path(place))
        try:
            return [
                child.block(0, length, steps, DISCARD) for length, steps in zip(WHOLE_LENGTHS, WHOLE_STEPS, strict=True)
            ]
        finally:
            child.close()
