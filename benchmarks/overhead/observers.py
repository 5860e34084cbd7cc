"""What watches a block of steps in `python -m benchmarks.overhead`: nothing, whyidle, torch.profiler, TraceML."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

from whyidle.analyse.run.facts import facts_of
from whyidle.capture.hooks.install import install
from whyidle.capture.sampler.start import Sampler, start_sampler
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.choose import choose
from whyidle.record.reader import RecordFile
from whyidle.record.run import create_run, open_run

from .loop import Around

NONE = "bare"
"""What all are compared with."""
CONTROL = "none"
"""Bare blocks compared with bare ones."""
HOOKS = "whyidle"
EVERY_STEP = "whyidle, every step"
SAMPLED = "whyidle, and its sampler"
SCHEDULED = "torch.profiler, schedule"
ALWAYS_ON = "torch.profiler, always on"
IN_ONE_PROCESS = (CONTROL, HOOKS, EVERY_STEP, SAMPLED, SCHEDULED, ALWAYS_ON)

CYCLE = {"wait": 5, "warmup": 1, "active": 3}
"""The cycle of torch's profiler recipe for long trainings; here it goes on and on."""
CYCLE_STEPS = sum(CYCLE.values())
SAMPLER_START_S = 30.0


class EveryStep(Thinning):
    """Looks at every step, however short."""

    def first(self) -> int:
        return 1 << 60


@dataclass
class Watch:
    """How the loop is to be run under an observer."""

    around: Around | None = None
    after: Callable[[], object] | None = None


@dataclass
class Account:
    """What whyidle itself says of its cost, a figure for each block."""

    us_per_step: list[float] = field(default_factory=list)
    looked_at: list[float] = field(default_factory=list)
    """Share of the steps that the hooks looked at."""
    sampler_cpu_s: float = 0.0
    sampler_wall_s: float = 0.0


class Observers:
    """The observers of one process, one at a time."""

    def __init__(self, device: str) -> None:
        # torch.profiler would write a line each time it starts and stops; it reads its level when it is first used.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
        self._device = choose(device)
        self._folder = tempfile.TemporaryDirectory()
        self._runs = 0
        self._sampler: Sampler | None = None
        self.forget()

    def close(self) -> None:
        if self._sampler is not None:
            self._signal_sampler(signal.SIGCONT)
            self._sampler.stop()
        self._folder.cleanup()

    def forget(self) -> None:
        """Begin anew, for steps of another length."""
        self._thinning: dict[str, Thinning] = {HOOKS: Thinning(1), SAMPLED: Thinning(2), EVERY_STEP: EveryStep()}
        # Kept over the blocks, each a recording of its own: the first steps of a training are not looked at anew.
        self.accounts = {name: Account() for name in self._thinning}

    @contextmanager
    def watching(self, name: str) -> Iterator[Watch]:
        """Observe what runs in the `with` block."""
        if name in (NONE, CONTROL):
            yield Watch()
        elif name in self._thinning:
            with self._whyidle(name):
                yield Watch()
        else:
            with self._torch_profiler(name == SCHEDULED) as watch:
                yield watch

    @contextmanager
    def _whyidle(self, name: str) -> Iterator[None]:
        folder = self._new_run()
        session = Session(folder, self._device, thinning=self._thinning[name])
        hooks = install(session)
        try:
            if name == SAMPLED:
                with self._sampling():
                    yield
            else:
                yield
        finally:
            off = hooks.off
            hooks.remove()
            session.finish()
        if off:
            raise RuntimeError(f"not a measurement of all hooks: {', '.join(off)} are off")
        facts = facts_of(open_run(folder))
        if facts is not None:
            self.accounts[name].us_per_step.append(facts.overhead_ns_per_step / 1e3)
            self.accounts[name].looked_at.append(facts.window.looked_at)

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        """The sampler runs for the time of the block and is stopped by a signal between blocks."""
        if self._sampler is None:
            folder = self._new_run()
            self._sampler = start_sampler(folder, os.getpid())
            if self._sampler.error is not None:
                raise RuntimeError(self._sampler.error)
            _wait_for_samples(folder)
        account = self.accounts[SAMPLED]
        self._signal_sampler(signal.SIGCONT)
        cpu, wall = _cpu_s(self._sampler.pid), time.monotonic()
        try:
            yield
        finally:
            account.sampler_cpu_s += _cpu_s(self._sampler.pid) - cpu
            account.sampler_wall_s += time.monotonic() - wall
            self._signal_sampler(signal.SIGSTOP)

    @contextmanager
    def _torch_profiler(self, scheduled: bool) -> Iterator[Watch]:
        """Without exporting what it saw: that is not part of a step."""
        activities = [ProfilerActivity.CPU]
        if self._device.torch_device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        if scheduled:
            with profile(activities=activities, schedule=schedule(**CYCLE), on_trace_ready=lambda _: None) as profiler:
                yield Watch(after=profiler.step)
        else:
            with profile(activities=activities):
                yield Watch()

    def _new_run(self) -> Path:
        self._runs += 1
        description = {"device": self._device.describe(), "ended": {"status": "ok"}}
        return create_run(Path(self._folder.name) / str(self._runs), description)

    def _signal_sampler(self, what: signal.Signals) -> None:
        if self._sampler is not None and self._sampler.pid is not None:
            os.kill(self._sampler.pid, what)


def traceml_around() -> Around:
    """What TraceML's guide for plain PyTorch asks for; `traceml run` has started this process."""
    import traceml_ai  # type: ignore[import-not-found]

    traceml_ai.init(mode="auto")
    around: Around = traceml_ai.trace_step
    return around


def _wait_for_samples(folder: Path) -> None:
    """Its start is not what a sampler costs a step."""
    end = time.monotonic() + SAMPLER_START_S
    while not any(RecordFile(path).count() for path in folder.glob("host-*")):
        if time.monotonic() > end:
            raise RuntimeError(f"the sampler recorded nothing within {SAMPLER_START_S:.0f} s")
        time.sleep(0.05)


def _cpu_s(pid: int | None) -> float:
    """CPU time of a process with one thread, finer than the clock ticks that other sources count in."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
