"""What the live view shows of a run at one moment. `None` and empty: not measured (yet)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..causes.finding import Finding
from ..run.resource_usage import WorkerDeath
from ..where.places import Where

Series = tuple[float, ...]
"""Means of successive seconds, oldest first; NaN where nothing was measured."""
UNDER_WAY = ("starting", "running", "watching")
"""States of a run that has not ended."""


@dataclass(frozen=True)
class DeviceView:
    """One accelerator, as the sampler sees it."""

    number: int
    name: str
    emulated: bool = False
    busy_pct: Series = ()
    """Share of the time in which any kernel ran (NVML's utilisation; of an emulated device, computed the same way)."""
    sm_active_pct: Series = ()
    """Share of the multiprocessors that had work (GPM)."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """The cap that its driver holds it to."""
    pcie_rx_bytes_s: float | None = None
    """From host to device."""
    pcie_tx_bytes_s: float | None = None
    """From device to host."""
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    temperature_c: int | None = None
    held_down: str | None = None
    """Why its clocks are held down (`power cap`, `heat`, …); `None` if they are not, or unknown."""


@dataclass(frozen=True)
class WorkerView:
    """One worker, or pool of threads, with the figures that a report has of all workers."""

    number: int
    busy_pct: float | None = None
    """Share of the time in which it prepared batches."""
    reading_pct: float | None = None
    """Part of that time in which it waited in reads."""
    queued_pct: float | None = None
    """Part of that time in which it was ready to run and waited for a CPU."""
    batch_ms: float | None = None
    """Time of preparing one batch, the mean."""
    quiet_s: float | None = None
    """Time since its last batch was finished."""


@dataclass(frozen=True)
class RankView:
    """One training process of several."""

    rank: int
    host: str
    steps: int
    samples_per_s: float | None = None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HostView:
    """The machine, and the job's share of it; rates are of the last seconds."""

    tree_cpus: float | None = None
    """CPUs that the job's processes keep busy."""
    cpu_budget: float | None = None
    """CPUs that the job may use."""
    machine_busy_pct: float | None = None
    steal_pct: float | None = None
    iowait_pct: float | None = None
    read_bytes_s: float | None = None
    """What the job's read calls got, from cache or storage."""
    storage_bytes_s: float | None = None
    """What storage gave; another counter, which includes read-ahead and pages of mapped files."""
    memory_used_bytes: int | None = None
    """Of the job's processes."""
    memory_available_bytes: int | None = None
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    throttled_pct: float | None = None
    """Share of the time in which a CPU quota held the job back."""


@dataclass(frozen=True)
class Snapshot:
    """The run, with the figures and the verdict of its last seconds; of a job, of all ranks together."""

    title: str
    device: str
    state: str
    """`starting`, `running`, `watching` (no steps will come: only the sampler writes), or how the run ended: `ok`,
    `oom`, `failed`, `stopped`, `lost` (killed)."""
    deaths: tuple[WorkerDeath, ...] = ()
    """Workers of loaders that died, of all processes."""
    stand_in: str | None = None
    """What generated data stand for; `None` of real ones, and of a run that does not say."""
    steps: int = 0
    planned_steps: int | None = None
    elapsed_s: float | None = None
    """From the first step on."""
    left_s: float | None = None
    quiet_s: float | None = None
    """Since the last step ended; `None` before the first, and once the run has ended."""
    epoch: int | None = None
    """From 0."""
    batch_size: int | None = None
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    rates: Series = ()
    """Samples/s of successive seconds of the leading rank, up to its last step."""
    shares: dict[str, float] = field(default_factory=dict)
    """Parts of the wall time, 0..1."""
    queue_ready: float | None = None
    queue_capacity: int | None = None
    workers: int | None = None
    """Processes or threads that prepare batches; 0: the training process makes them itself."""
    worker_busy_pct: float | None = None
    verdict: Finding | None = None
    verdict_since_s: float | None = None
    """How long the verdict has named its cause, as far as was watched; `None` if it names none."""
    rank: int = 0
    """The rank that leads a job: whose queue and workers are shown."""
    ranks: int = 1
    rank_views: tuple[RankView, ...] = ()
    """All ranks that were recorded here, by number; empty of a training with a single one."""
    devices: tuple[DeviceView, ...] = ()
    makers: tuple[WorkerView, ...] = ()
    made_in_training: bool | None = None
    """Whether the training process prepares batches itself; there are no makers then."""
    host: HostView = HostView()
    code: tuple[Where, ...] = ()
    """The lines with most stack samples of the last 30 s, of all `workers` and of the `training` thread, as
    `time` says; shares are of all samples, also of idle workers. Empty where stacks are not sampled, or no
    line was seen often enough."""
