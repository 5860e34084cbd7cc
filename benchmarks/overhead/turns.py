"""What hooks add to a step, found by taking them out and putting them back every few steps of one training.

What else a machine does, and where a process's memory lies, is the same on either side then: a microsecond is seen
where whole blocks of steps leave ten in doubt. Beside whyidle stand functions that do nothing, put in the same places:
below what those add nothing that hooks in Python can come.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch as torch_fetch

from whyidle.capture.hooks import wrap
from whyidle.capture.hooks.install import install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.choose import choose
from whyidle.devices.protocol import Device
from whyidle.record import run as runs
from whyidle.record import segment
from whyidle_bench.rivals.cost import median_interval

from .loop import Length, Training, fitted
from .observers import EVERY_STEP, EveryStep

FLOOR = "functions that do nothing"
PASSING = "whyidle, steps let pass"
KINDS = (FLOOR, PASSING, EVERY_STEP)
"""Thinning itself is not asked for here: a step seems as long as the turn without hooks that it ends with."""
LENGTHS_MS = (0.2, 1.0, 10.0)
SETTLING = 150
"""Steps at the begin that do not count: the first are looked at whatever that costs."""
GROUP = 20
"""Steps in a row with hooks, or without."""
UNSETTLED = 6
"""Of these at the begin, that do not count: Python's own caches of what lies where are void then."""
TRIMMED = 0.02
"""Of the longest steps on either side: those that the scheduler interrupted."""

_RECEIVES = """
import select, sys
from pathlib import Path
from whyidle.capture.sampler.receiver import Receiver, listen
receiver = Receiver(Path(sys.argv[1]), listen(Path(sys.argv[1])))
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.2)[0]:
    receiver.look()
receiver.close()
"""

Times = npt.NDArray[np.float64]
PLACES: tuple[tuple[Any, str, int], ...] = (
    (dataloader._BaseDataLoaderIter, "__next__", 1),
    (dataloader._BaseDataLoaderIter, "_next_index", 1),
    (torch_fetch._MapDatasetFetcher, "fetch", 2),
    (torch.autograd, "backward", 1),
)
"""What each step calls, with how many arguments."""


class _LetsPass(Thinning):
    def first(self) -> int:
        return 70

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        return 2, 1 << 30


def added(rounds: int, span_s: float, device: str, seed: int) -> Iterator[str]:
    """Lines of a table: µs a step around what fills it, with the 90 % interval of the median over rounds."""
    source, chosen = random.Random(seed), choose(device)
    training = Training(0, device)
    yield f"\nAdded to a step, µs around what fills it; hooks in and out in turns of {GROUP} steps, {rounds} rounds"
    for target_ms in LENGTHS_MS:
        length = fitted(training, target_ms)
        step_us = training.block(length, max(20, round(300 / target_ms)), 10).per_step_us()["wall"]
        steps = SETTLING + round(span_s * 1e6 / step_us)
        found: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(rounds):
            for kind in source.sample(KINDS, len(KINDS)):
                found[kind].append(_added_by(kind, training, length, steps, chosen, source))
        yield f"steps of {step_us / 1e3:.3g} ms, {steps} a round"
        for kind, each in found.items():
            middle = median_interval(each)
            yield f"  {kind:<28}{middle!s:>22}   {100 * middle.median / step_us:.2f} % of the step"


def _added_by(
    kind: str, training: Training, length: Length, steps: int, device: Device, source: random.Random
) -> float:
    with _put_in(kind, device) as toggled:
        times: dict[bool, list[float]] = {True: [], False: []}
        present, left = True, GROUP
        for number, took in enumerate(_steps(training, length, steps)):
            if number < SETTLING:
                continue
            if left < GROUP - UNSETTLED:
                times[present].append(took)
            left -= 1
            if left == 0:
                present, left = source.random() < 0.5, GROUP
                toggled()(present)
        toggled()(True)
    with_hooks, without = (_mean(np.array(times[each])) for each in (True, False))
    return (with_hooks - without) / 1e3


def _steps(training: Training, length: Length, steps: int) -> Iterator[int]:
    """What each step took around what fills it, ns, from asking for its batch on."""
    while True:
        begin = time.perf_counter_ns()
        for features, classes in training.loader:
            filled = training.step(features, classes, length)
            yield time.perf_counter_ns() - begin - filled
            steps -= 1
            if steps == 0:
                return
            begin = time.perf_counter_ns()


def _mean(times: Times) -> float:
    return float(np.sort(times)[: max(1, round(len(times) * (1 - TRIMMED)))].mean())


@contextlib.contextmanager
def _put_in(kind: str, device: Device) -> Iterator[Callable[[], Callable[[bool], None]]]:
    """Hooks of a kind; gives what takes them out (`False`) and puts them back, of all that are there when it is first
    asked for."""
    known: list[Callable[[bool], None]] = []

    def toggled() -> Callable[[bool], None]:
        if not known:
            known.append(_toggle())
        return known[0]

    with tempfile.TemporaryDirectory() as folder:
        if kind == FLOOR:
            patches = wrap.Patches()
            before = torch_optimizer.register_optimizer_step_pre_hook(_nothing)
            after = torch_optimizer.register_optimizer_step_post_hook(_nothing)
            for owner, name, arguments in PLACES:
                patches.replace(owner, name, _calls_on, *[None] * arguments)
            yield toggled
            before.remove()
            after.remove()
            patches.put_back()
            return
        thinning = _LetsPass() if kind == PASSING else EveryStep()
        description = {"device": device.describe(), "ended": {"status": "ok"}}
        run = runs.create_run(Path(folder) / "run", description)
        with _received(run):
            session = Session(run, device, thinning=thinning)
            hooks = install(session)
            try:
                yield toggled
            finally:
                hooks.remove()
                session.finish()


@contextlib.contextmanager
def _received(run: Path) -> Iterator[None]:
    """A process takes what is recorded, as the sampler does."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", _RECEIVES, run], text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        process.communicate()


def _toggle() -> Callable[[bool], None]:
    functions = [each for of in segment._alive if isinstance(of, wrap.Patches) for each in of._done]
    of_optimizers: Any = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    kept = [(each, dict(each)) for each in of_optimizers]

    def put(present: bool) -> None:
        for owner, name, before, wrapped in functions:
            setattr(owner, name, wrapped if present else wrapped.__wrapped__ if before is wrap._ABSENT else before)
        for each, hooks in kept:
            each.clear()
            each.update(hooks if present else {})

    return put


def _nothing(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
    pass


def _calls_on(original: Callable[..., Any]) -> Callable[..., Any]:
    def calls_on(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return calls_on
