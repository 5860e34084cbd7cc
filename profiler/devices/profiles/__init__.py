"""Profiles of accelerators: what an emulated device must know of a real one, and where each number is from.

The structures are those of the TOML files, of which `load(name)` reads one: those that come with whyidle, and a user's
own. Reading is strict, since a typo in a profile would silently become a wrong device: unknown keys and missing origins
are errors that name file and key. `docs/accelerators.md` has all numbers with their doubts.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from ...errors import WhyidleError

if TYPE_CHECKING:
    from ..emulated import EmulatedSpec

UPDATE_PASSES = 5
"""SGD with momentum reads weight, gradient and momentum and writes weight and momentum."""
FLOAT32_BYTES = 4
NETS_FILE = "nets.toml"
T = TypeVar("T")
Line = Annotated[str, Meta(pattern=r"^[^\n]*\S[^\n]*\Z")]
Positive = Annotated[float, Meta(gt=0, lt=1e300)]
Count = Annotated[int, Meta(ge=0)]


class ProfileTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a profile."""


class Sourced(ProfileTable, frozen=True, kw_only=True):
    """What states its origin: a public source, a computation from such numbers, or the user's measurement."""

    source: Line | None = None
    derived: Line | None = None
    recorded: Line | None = None
    doubt: Line | None = None

    def __post_init__(self) -> None:
        if sum(text is not None for text in (self.source, self.derived, self.recorded)) != 1:
            raise ValueError("name its origin with exactly one of source, derived, recorded")

    @property
    def kind(self) -> str:
        """`published`, `derived` or `recorded`."""
        return "published" if self.source else "derived" if self.derived else "recorded"

    @property
    def origin(self) -> str:
        """Where it is from, on one line: `published: …`, `derived: …`, `recorded: …`."""
        return f"{self.kind}: {self.source or self.derived or self.recorded}"


class Figure(Sourced, frozen=True, kw_only=True):
    """One number of a profile. The unit is in the name of what holds it."""

    value: Positive


class Kernels(Sourced, frozen=True, kw_only=True):
    """Kernels one training step launches."""

    forward: Annotated[int, Meta(ge=1)]
    backward: Count
    optimizer: Count

    @property
    def total(self) -> int:
        return self.forward + self.backward + self.optimizer


class NetProfile(ProfileTable, frozen=True, kw_only=True):
    """What belongs to a net whatever it runs on. Counts are per sample at its input size, in fp32."""

    name: str
    title: Line
    input_size: Annotated[int, Meta(ge=1)]
    """Side of the square input, pixels."""
    forward_macs: Figure
    parameters: Figure
    activation_bytes: Figure
    """Kept for the backward pass, per sample."""
    kernels: Kernels


class Common(ProfileTable, frozen=True, kw_only=True):
    """What a training process needs on the device beside its net."""

    context_bytes: Figure
    workspace_bytes: Figure
    bytes_per_parameter: Figure
    """Weight, gradient and momentum."""


class Nets(ProfileTable, frozen=True, kw_only=True):
    """All nets known, and what they have in common."""

    nets: dict[str, NetProfile]
    common: Common


class Throughput(Sourced, frozen=True, kw_only=True):
    """Throughput of training at one or several batch sizes."""

    batch_sizes: tuple[Positive, ...]
    """Ascending. Not whole where derived from another net: 16 images of VGG-16 are the work of 7.89 of SSD300."""
    samples_per_s: tuple[Positive, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes, rates = self.batch_sizes, self.samples_per_s
        if not sizes or len(sizes) != len(rates):
            raise ValueError(f"{len(rates)} values of samples_per_s for {len(sizes)} batch sizes")
        steps = [size / rate for size, rate in zip(sizes, rates, strict=True)]
        if list(sizes) != sorted(set(sizes)) or steps != sorted(steps):
            raise ValueError("batch sizes must ascend, and a larger batch cannot take less time")


class NetOnAccelerator(Throughput, frozen=True, kw_only=True):
    """Throughput of training one net."""

    net: NetProfile
    precision: Line
    based_on: Line | Throughput | None = field(name="from", default=None)
    """What a derived throughput is computed from: `ACCELERATOR/NET`, or a figure given in place."""
    factors: tuple[dict[str, Any], ...] = ()
    """What that is multiplied by. That it gives what is stated is tested for the profiles that come with whyidle."""


class Memory(ProfileTable, frozen=True, kw_only=True):
    bytes: Figure
    gb_per_s: Figure


class Peak(ProfileTable, frozen=True, kw_only=True):
    """Arithmetic at most."""

    fp32_tflops: Figure
    tf32_tflops: Figure | None = None
    """Dense. `None` where there are no tensor cores for it."""


class Link(ProfileTable, frozen=True, kw_only=True):
    """The way from the host's memory to the device's."""

    generation: Figure
    """PCIe generation."""
    width: Figure
    """Lanes."""
    pinned_gb_per_s: Figure
    pageable_gb_per_s: Figure
    latency_us: Figure
    """Fixed cost of one copy."""


class Phases(ProfileTable, frozen=True):
    """Shares of a step, which sum to 1."""

    forward: float
    backward: float
    optimizer: float


class Accelerator(ProfileTable, frozen=True, kw_only=True):
    """A real accelerator in numbers."""

    name: Line
    title: Line
    memory: Memory
    peak: Peak
    link: Link
    kernel_us: Figure
    """What one kernel costs in a row of kernels that do next to nothing."""
    forward_share: Figure
    """Forward as a share of forward and backward."""
    nets: dict[str, NetOnAccelerator]
    common: Common

    def __post_init__(self) -> None:
        if self.forward_share.value >= 1:
            raise ValueError("forward_share.value: expected a share below 1")

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
        known = self.net(net)
        sizes = (0.0, *known.batch_sizes)
        times = [size / rate * 1e9 for size, rate in zip(known.batch_sizes, known.samples_per_s, strict=True)]
        start = float(self.launch_floor_ns(net))
        if len(times) > 1:
            start = max(start, times[0] - (times[1] - times[0]) / (sizes[2] - sizes[1]) * sizes[1])
        times.insert(0, min(start, times[0]))
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
        optimizer = min(traffic / self.memory.gb_per_s.value / step_ns, 1.0)
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

    def spec(self) -> EmulatedSpec:
        """The numbers an emulated device takes."""
        from ..emulated import EmulatedSpec

        return EmulatedSpec(
            name=self.name,
            title=self.title,
            memory_bytes=int(self.memory.bytes.value),
            pinned_bytes_per_s=self.link.pinned_gb_per_s.value * 1e9,
            pageable_bytes_per_s=self.link.pageable_gb_per_s.value * 1e9,
            copy_latency_ns=round(self.link.latency_us.value * 1e3),
        )


def _require_batch(batch_size: int) -> None:
    if batch_size < 1:
        raise WhyidleError(f"batch size {batch_size}: must be at least 1.")


def names() -> list[str]:
    """The accelerators that come with whyidle."""
    files = (file.name for file in resources.files(__package__).iterdir())
    return sorted(file.removesuffix(".toml") for file in files if file.endswith(".toml") and file != NETS_FILE)


def load(name_or_path: str) -> Accelerator:
    """The profile of an accelerator, by its name or by the path of a user's own TOML file.

    Raises:
        WhyidleError: no such profile, or a file that says something else than a profile.
    """
    if name_or_path in names():
        return _builtin(name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        raise WhyidleError(
            f"unknown accelerator {name_or_path!r}. Choose one of {', '.join(names())}, "
            "or give the path of a profile (.toml)."
        )
    try:
        return _accelerator(tomllib.loads(path.read_text(encoding="utf-8")), name_or_path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise WhyidleError(f"cannot read the accelerator profile {name_or_path}: {why}.") from error
    except tomllib.TOMLDecodeError as error:
        raise WhyidleError(f"accelerator profile {name_or_path} is not TOML: {error}.") from error


@cache
def nets() -> Nets:
    """What belongs to the nets, whatever they run on."""
    table = _shipped(NETS_FILE)
    parts = {name: part | {"name": name} for name, part in table["nets"].items()}
    return _as(Nets, table | {"nets": parts}, NETS_FILE)


@cache
def _builtin(name: str) -> Accelerator:
    return _accelerator(_shipped(f"{name}.toml"), f"{name}.toml")


def _shipped(file: str) -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / file).read_text(encoding="utf-8"))


def _accelerator(table: dict[str, Any], file: str) -> Accelerator:
    known = nets()
    parts = _as(dict[str, dict[str, Any]], table.get("nets", {}), file, "nets")
    for net in parts:
        if net not in known.nets:
            raise _wrong(file, f"nets.{net}", f"unknown net; the nets are {', '.join(known.nets)}")
    on = {n: _as(NetOnAccelerator, {"net": known.nets[n]} | part, file, f"nets.{n}") for n, part in parts.items()}
    return _as(Accelerator, {"common": known.common} | table | {"nets": on}, file)


def _as(kind: type[T], table: Any, file: str, key: str = "") -> T:
    """Read one table of a profile, strictly.

    Raises:
        WhyidleError: it says something else; with file and key.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        fact, _, at = str(error).partition(" - at `$")
        raise _wrong(file, f"{key}{at.rstrip('`')}".lstrip("."), fact) from error


def _wrong(file: str, key: str, fact: str) -> WhyidleError:
    return WhyidleError(f"accelerator profile {file}: {f'{key}: ' if key else ''}{fact} (see docs/accelerators.md).")
