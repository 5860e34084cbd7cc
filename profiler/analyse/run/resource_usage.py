"""What the sampler saw of the machine: use of devices and CPUs in the window, memory of workers that grows, workers
that died, and what a report cannot see or trust because of the sampler, the host, or other programs.

The ranks of a job on one host have the same sampler, and most of them the same of its looks: what these tell is worked
out once for ranks that are judged one after the other.

A worker that keeps what it makes has more resident memory from batch to batch. One that goes through Python objects
that it shares with the training since it was forked changes their reference counts: each page of them is copied, which
leaves its resident memory as it was, and makes more of that private.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import wraps
from math import isnan
from typing import Any, TypeVar

import numpy as np

from ...record.reader import Records, measured
from ...record.schema import NAN, NOT_MEASURED, EventKind, MemoryLimitOf
from ..shares import MOSTLY
from ..where.looks import ProcessLooks
from .window import Lengths, Mask, Stamps, Window, known, mean_of, measured_or

LATE_NS = 100_000_000
"""A sample this much later than planned is called late: half of the default period."""
BUDGET_USED = 0.80
"""Share of the CPUs it may use that a job keeps busy, from which none is left over for it."""
LEAST_FOREIGN_CPUS = 0.3
"""CPUs that other programs use, from which they are mentioned: less is housekeeping."""
LEAST_UNSEEN_S, LEAST_UNSEEN_SHARE = 2.0, 0.02
"""Seconds at an end of the window without a sample, and share of it, from which that is said."""
LEAST_DEVICE_UNSEEN_S = 3.0
"""The same of the device, though the host was sampled: states of a GPU come once a second."""
OWN_BEYOND_BYTES = 2_000_000_000
"""Device memory that a training takes beside its allocator, at most: context, kernels, buffers."""
LEAST_LOOKED_AT, MOST_FAILED_LOOKS = 50, 0.2
"""Stack samples in the window, and share of them that failed, from which both that is said."""
THIRDS = 3
LEAST_GROWN_BYTES = 32 << 20
"""Over the run: less is what allocators take and keep."""
LEAST_PRIVATE_LOOKS = 4
"""Looks at private memory, which is seldom asked for, from which copies are told."""
FULL_BYTES = 256 << 20
"""Memory that a machine could still give, below which it has none left: it swaps, or kills."""
FULL_LIMIT = 0.03
"""Of a limit of a control group: less of it left is none, where that is less than `FULL_BYTES`."""
SWAPPED_BYTES = 32 << 20
"""Rise of the memory that lies in swap from which the machine swaps."""
OWNERS = {
    MemoryLimitOf.CONTAINER: "the container",
    MemoryLimitOf.JOB: "the batch system's job",
    MemoryLimitOf.SLICE: "the systemd slice",
    MemoryLimitOf.GROUP: "the control group",
}
LOOKED_AT_NS = 10_000_000_000
"""How long before a death looks at the host may tell what it died of."""
SHM_FULL = 0.9
"""Share of /dev/shm in use from which it may have been full for a batch that did not fit."""
SMALL_SHM_BYTES = 1 << 30
_ALONE = "set `num_workers=0`: the training then runs the same code and names the line (`python -X faulthandler`)"
_MEMORY = (
    "use fewer workers, a smaller `prefetch_factor` or batch, or workers that keep less (input.memory); or get more "
    "memory for the job: `docker run --memory`, Kubernetes `resources.limits.memory`, `--mem` of `sbatch`"
)
_SHM = (
    "enlarge /dev/shm: `docker run --shm-size=8g` (or `--ipc=host`), in Kubernetes an emptyDir of medium Memory; or "
    "use fewer workers, or a smaller `prefetch_factor` or batch"
)

Found = TypeVar("Found")
_last_made: dict[tuple[str, np.dtype[np.void]], tuple[Records, tuple[Mask, ...], Any]] = {}
"""By function and kind of looks: those that it last got, with which of them, and what it made of them."""


def once_per_looks(make: Callable[..., Found]) -> Callable[..., Found]:
    """Give again what a function of looks gave last for the very same; many looks are not kept."""

    @wraps(make)
    def told(looks: Records, *which: Mask) -> Found:
        key = make.__qualname__, looks.dtype
        last = _last_made.get(key)
        if last is None or last[0] is not looks or not np.array_equal(last[1], which):
            last = looks, which, make(looks, *which)
            _last_made.pop(key, None)
            if isinstance(looks, np.ndarray):
                _last_made[key] = last
        found: Found = last[2]
        return found

    return told


@once_per_looks
def _selected(looks: Records, which: Mask) -> Records:
    found: Records = looks[which]
    return found


def inside(looks: Records, window: Window) -> Records:
    """Those that were made within the window."""
    return _selected(looks, (looks["t_ns"] >= window.begin_ns) & (looks["t_ns"] <= window.end_ns))


@once_per_looks
def by_device(looks: Records) -> list[Records]:
    """The looks at each device, by its number."""
    return [looks[looks["device"] == number] for number in np.unique(looks["device"])]


@dataclass(frozen=True)
class Sampled:
    """Means over the window; NaN: not measured. The worst of several devices if said."""

    utilisation_pct: float = NAN
    """NVML's: share of time in which any kernel ran; of an emulated device computed alike."""
    utilisation_window_ms: float = NAN
    """Length of a window behind `utilisation_pct`; NaN: the driver does not say (1/6 to 1 s)."""
    zero_windows_pct: float = NAN
    """Utilisation windows that read 0 %."""
    sm_active_pct: float = NAN
    """Multiprocessors with work (GPM)."""
    sm_active_window_ms: float = NAN
    """Length of one of the windows behind `sm_active_pct`."""
    memory_peak_bytes: float = NAN
    """Most device memory that was in use, whoever used it."""
    steal_pct: float = NAN
    """Share of the machine's CPU time that the hypervisor took."""
    machine_busy_pct: float = NAN
    """Share of the machine's CPU time in use, whoever used it."""
    tree_cpus: float = NAN
    """CPUs the training's process tree kept busy on average."""
    cpu_budget: float = NAN
    """CPUs the job may use (affinity and quota)."""
    late_samples_pct: float = NAN
    """Share of the host's samples that came later than planned by more than `LATE_NS`."""
    unseen_begin_s: float = NAN
    """From the beginning of the window to the first sample of the host; NaN without one."""
    unseen_end_s: float = NAN
    """From the last sample of the host to the end of the window; NaN without one."""
    device_unseen_end_s: float = NAN
    """From the last sample of the device whose samples end first to the end of the window; NaN without one."""
    sampler_cpus: float = NAN
    """CPUs the sampler itself kept busy."""
    throttled_s: float = NAN
    """Time in which a CPU quota held the job back, summed over CPUs."""
    power_capped_pct: float = NAN
    """Share of the time in which the power cap held clocks down; of the worst device."""
    thermal_pct: float = NAN
    """Share of the time in which temperature held clocks down; of the worst device."""
    gpu_processes: float = NAN
    """Most processes that had a context on one device at a time, the training among them."""
    others_least_bytes: float = NAN
    """Device memory that other processes hold at least: that of all but the largest. Process ids are not compared: a
    container's differ from the host's."""
    beyond_training_bytes: float = NAN
    """Device memory in use beyond the training's allocator: that of others, its own context and libraries. NaN also
    with several devices: the steps of a rank do not say which is theirs."""

    def foreign_cpus(self, machine_cpus: int | None, beside: float = 0.0) -> float:
        """CPUs that other programs kept busy; NaN: not measured. `machine_cpus`: all of the machine; `beside`: CPUs
        that are neither theirs nor of the training's process tree."""
        used = self.machine_busy_pct / 100 * (machine_cpus or NAN)
        return max(used - self.tree_cpus - beside, 0.0)


def sampled(window: Window, device: Records, host: Records) -> Sampled:
    """Summarise the samples taken inside the window."""
    device, host = inside(device, window), inside(host, window)
    each = by_device(device)
    # What is in use beyond the training's own at that time.
    steps = window.all_steps[window.all_steps["memory_bytes"] != NOT_MEASURED]
    told = device[device["memory_used_bytes"] != NOT_MEASURED]
    place = np.searchsorted(steps["step_end_ns"], told["t_ns"], side="right") - 1
    beyond = (told["memory_used_bytes"] - steps["memory_bytes"][place])[place >= 0] if len(steps) else place[:0]
    # From the last look at each to the end of the window.
    late = [(window.end_ns - int(looks["t_ns"].max())) / 1e9 for looks in (host, *each) if len(looks)]
    return Sampled(
        **_of_devices(device),
        **_of_host(host),
        unseen_begin_s=(int(host["t_ns"].min()) - window.begin_ns) / 1e9 if len(host) else NAN,
        unseen_end_s=late[0] if len(host) else NAN,
        device_unseen_end_s=max(late[len(host) > 0 :], default=NAN),
        beyond_training_bytes=max(0, int(np.median(beyond))) if len(each) == 1 and len(beyond) else NAN,
    )


@once_per_looks
def _of_devices(device: Records) -> dict[str, Any]:
    """What looks at devices say by themselves."""
    # A ring of windows and the slower look at other values share the file; weigh each window by its length.
    utilisation, utilisation_window_ms = _weighted(device, "utilisation_pct")
    sm_active, sm_active_window_ms = _weighted(device, "sm_active_pct")
    memory, processes, busy = (known(device, name) for name in ("memory_used_bytes", "processes", "utilisation_pct"))
    # Whichever process is the training, the others hold at least what all but the largest do.
    told = device[(device["processes_bytes"] != NOT_MEASURED) & (device["largest_process_bytes"] > 0)]
    others = told["processes_bytes"] - told["largest_process_bytes"]
    return {
        "utilisation_pct": utilisation,
        "utilisation_window_ms": utilisation_window_ms,
        "zero_windows_pct": 100 * float(np.mean(busy == 0)) if len(busy) else NAN,
        "sm_active_pct": sm_active,
        "sm_active_window_ms": sm_active_window_ms,
        "memory_peak_bytes": int(memory.max()) if len(memory) else NAN,
        "power_capped_pct": _worst_pct(device, "power_capped_ns"),
        "thermal_pct": _worst_pct(device, "thermal_ns"),
        "gpu_processes": int(processes.max()) if len(processes) else NAN,
        "others_least_bytes": int(others.max()) if len(told) else NAN,
    }


@once_per_looks
def _of_host(host: Records) -> dict[str, Any]:
    """What looks at the host say by themselves."""
    late, cpus = known(host, "late_ns"), known(host, "cpus")
    return {
        "steal_pct": mean_of(host, "steal_pct"),
        "machine_busy_pct": mean_of(host, "machine_busy_pct"),
        "tree_cpus": rate_of(host, "tree_cpu_ns"),
        "cpu_budget": float(cpus[-1]) / 1000 if len(cpus) else NAN,
        "late_samples_pct": 100 * float(np.mean(late > LATE_NS)) if len(late) else NAN,
        "sampler_cpus": rate_of(host, "sampler_cpu_ns"),
        "throttled_s": _rise(host, "throttled_us") / 1e6,
    }


def _weighted(device: Records, name: str) -> tuple[float, float]:
    """(mean of a share over its windows, weighed by length if known; median length in ms)"""
    told = device[~np.isnan(device[name])]
    windowed = told[told["window_ns"] > 0]
    if len(windowed) == 0:
        return mean_of(told, name), NAN
    length = windowed["window_ns"].astype(np.float64)
    return float(np.average(windowed[name], weights=length)), float(np.median(length)) / 1e6


def _rise(records: Records, name: str) -> float:
    """How much a cumulative counter rose over the window; NaN with fewer than two readings."""
    values = known(records, name)
    return float(values[-1] - values[0]) if len(values) > 1 else NAN


def rate_of(records: Records, name: str) -> float:
    """How fast a cumulative counter rose between its first and its last reading, in its unit a ns; NaN with fewer than
    two readings."""
    read = records["t_ns"][records[name] != NOT_MEASURED]
    return _rise(records, name) / int(read[-1] - read[0]) if len(read) > 1 and read[-1] > read[0] else NAN


def _worst_pct(device: Records, name: str) -> float:
    """A counter of ns over the time between first and last reading, %, of the worst device; NaN: not measured."""
    rates = (rate_of(looks, name) for looks in by_device(device))
    # A counter that falls was reset by a new driver or a reset GPU: what it counted before is not known.
    return max((min(100.0, 100 * rate) for rate in rates if rate >= 0), default=NAN)


def quality_notes(
    sampled: Sampled,
    window: Window,
    device_kind: str,
    foreign_cpus: float,
    own_processes: int = 1,
    found: Collection[str | None] = (),
) -> tuple[str, ...]:
    """Say what samples miss, and who else is on the machine and on the GPU.

    `device_kind`: `cpu`, `cuda` or `emulated`; `foreign_cpus`: kept busy by other programs; `own_processes`: of this
    training with a context on one GPU; `found`: causes that the report names already.
    """
    no_host, no_device = isnan(sampled.unseen_end_s), isnan(sampled.device_unseen_end_s)
    if no_host and no_device:
        return ("The sampler recorded nothing in this window: utilisation and CPU figures are missing.",)
    seen, wall_s = sampled, window.wall_ns / 1e9
    least_s = max(LEAST_UNSEEN_S, LEAST_UNSEEN_SHARE * wall_s)
    notes = []

    def say(value: float, least: float, text: str) -> None:
        """Note a figure that is known and not below what is worth a word."""
        if value >= least:
            notes.append(text.format(value))

    whole = f"of the window of {wall_s:.0f} s"
    say(no_host, 1, "The sampler recorded nothing of the host in this window: CPU figures are missing.")
    begins = f"came {{:.0f}} s into the {wall_s:.0f} s of the window: its means leave out the time before it."
    say(seen.unseen_begin_s, least_s, f"The sampler's first sample {begins}")
    ends = f"came {{:.0f}} s before the end {whole}: its means leave out the time after it."
    say(seen.unseen_end_s, least_s, f"The sampler's last sample {ends}")
    if device_kind != "cpu":
        nothing = "recorded no accelerator in this window: utilisation and device memory are missing."
        say(no_device, 1, f"The sampler {nothing}")
        ends = f"ended {{:.0f}} s before the end {whole}: utilisation is the mean of the part before."
        host_ends_s = measured_or(seen.unseen_end_s)
        say(
            seen.device_unseen_end_s,
            host_ends_s + max(LEAST_DEVICE_UNSEEN_S, least_s),
            f"Samples of the accelerator {ends}",
        )
    late = "of the samples came more than 0.1 s late: the host was too busy to sample on time."
    say(seen.late_samples_pct, 5, f"{{:.0f}} % {late}")
    say(seen.steal_pct, 5, "The hypervisor took {:.0f} % of the CPU: timings vary from run to run.")
    say(foreign_cpus, LEAST_FOREIGN_CPUS, "Other programs on this machine used {:.1f} CPUs meanwhile.")
    quota = "" if isnan(seen.cpu_budget) else f" of {seen.cpu_budget:.3g} CPUs"
    stopped = "stopped the job for {:.1f} s, summed over CPUs: all waits include that time."
    say(seen.throttled_s, 0.01 * wall_s, f"The CPU quota{quota} {stopped}")
    say(100 * seen.sampler_cpus, 5, "The sampler itself used {:.0f} % of a CPU.")
    if device_kind == "cuda" and "device.contended" not in found:
        notes += _others(seen, own_processes)
    if device_kind == "cuda" and "device.throttled" not in found:
        held = "held the GPU's clocks down for {:.0f} % of the time: computing took longer."
        say(seen.thermal_pct, 1, f"Temperature {held}")
        # A GPU under full load touches its power cap now and then.
        say(seen.power_capped_pct, 10, f"The power cap {held}")
    return tuple(notes)


def _others(seen: Sampled, own_processes: int) -> Iterator[str]:
    """What other processes have on the GPU, if anything shows."""
    others = seen.gpu_processes - own_processes
    least, beyond = seen.others_least_bytes, seen.beyond_training_bytes
    if others > 0:
        who = "1 other process" if others == 1 else f"{others} other processes"
        # They hold at least what all processes but the largest do.
        held = "" if isnan(least) else f", with {least / 1e9:.1f} GB of its memory at least"
        yield (
            f"{who} had a context on the GPU{held}: utilisation counts their kernels as well, and steps may have "
            "waited for them."
        )
    elif beyond >= OWN_BEYOND_BYTES:
        yield (
            f"{beyond / 1e9:.1f} GB of the GPU's memory were in use beyond what torch held: by a process that the "
            "driver does not show here, or by libraries beside torch's allocator."
        )


def look_notes(looks: ProcessLooks, window: Window) -> Iterator[str]:
    """Yield sentences about failed stack samples: changing stacks fail, waiting ones never."""
    for whose, every in (("training", looks.training), ("workers", looks.workers)):
        within = every.between(window.begin_ns, window.end_ns)
        if len(within) >= LEAST_LOOKED_AT and within.failed >= MOST_FAILED_LOOKS * len(within):
            of = f"{within.failed} of {len(within)} stack samples of the {whose} failed"
            yield f"{of}, because the stack changed meanwhile: running lines take a larger share than shown."


@dataclass(frozen=True)
class MemoryLimitSeen:
    """A control group's limit on the training's memory."""

    whose: int
    """A `MemoryLimitOf` value."""
    bytes: int
    slows: bool
    """Above it the kernel slows processes down; else it kills one."""
    swap_bytes: int | None
    """What it may put into swap; `None`: as much as there is."""

    @property
    def owner(self) -> str:
        return OWNERS.get(self.whose, OWNERS[MemoryLimitOf.GROUP])


@dataclass(frozen=True)
class MemoryGrowth:
    """Memory that grew from third to third of a run and did not level off."""

    bytes_per_s: float
    """What all processes of the training take more, in the later part of the run."""
    copied: bool
    """By copies of pages that were shared; else by what workers keep."""
    workers: int
    available_bytes: int | None
    """Memory that was left at the end; `None` where that was not measured."""
    elapsed_s: float
    full_share: float
    """Share of the run, 0..1, in which there was none left, or the machine swapped."""
    stalled_share: float | None
    """Share of the run in which tasks waited for memory; `None`: the kernel does not tell."""
    swapped_bytes: int
    """Rise of the swapped memory of the machine, or of the control group that is short."""
    limit: MemoryLimitSeen | None = None
    """The control group's limit that binds; `None`: the machine's memory ends first."""
    kills: int | None = None
    """Processes killed for want of memory meanwhile; `None`: the kernel does not tell."""

    @property
    def full_in_s(self) -> float | None:
        """Until nothing is left at this pace; `None` where what is left was not measured."""
        return None if self.available_bytes is None else max(0, self.available_bytes) / self.bytes_per_s


def memory_growth_of(
    window: Window, host: Records, limits: Records, workers: int | None, info: dict[str, Any]
) -> MemoryGrowth | None:
    """Tell how the workers' memory grew; `None` where it did not, or there are no workers.

    `limits`: MEMORY records; `info`: run.json, whose `emulated_memory_bytes` the workers may take
    more from the window's begin on, in place of what the machine could give.
    """
    seen = host[(host["t_ns"] >= window.begin_ns) & (host["t_ns"] <= window.end_ns)]
    # Workers are seen one after another when they start: what a newly seen one has is no growth.
    seen = seen[seen["tree_processes"] == seen["tree_processes"].max(initial=NOT_MEASURED)]
    if not workers or len(seen) < 2 * THIRDS:
        return None
    taken = measured(seen["tree_rss_bytes"]) - measured(seen["main_rss_bytes"])
    own = _growth(seen["t_ns"], taken)
    private = _growth(seen["t_ns"], measured(seen["tree_private_bytes"]), LEAST_PRIVATE_LOOKS)
    copied = private is not None and (own is None or own < MOSTLY * private)
    growth = private if copied else own
    if growth is None:
        return None
    told = limits[(limits["t_ns"] <= window.end_ns) & (limits["whose"] != NOT_MEASURED)]
    available = measured(seen["memory_available_bytes"])
    # The limit seen last, where what was left then is what it leaves, and not less because the machine has less.
    limit, left = None, available[~np.isnan(available)]
    for last in told[-1:]:
        if len(left) and left[-1] >= max(0, last["limit_bytes"] - last["used_bytes"]):
            swap = None if last["swap_limit_bytes"] == NOT_MEASURED else int(last["swap_limit_bytes"])
            limit = MemoryLimitSeen(int(last["whose"]), int(last["limit_bytes"]), last["slows"] == 1, swap)
    short = available < (FULL_BYTES if limit is None else min(FULL_BYTES, FULL_LIMIT * limit.bytes))
    emulated = info.get("emulated_memory_bytes")
    if isinstance(emulated, int):
        available = emulated - (taken - np.nanmin(taken))
        short, limit = available <= 0, None
    left = available[~np.isnan(available)]
    swapped = max(0.0, _rise(seen, "swap_used_bytes"))
    if limit is not None:
        swapped = max(swapped, _rise(told[told["t_ns"] >= window.begin_ns], "swap_used_bytes"))
    elapsed_s = float(seen["t_ns"][-1] - seen["t_ns"][0]) / 1e9
    stalled_us = _rise(seen, "memory_pressure_us")
    return MemoryGrowth(
        bytes_per_s=growth,
        copied=copied,
        workers=workers,
        available_bytes=int(left[-1]) if len(left) else None,
        elapsed_s=elapsed_s,
        full_share=1.0 if swapped >= SWAPPED_BYTES else float(np.mean(short)),
        stalled_share=stalled_us / 1e6 / elapsed_s if elapsed_s and not isnan(stalled_us) else None,
        swapped_bytes=int(swapped),
        limit=limit,
        kills=kills_of(limits),
    )


def kills_of(limits: Records) -> int | None:
    """Count processes killed for want of memory, by MEMORY records; `None`: not told."""
    told = known(limits, "oom_kills")
    return max(0, int(told[-1] - told[0])) if len(told) else None


def _growth(t_ns: Stamps, values: Lengths, least: int = 2 * THIRDS) -> float | None:
    """Bytes a second, from the middle of the second third of the time to that of the last; `None`: not steady, or it
    levels off."""
    told = ~np.isnan(values)
    t_ns, values = t_ns[told], values[told]
    if len(values) < least or t_ns[-1] == t_ns[0]:
        return None
    third = np.minimum(THIRDS - 1, (t_ns - t_ns[0]) * THIRDS // (t_ns[-1] - t_ns[0] + 1))
    if len(np.unique(third)) < THIRDS:
        return None
    middles = [(float(np.median(t_ns[third == n])), float(np.median(values[third == n]))) for n in range(THIRDS)]
    (t0, first), (t1, second), (t2, last) = middles
    before, lately = (second - first) / (t1 - t0), (last - second) / (t2 - t1)
    # Workers that are started anew give all of it back.
    falls = float(np.max(np.maximum.accumulate(values) - values)) > MOSTLY * (values[-1] - values[0])
    if before <= 0 or lately < MOSTLY * before or falls or values[-1] - values[0] < LEAST_GROWN_BYTES:
        return None
    return lately * 1e9


@dataclass(frozen=True)
class WorkerDeath:
    """One worker process that ended in the midst of its work."""

    pid: int
    worker: int | None
    """Its number in its loader, from 0; `None`: not known."""
    exit_code: int | None
    """Negative: the signal that killed it; `None`: not known."""
    at_s: float
    """Since the recording of the training began."""
    likely: str
    """The likely reason, half a sentence."""
    way_out: str

    @property
    def signal(self) -> str | None:
        """Name of the signal that killed it, such as `SIGKILL`; `None`: none, or not known."""
        if self.exit_code is None or self.exit_code >= 0:
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"

    @property
    def said(self) -> str:
        """All of it in two sentences."""
        who = f"process {self.pid}" if self.worker is None else f"worker {self.worker} (process {self.pid})"
        if self.signal is not None:
            how = f"was killed by {self.signal}"
        else:
            how = "ended" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"{who} {how} {self.at_s:.0f} s after the training began: {self.likely}. What to do: {self.way_out}."


def deaths_of(events: Records, host: Records, limits: Records) -> tuple[WorkerDeath, ...]:
    """Collect the deaths that one training process told of. `limits`: MEMORY records."""
    died = events[events["what"] == EventKind.WORKER_DIED]
    who = events[events["what"] == EventKind.DIED_WORKER]
    begins = events["t_ns"][events["what"] == EventKind.TRAINING_BEGIN]
    found = []
    for death, told in zip(died, who, strict=False):
        t_ns, number = int(death["t_ns"]), int(told["value"]) >> 32
        code = None if death["value"] == NOT_MEASURED else int(death["value"])
        before = host[(host["t_ns"] <= t_ns) & (host["t_ns"] > t_ns - LOOKED_AT_NS)]
        likely, way_out = _reason(code, before, limits)
        since_ns = int(begins[0]) if len(begins) else int(events["t_ns"][0])
        pid = int(told["value"]) & 0xFFFF_FFFF
        found.append(WorkerDeath(pid, number - 1 if number else None, code, (t_ns - since_ns) / 1e9, likely, way_out))
    return tuple(found)


def said_of(deaths: tuple[WorkerDeath, ...]) -> str:
    """The first of them, and how many followed."""
    more = "" if len(deaths) == 1 else f" {len(deaths) - 1} more died with it or later."
    first = deaths[0].said
    return f"{first[0].upper()}{first[1:]}{more}"


def _reason(code: int | None, before: Records, limits: Records) -> tuple[str, str]:
    """(likely reason, way out). `before`: looks at the host shortly before."""
    if code is None:
        return "how it ended is not known", _ALONE
    if code >= 0:
        return "the program, or a library, ended the process (sys.exit, os._exit)", _ALONE
    if code == -signal.SIGKILL:
        return _killed(before, limits)
    if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return "somebody, or a batch system at its time limit, ended it", "ask who sends signals to the job"
    if code != -signal.SIGBUS:
        return "compiled code of a library crashed in it", _ALONE
    told = before[(before["shm_used_bytes"] != NOT_MEASURED) & (before["shm_total_bytes"] > 0)]
    if not len(told):
        return "usually a full /dev/shm, through which batches are handed over", _SHM
    used, size = int(told["shm_used_bytes"].max()), int(told["shm_total_bytes"][-1])
    of = f"({_size(used)} of its {_size(size)} were in use shortly before)"
    if used >= SHM_FULL * size:
        return f"/dev/shm was full, through which batches are handed over {of}", _SHM
    if size < SMALL_SHM_BYTES:
        return f"/dev/shm is small for batches that are handed over through it {of}", _SHM
    return f"a file that is mapped into memory was cut short, or cannot be read; /dev/shm was not full {of}", _ALONE


def _killed(before: Records, limits: Records) -> tuple[str, str]:
    kills, left = kills_of(limits), known(before, "memory_available_bytes").min(initial=2**63 - 1)
    full, lack = float(FULL_BYTES), "lack of memory"
    for limit in limits[limits["whose"] != NOT_MEASURED][-1:]:
        full = min(full, FULL_LIMIT * int(limit["limit_bytes"]))
        owner = OWNERS.get(int(limit["whose"]), "its control group")
        lack += f" at the limit of {owner}, {_size(int(limit['limit_bytes']))}"
    if kills:
        counted = "1 process was" if kills == 1 else f"{kills} processes were"
        return f"the kernel killed it for {lack} ({counted} killed for that meanwhile)", _MEMORY
    if left < full:
        return f"{lack}: {_size(float(left))} were left shortly before", _MEMORY
    if kills is None:
        return "usually the kernel does this for lack of memory, which was not measured here", _MEMORY
    uncounted = "not lack of memory, since the kernel counted no such kill"
    return f"{uncounted}: somebody, or a batch system, killed it", "ask who sends signals to the job"


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"
