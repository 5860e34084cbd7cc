"""What the live view shows of a run at one moment. `None` and empty: not measured (yet)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..causes.finding import Finding
from ..run.resource_usage import WorkerDeath

Series = tuple[float, ...]
"""Values at equal distances of time (`Snapshot.history_s`), oldest first; NaN where nothing was measured."""
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
    memory_pct: Series = ()
    """Share of the device's memory in use, whoever uses it."""
    power_w: Series = ()
    power_limit_w: float | None = None
    """The cap that its driver holds it to."""
    pcie_rx_bytes_s: Series = ()
    """From host to device."""
    pcie_tx_bytes_s: Series = ()
    """From device to host."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_generation: int | None = None
    """Generation that device and slot are capable of."""
    pcie_max_width: int | None = None
    """Lanes that device and slot are capable of."""
    processes: int | None = None
    held_down: str | None = None
    """Why its clocks are held down just now (`power`, `heat`, …); `None`: they are not, or it is not known."""


@dataclass(frozen=True)
class WorkerView:
    """One maker of batches, over the last seconds."""

    number: int
    busy_pct: float | None = None
    """Share of the time in which it prepared batches."""
    reading_pct: float | None = None
    """Part of `busy_pct` that it waited in reads."""
    queued_pct: float | None = None
    """Part of `busy_pct` that it was ready to run and waited for a CPU."""
    batch_ms: float | None = None
    """Time of preparing one batch, the median."""
    quiet_s: float | None = None
    """Time since its last batch was finished."""
    history: Series = ()
    """`busy_pct`, second by second."""


@dataclass(frozen=True)
class CodeView:
    """The line of code at which most of the last 20 s were spent."""

    whose: str
    """`training`: the thread that trains; `workers`: all of them together."""
    share_pct: float
    """Of their time; of workers also of that in which they wait for an order."""
    looks: int
    """Looks that saw it."""
    file: str
    line: int
    function: str
    code: str
    """The line of source; empty where it is not kept."""
    calls: str
    """The innermost function of a library that it was in, most often."""


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
    """The machine and the job's share of it, `None` where there is no job. Rates are of the last seconds."""

    tree_cpus: float | None = None
    """CPUs that the job's processes keep busy."""
    cpu_budget: float | None = None
    cpus: Series = ()
    """History of `tree_cpus`."""
    machine_cpus: int | None = None
    machine_busy_pct: float | None = None
    machine_busy: Series = ()
    """History of `machine_busy_pct`."""
    steal_pct: float | None = None
    iowait_pct: float | None = None
    read_bytes_s: float | None = None
    """What the job's read calls got, from cache or storage."""
    storage_bytes_s: float | None = None
    """What storage gave for them. Another counter: what is read ahead and what mapped files page in count here only."""
    memory_used_bytes: int | None = None
    """Of the job's processes."""
    memory_available_bytes: int | None = None
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    throttled_pct: float | None = None
    """Share of the time in which a CPU quota held the job back."""


@dataclass(frozen=True)
class Snapshot:
    """The run, or one of its training processes where it has several."""

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
    left_s: float | None = None
    quiet_s: float | None = None
    """Since the last step ended; `None` before the first, and once the run has ended."""
    epoch: int | None = None
    epoch_done: int | None = None
    """Steps of this epoch so far."""
    epoch_steps: int | None = None
    """Steps that it has: planned, or as many as the epoch before had."""
    epoch_estimated: bool = False
    """Whether they are those of the epoch before."""
    epoch_left_s: float | None = None
    batch_size: int | None = None
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    rates: tuple[float, ...] = ()
    """Samples/s of successive seconds, oldest first, up to the last step's end; 0 where none were trained on."""
    trend_pct: float | None = None
    """Samples/s of the last ten seconds against the thirty before, in percent; `None`: not recorded for so long."""
    shares: dict[str, float] = field(default_factory=dict)
    queue_ready: float | None = None
    queue_capacity: int | None = None
    workers: int | None = None
    """Processes or threads that prepare batches; 0: the training process makes them itself."""
    worker_busy_pct: float | None = None
    verdict: Finding | None = None
    verdict_samples_per_s: float | None = None
    """Of the stretch that the verdict is about: what its predictions are to be compared with."""
    verdict_of_whole_run: bool = False
    """Of a run that has ended: the verdict is the report's, and not of the last seconds."""
    rank: int = 0
    """Whose figures these are, of a training of several ranks."""
    ranks: int = 1
    devices: tuple[DeviceView, ...] = ()
    makers: tuple[WorkerView, ...] = ()
    made_in_training: bool | None = None
    """Batches are made in the training process itself, when it asks for them; there are no makers then."""
    host: HostView = HostView()
    code: tuple[CodeView, ...] = ()
    """Empty where stacks are not looked at, or no line was seen often enough."""
    rank_views: tuple[RankView, ...] = ()
    """All ranks that were recorded here, by number; empty of a training with a single one."""
    history_s: float = 1.0
    """Seconds between two values of a series."""
    recent_s: float | None = None
    """How long the stretch is that shares, rates and verdict are about."""
    verdict_since_s: float | None = None
    """How long the verdict has named the same cause, as far back as was looked; `None`: there is no verdict."""
