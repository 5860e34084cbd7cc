"""An ordinary PyTorch training as a plan says, with stamps of its own.

The net is tiny but real, so that the hooks find the steps by its backward passes and optimizer. On the emulated device
the step's computation is queued beside it; on the processor the net is multiplied by itself for as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from whyidle.devices.cpu import CpuDevice
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.devices.protocol import Device

from .accelerator import Computing
from .case import COLD, FIRST, GIL, GROWN, PLANTED, SAMPLER, SLOW, Plan
from .host import HostWork, SlowFile
from .net import Narrow
from .samples import Samples, Waiting, burn_ms, loader_of, sleep_ms
from .truth import Stamp

SPEC = EmulatedSpec("accelerator", "Accelerator", 16 * 10**9, 12e9, 4e9)
WARM = 10
"""How many times as long the first steps of a plan with a slow start compute."""


def device_of(plan: Plan) -> Device:
    if plan.device == "cpu":
        return CpuDevice()
    accelerator = plan.accelerator
    return EmulatedDevice(replace(SPEC, conditions=accelerator.conditions, retry_ns=round(accelerator.retry_ms * 1e6)))


class Working(torch.nn.Module):
    """The model that a planted training calls."""

    def __init__(self, work: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self._work = work

    def forward(self, samples: torch.Tensor) -> Any:
        return self._work(samples)


class PlantedLoop:
    """One training. `stamps` grows as it runs."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        samples: Samples,
        wrapped: Callable[[torch.nn.Module], torch.nn.Module] = lambda net: net,
    ) -> None:
        """`wrapped`: makes of the net what is trained, of several ranks say."""
        self._plan = plan
        self._device = device
        self._loader = loader_of(plan, samples, lambda begin, end: self._stamp("fetch", begin, end, SAMPLER))
        self._checking = self._validation()
        net = wrapped(Narrow())
        self._net: Callable[[torch.Tensor], Any] = net
        self._model = Working(self._work)
        if plan.step.compiled:
            # Anew for each shape, which nothing is generated for: that takes no compiler.
            torch._dynamo.config.recompile_limit = plan.steps + 1
            self._net = torch.compile(net, backend="eager", dynamic=False)
        self._compiled_for: set[tuple[int, ...]] = set()
        self._optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        self._weight = torch.randn(128, 128)
        self._now: Callable[[], int] = time.monotonic_ns
        self._done = 0
        self.stamps: list[Stamp] = []
        self._host = HostWork(plan.host, self._stamp)
        self._computing = (
            Computing(device, plan.accelerator, self._stamp) if isinstance(device, EmulatedDevice) else None
        )

    def run(self) -> None:
        start = self._plan.start
        if start.index_s:
            with self._stamped("start"):
                sleep_ms(1e3 * start.index_s)
        for _ in range(self._plan.epochs):
            self._epoch()
            self._between()
        self._device.synchronize()

    def close(self) -> None:
        """End the workers and threads."""
        self._host.close()
        del self._loader, self._checking

    def _epoch(self) -> None:
        plan = self._plan
        reading = plan.data.reading
        reads = reading is not None and reading.once and self._done == 0
        begin = self._now()
        batches = self._staged() if plan.step.stage_in_generator else iter(self._loader)
        batch = None
        skipped = plan.start.skip if self._done == 0 else 0
        if skipped:
            for _ in range(skipped):
                next(batches)
            self._stamp("start", begin, self._now())
            begin = self._now()
        for number in range(skipped, plan.batches + skipped + 1):
            try:
                fetched = next(batches)
            except StopIteration:
                # Workers that are not kept end here.
                self._stamp("boundary", begin, self._now(), "end")
                return
            tag = COLD if reads else FIRST if number == 0 else SLOW if plan.is_slow(number) else ""
            if not plan.host.threads and not plan.step.stage_in_generator:
                end = self._now()
                # What making the batch has grown by; only where the training makes it itself, or all of it waits.
                grown = round(1e6 * plan.loader.batch * plan.data.grows_ms * plan.grown(self._done))
                grown = min(grown, end - begin)
                self._stamp("fetch", begin, end - grown, tag)
                self._stamp("fetch", end - grown, end, GROWN)
            # The batch before is let go of here: unmapping many tensors takes a while, which is no waiting for data.
            batch = fetched
            del fetched
            self._step(batch)
            end = self._now()
            if plan.host.threads:
                # The loader keeps up: all that is waited for, in the fetch too, is the interpreter's lock.
                self._stamp("host", begin, end, GIL)
            begin = end

    def _step(self, batch: list[Any]) -> None:
        step = self._plan.step
        if step.passed_over and self._done % step.passed_over:
            self._done += 1
            return
        self._copy()
        samples = torch.as_tensor(batch[0])
        if not step.stage_in_generator:
            self._stage()
        self._model(samples).square().mean().backward()
        if self._done % step.accumulate == step.accumulate - 1:
            self._optimizer.step()
            self._optimizer.zero_grad()
        if step.sync_every and self._done % step.sync_every == step.sync_every - 1:
            self._read_loss()
        if (step.host_ms or step.host_burn_ms) and self._plan.is_interrupted(self._done):
            with self._stamped("host", PLANTED):
                sleep_ms(step.host_ms)
                burn_ms(step.host_burn_ms)
        if step.grows_ms and self._plan.grown(self._done):
            with self._stamped("host", GROWN):
                sleep_ms(step.grows_ms * self._plan.grown(self._done))
        self._host.step()
        self._done += 1

    def _staged(self) -> Iterator[Any]:
        """The loader's batches, each with the plan's stage behind it."""
        begin = self._now()
        for batch in self._loader:
            self._stamp("fetch", begin, self._now())
            self._stage()
            yield batch
            begin = self._now()

    def _stage(self) -> None:
        """What the training does with a batch before it calls its model."""
        step = self._plan.step
        if step.stage_ms or step.stage_burn_ms:
            with self._stamped("host", PLANTED):
                sleep_ms(step.stage_ms)
                burn_ms(step.stage_burn_ms)

    def _work(self, samples: torch.Tensor) -> Any:
        """What the model does with a batch."""
        factor = float(WARM if self._done < self._plan.step.slow_start else 1)
        if self._plan.data.width_sigma or self._plan.data.length_tail or self._plan.data.longer != 1:
            factor *= samples.shape[1] / self._plan.data.floats
        if self._done >= self._plan.steps / 2:
            factor *= self._plan.step.later
        self._compute(self._plan.step.compute_ms * factor, samples)
        if grown := self._plan.step.compute_grows_ms * self._plan.grown(self._done):
            with self._stamped("lost", GROWN):
                self._multiply(grown)
        return self._forward(samples)

    def _compute(self, ms: float, samples: torch.Tensor) -> None:
        step = self._plan.step
        if self._computing is not None:
            pauses = max(step.reads, self._plan.host.releases_within)
            parts = pauses + 1
            self._computing.begin(tuple(samples.shape))
            for part in range(parts):
                if part and step.reads:
                    self._read(step.read_ms)
                elif part:
                    self._host.let_go(1)
                self._computing.part(ms / parts, max(1, step.kernels // parts))
            return
        with self._stamped("compute"):
            self._multiply(ms)

    def _multiply(self, ms: float) -> None:
        """Compute on the processor for so long."""
        end = time.thread_time_ns() + round(ms * 1e6)
        while time.thread_time_ns() < end:
            torch.mm(self._weight, self._weight)

    def _copy(self) -> None:
        step, device = self._plan.step, self._device
        if not step.copy_bytes or not isinstance(device, EmulatedDevice):
            return
        with self._stamped("copy"):
            stream = device.side_stream() if step.ahead else None
            tensors, copy = device.copy(
                [torch.empty(step.copy_bytes, dtype=torch.uint8)], pinned=step.pinned, stream=stream
            )
        if step.ahead:
            device.wait_for(copy, tensors)

    def _read_loss(self) -> None:
        """As `loss.item()` does on an accelerator."""
        self._read(0.0)

    def _read(self, ms: float) -> None:
        """Something is read from the device, and takes so long when that is done."""
        with self._stamped("sync"):
            if isinstance(self._device, EmulatedDevice):
                self._device.synchronize(round(ms * 1e6))

    def _forward(self, samples: torch.Tensor) -> Any:
        shape = tuple(samples.shape)
        if not self._plan.step.compiled or shape in self._compiled_for:
            return self._net(samples)
        begin = self._now()
        result = self._net(samples)
        self._compiled_for.add(shape)
        self._stamp("lost", begin, self._now())
        return result

    def _between(self) -> None:
        between = self._plan.between
        if between.sync:
            self._read_loss()
        if self._checking is not None:
            with self._stamped("boundary", "validation"), torch.no_grad():
                for batch in self._checking:
                    self._net(batch)
        if between.save_ms:
            with self._stamped("boundary", "save"):
                torch.save(self._optimizer.state_dict(), SlowFile(between.save_ms))
        if between.pause_ms:
            with self._stamped("boundary", "pause"):
                sleep_ms(between.pause_ms)

    def _validation(self) -> DataLoader[Any] | None:
        between, batch = self._plan.between, self._plan.loader.batch
        if not between.validation_batches:
            return None
        workers = between.validation_workers
        samples = Waiting(between.validation_batches * batch, between.validation_ms)
        return DataLoader(samples, batch_size=batch, num_workers=workers)

    def _stamp(self, what: str, begin_ns: int, end_ns: int, tag: str = "") -> None:
        self.stamps.append(Stamp(what, begin_ns, end_ns, tag))

    @contextmanager
    def _stamped(self, what: str, tag: str = "") -> Iterator[None]:
        begin = self._now()
        try:
            yield
        finally:
            self._stamp(what, begin, self._now(), tag)
