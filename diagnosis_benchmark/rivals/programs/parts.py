"""What the trainings beside this file are made of: a case's data, a net on a synchronous accelerator, other work.

The accelerator is one that any tool can see on a machine without a GPU: a forward and a backward pass that take the
time the case's plan says, asleep, as an accelerator leaves the processor to others. Where the plan's device is the
processor they compute for as long. Either way they are done when they return.

The training stamps what it does with its own clock, as `cases/loop.py` does, so that what a fault really
cost is known whatever the tool says.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import pickle
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from whyidle_bench.cases.case import COLD, FIRST, GIL, PLANTED, SLOW, Case
from whyidle_bench.cases.host import HostWork, SlowFile
from whyidle_bench.cases.machine import confine, foreign_load, quota
from whyidle_bench.cases.net import Narrow
from whyidle_bench.cases.samples import Samples, Waiting, burn_ms, collate, loader_of, sleep_ms, start_worker
from whyidle_bench.cases.truth import Stamp, write_truth

FOLDER = "RIVALS_FOLDER"
"""Where the case is, and where the stamps go: by the environment, which every tool passes on to what it starts."""
PLAN = "plan.pickle"
BEGAN = "began.json"
FORWARD = 0.4
"""The part of a step's computation that is its forward pass."""
WARM = 10
LATE_RANK = 1
_WEIGHT = torch.randn(128, 128)


class Parts:
    """One training's parts. `net`, `optimizer` and `loader` are what a training script has of its own."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[FOLDER])
        self.case: Case = pickle.loads((self._folder / PLAN).read_bytes())
        rank = int(os.environ.get("RANK", "0"))
        plan = self.case.plan
        if plan.ranks > 1 and rank != LATE_RANK:
            plan = replace(plan, data=type(plan.data)(), step=replace(plan.step, host_ms=0.0, host_burn_ms=0.0))
        self.plan = plan
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        torch.set_num_threads(1)
        # Loaders that a tool makes start their workers as the case's own do.
        multiprocessing.set_start_method("fork", force=True)
        self._stack = ExitStack()
        confine(plan.machine.cpus)
        self._stack.enter_context(quota(plan.machine.quota))
        self._stack.enter_context(foreign_load(plan.machine.foreign, plan.machine.foreign_rests))
        self.samples = Samples(plan, 0, self._folder)
        self._stack.callback(self.samples.remove)
        self.loader: DataLoader[Any] = loader_of(plan, self.samples)
        self.net: torch.nn.Module = Net(self)
        if plan.ranks > 1:
            torch.distributed.init_process_group("gloo")
            self._stack.callback(torch.distributed.destroy_process_group)
            self.net = torch.nn.parallel.DistributedDataParallel(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.epochs = plan.epochs
        self._checking = self._validation()
        self.stamps: list[Stamp] = []
        self.host = HostWork(plan.host, self.stamp)
        self._stack.callback(self.host.close)
        self.done = 0
        self._since = time.monotonic_ns()
        self._is_late = plan.ranks == 1 or rank == LATE_RANK
        # A tool that runs the loop itself ends it where it likes.
        atexit.register(self.close)

    def steps(self, loader: Any) -> Iterator[tuple[int, Any]]:
        """`(step, batch)` of one epoch, as `enumerate(loader)` with steps that go on counting, and stamped."""
        for batch in loader:
            self.begin_step()
            yield self.done, batch
            self.end_step()
        self.stamp("boundary", self._since, time.monotonic_ns(), "end")

    def begin_epoch(self) -> None:
        self._since = time.monotonic_ns()

    def begin_step(self) -> None:
        """The batch is there."""
        plan = self.plan
        number = self.done % plan.batches
        if self.done == 0:
            self._say_begun()
        reading = plan.data.reading
        reads = reading is not None and reading.once and self.done < plan.batches
        tag = COLD if reads else FIRST if number == 0 else SLOW if plan.is_slow(number) else ""
        if not plan.host.threads:
            self.stamp("fetch", self._since, time.monotonic_ns(), tag)

    def end_step(self) -> None:
        end = time.monotonic_ns()
        if self.plan.host.threads:
            # The loader keeps up: all that is waited for, in the fetch too, is the interpreter's lock.
            self.stamp("host", self._since, end, GIL)
        self._since = end
        self.done += 1

    @property
    def updates(self) -> bool:
        """Whether the optimizer is to step now."""
        every: int = self.plan.step.accumulate
        return self.done % every == every - 1

    def after_update(self) -> None:
        """What the loop does after the optimizer's step: logging, say, where the case has some."""
        if self.plan.is_interrupted(self.done):
            begin = time.monotonic_ns()
            sleep_ms(self.plan.step.host_ms)
            burn_ms(self.plan.step.host_burn_ms)
            self.stamp("host", begin, time.monotonic_ns(), PLANTED)
        self.host.step()

    def after_epoch(self) -> None:
        """Validation, a checkpoint or a pause, where the case has one."""
        between = self.plan.between
        begin = time.monotonic_ns()
        if self._checking is not None:
            self.net.eval()
            with torch.no_grad():
                for batch in self._checking:
                    self.net(batch)
            self.net.train()
        if between.save_ms:
            torch.save(self.optimizer.state_dict(), SlowFile(between.save_ms))
        sleep_ms(between.pause_ms)
        self.stamp("boundary", begin, time.monotonic_ns(), "between")

    def collate(self, samples: list[Any]) -> Any:
        """For loaders that a tool makes: in an order of its own samples of several lengths meet in a batch."""
        if len({len(sample) for sample in samples}) > 1:
            samples = list(torch.nn.utils.rnn.pad_sequence(samples, batch_first=True))
        return collate(self.plan.data, samples)

    def stamp(self, what: str, begin_ns: int, end_ns: int, tag: str = "") -> None:
        self.stamps.append(Stamp(what, begin_ns, end_ns, tag))

    def close(self) -> None:
        """Say what happened, and end what was started."""
        atexit.unregister(self.close)
        if self._is_late:
            write_truth(self._folder, self.case, self.stamps)
        self._checking = None
        del self.loader
        self._stack.close()

    def _say_begun(self) -> None:
        if self._is_late:
            (self._folder / BEGAN).write_text(json.dumps({"first_step_ns": time.monotonic_ns()}))

    def _validation(self) -> DataLoader[Any] | None:
        between, batch = self.plan.between, self.plan.loader.batch
        if not between.validation_batches:
            return None
        samples = Waiting(between.validation_batches * batch, between.validation_ms)
        return DataLoader(samples, batch_size=batch, num_workers=between.validation_workers)


class Started(Dataset[Any]):
    """The samples, for loaders without a `worker_init_fn`: what workers do at their start comes with the first one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._begun = False

    def __len__(self) -> int:
        return len(self._parts.samples)

    def __getitem__(self, index: int) -> Any:
        if not self._begun and get_worker_info() is not None:
            start_worker(self._parts.plan.loader, 0)
        self._begun = True
        return self._parts.samples[index]


class Net(torch.nn.Module):
    """A tiny net that computes as long as the plan says, longer for shapes that it has not seen where the plan does."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.narrow: Any = Narrow()
        if parts.plan.step.compiled:
            # Anew for each shape, which nothing is generated for: that takes no compiler.
            torch._dynamo.config.recompile_limit = parts.plan.steps + 1
            self.narrow = torch.compile(self.narrow, backend="eager", dynamic=False)
        self._parts = parts
        self._seen: set[tuple[int, ...]] = set()

    def forward(self, samples: Any) -> Any:
        samples = torch.as_tensor(samples[0] if isinstance(samples, list) else samples)
        if not self.training:
            return self.narrow(samples)
        begin, is_new = time.monotonic_ns(), tuple(samples.shape) not in self._seen
        self._seen.add(tuple(samples.shape))
        out = self.narrow(samples)
        if is_new:
            # Trying out algorithms, say, or compiling.
            sleep_ms(self._parts.plan.accelerator.first_ms)
            self._parts.stamp("lost", begin, time.monotonic_ns())
        return StepComputation.apply(out, self._parts, self._ms(samples))

    def _ms(self, samples: torch.Tensor) -> float:
        plan = self._parts.plan
        ms: float = plan.step.compute_ms * (WARM if self._parts.done < plan.step.slow_start else 1)
        return ms * samples.shape[1] / plan.data.floats if plan.data.width_sigma else ms


class StepComputation(torch.autograd.Function):
    """A step's computation: a part of it in the forward pass, the rest in the backward pass."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor, parts: Parts, ms: float) -> torch.Tensor:
        ctx.parts, ctx.ms = parts, ms
        compute(parts, FORWARD * ms)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        compute(ctx.parts, (1 - FORWARD) * ctx.ms)
        return gradients[0], None, None


def compute(parts: Parts, ms: float) -> None:
    """Keep the accelerator, or the processor, busy for so long."""
    if parts.plan.device == "cpu":
        begin = time.monotonic_ns()
        end = time.thread_time_ns() + round(ms * 1e6)
        while time.thread_time_ns() < end:
            torch.mm(_WEIGHT, _WEIGHT)
        parts.stamp("compute", begin, time.monotonic_ns())
        return
    pauses = parts.plan.host.releases_within // 2
    for part in range(pauses + 1):
        if part:
            parts.host.let_go(1)
        begin = time.monotonic_ns()
        sleep_ms(ms / (pauses + 1))
        # The accelerator is done by now, whenever this thread got the interpreter's lock back.
        parts.stamp("compute", begin, begin + round(ms / (pauses + 1) * 1e6))
