"""Profiles of accelerators: what an emulated device must know of a real one, and where each number is from.

`load.load(name)` reads one. Here is what a profile means: how long a step takes, how many kernels it
launches and how much memory it needs. `docs/accelerators.md` has all numbers with their doubts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ...errors import WhyidleError

if TYPE_CHECKING:
    from ..emulated import EmulatedSpec

OriginKind = Literal["published", "derived", "recorded"]

UPDATE_PASSES = 5
"""SGD with momentum reads weight, gradient and momentum and writes weight and momentum."""

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Origin:
    """Where a number is from: a public source, a computation from such numbers, or the user's measurement."""

    kind: OriginKind
    text: str
    doubt: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Figure:
    """One number of a profile with its origin. The unit is in the name of what holds it."""

    value: float
    origin: Origin


@dataclass(frozen=True)
class Kernels:
    """Kernels one training step launches."""

    forward: int
    backward: int
    optimizer: int
    origin: Origin

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True)
class NetProfile:
    """What belongs to a net whatever it runs on. Counts are per sample at its input size, in fp32."""

    name: str
    title: str
    input_size: int
    """Side of the square input, pixels."""
    forward_macs: Figure
    parameters: Figure
    activation_bytes: Figure
    """Kept for the backward pass, per sample."""
    kernels: Kernels


@dataclass(frozen=True)
class Nets:
    """All nets known, and what a training process needs on the device beside its net."""

    nets: Mapping[str, NetProfile]
    context_bytes: Figure
    workspace_bytes: Figure
    bytes_per_parameter: Figure
    """Weight, gradient and momentum."""


@dataclass(frozen=True)
class NetOnAccelerator:
    """Throughput of training one net, at one or several batch sizes."""

    net: NetProfile
    batch_sizes: tuple[float, ...]
    """Ascending. Not whole where derived from another net: 16 images of VGG-16 are the work of 7.89 of
    SSD300."""
    samples_per_s: tuple[float, ...]
    precision: str
    origin: Origin


@dataclass(frozen=True)
class Phases:
    """Shares of a step, which sum to 1."""

    forward: float
    backward: float
    optimizer: float


@dataclass(frozen=True)
class Link:
    """The way from the host's memory to the device's."""

    generation: Figure
    """PCIe generation."""
    width: Figure
    """Lanes."""
    pinned_gb_per_s: Figure
    pageable_gb_per_s: Figure
    latency_us: Figure
    """Fixed cost of one copy."""


@dataclass(frozen=True)
class Accelerator:
    """A real accelerator in numbers."""

    name: str
    title: str
    memory_bytes: Figure
    memory_gb_per_s: Figure
    peak_fp32_tflops: Figure
    peak_tf32_tflops: Figure | None
    """Dense. `None` where there are no tensor cores for it."""
    link: Link
    kernel_us: Figure
    """What one kernel costs in a row of kernels that do next to nothing."""
    forward_share: Figure
    """Forward as a share of forward and backward."""
    nets: Mapping[str, NetOnAccelerator]
    common: Nets

    def net(self, net: str) -> NetOnAccelerator:
        """
        Raises:
            WhyidleError: no throughput of this net is known here.
        """
        if net not in self.nets:
            raise WhyidleError(
                f"the profile of {self.name} has no net {net!r}. It has: {', '.join(sorted(self.nets))}."
            )
        return self.nets[net]

    def step_ns(self, net: str, batch_size: int) -> int:
        """Device time of one training step (forward, backward, optimizer) without any waiting.

        Passes through every known batch size, is straight between them, and never falls as the batch grows.
        Below the smallest it is the line through the two smallest, which at batch 0 is no less than
        `launch_floor_ns`; with one known batch size it is the line from `launch_floor_ns` at batch 0 through
        it. Beyond the largest it goes on straight.

        Raises:
            WhyidleError: unknown net, or a batch size below 1.
        """
        _require_batch(batch_size)
        sizes, times = self._knots(self.net(net))
        right = min(max(bisect_left(sizes, batch_size), 1), len(sizes) - 1)
        left = right - 1
        slope = (times[right] - times[left]) / (sizes[right] - sizes[left])
        return round(times[left] + slope * (batch_size - sizes[left]))

    def launch_floor_ns(self, net: str) -> int:
        """A step in which every kernel does next to nothing."""
        return round(self.kernels(net) * self.kernel_us.value * 1e3)

    def phases(self, net: str, batch_size: int) -> Phases:
        """How a step divides.

        The optimizer is bound by memory traffic and does not grow with the batch; the rest divides as
        `forward_share` says.

        Raises:
            WhyidleError: unknown net, or a batch size below 1.
        """
        step_ns = self.step_ns(net, batch_size)
        traffic = UPDATE_PASSES * FLOAT32_BYTES * self.net(net).net.parameters.value
        optimizer = min(traffic / self.memory_gb_per_s.value / step_ns, 1.0)
        forward = (1.0 - optimizer) * self.forward_share.value
        return Phases(forward, 1.0 - optimizer - forward, optimizer)

    def kernels(self, net: str) -> int:
        """Kernels one step launches.

        Raises:
            WhyidleError: unknown net.
        """
        return self.net(net).net.kernels.total

    def memory_bytes_needed(self, net: str, batch_size: int) -> int:
        """Device memory of training at a batch size: context, workspace, weights with gradient and momentum,
        and the activations kept for the backward pass.

        Raises:
            WhyidleError: unknown net, or a batch size below 1.
        """
        _require_batch(batch_size)
        what, common = self.net(net).net, self.common
        fixed = common.context_bytes.value + common.workspace_bytes.value
        weights = common.bytes_per_parameter.value * what.parameters.value
        return round(fixed + weights + batch_size * what.activation_bytes.value)

    def provenance(self, net: str) -> str:
        """Where the throughput of a net is from, on one line: `published: …`, `derived: …`, `recorded: …`.

        Raises:
            WhyidleError: unknown net.
        """
        return str(self.net(net).origin)

    def spec(self) -> EmulatedSpec:
        """The numbers an emulated device takes."""
        from ..emulated import EmulatedSpec

        return EmulatedSpec(
            name=self.name,
            title=self.title,
            memory_bytes=int(self.memory_bytes.value),
            pinned_bytes_per_s=self.link.pinned_gb_per_s.value * 1e9,
            pageable_bytes_per_s=self.link.pageable_gb_per_s.value * 1e9,
            copy_latency_ns=round(self.link.latency_us.value * 1e3),
        )

    def _knots(self, known: NetOnAccelerator) -> tuple[list[float], list[float]]:
        """Batch sizes from 0 and the step time in ns at each; straight in between."""
        sizes = known.batch_sizes
        times = [size / rate * 1e9 for size, rate in zip(sizes, known.samples_per_s, strict=True)]
        start = float(self.launch_floor_ns(known.net.name))
        if len(sizes) > 1:
            slope = (times[1] - times[0]) / (sizes[1] - sizes[0])
            start = max(start, times[0] - slope * sizes[0])
        return [0.0, *sizes], [min(start, times[0]), *times]


def _require_batch(batch_size: int) -> None:
    if batch_size < 1:
        raise WhyidleError(f"batch size {batch_size}: must be at least 1.")
