"""The CPUs and the memory a training may use, what the kernel tells of waiting for them, and the clock."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from ...record.check import Check
from ..cpu_budget import cgroup_levels, cpu_budget
from ..memory_limits import machine_memory, memory_available, memory_limits, oom_kills, tightest
from ..sampler.host import throttling
from ..sampler.procfs import MachineCpu, parse_machine_cpu, parse_pressure, parse_run_queue, read

GROUP = "CPU, memory and clock"
MUCH_STEAL_PCT = 2.0
"""More shifts figures by as much as what is looked for."""
SLOW_CLOCK_NS = 300
"""A step asks for the time about ten times."""
GOOD_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase")


def cpus(root: Path = Path("/")) -> list[Check]:
    """What needs one look only."""
    return [_budget(root), memory(root), _quota(root), _pressure(root), _run_queue(root), clock(root)]


def machine(root: Path = Path("/")) -> MachineCpu | None:
    """A first look for `steal`."""
    return parse_machine_cpu(read(str(root / "proc/stat")))


def steal(before: MachineCpu | None, after: MachineCpu | None, seconds: float) -> Check:
    """What others took of the machine's CPUs between two looks."""
    shares = after.shares_since(before) if before and after else None
    if shares is None:
        return Check(GROUP, "Steal", "missing", "/proc/stat does not report it.", "CPU time taken by the hypervisor.")
    busy, waiting, stolen = shares
    values: dict[str, float | str | None] = {"busy_pct": busy, "iowait_pct": waiting, "steal_pct": stolen}
    says = f"{stolen:.1f} % over the last {seconds:.1f} s ({busy:.0f} % busy)."
    if stolen < MUCH_STEAL_PCT:
        return Check(GROUP, "Steal", "ok", says, values=values)
    lost = "Times vary with what other tenants do, which hides small differences; reports name the share."
    return Check(GROUP, "Steal", "limited", says, lost, "Use another machine or hour, or a dedicated one.", values)


def _budget(root: Path) -> Check:
    counted = os.cpu_count() or 0
    budget = cpu_budget(root=root)
    values: dict[str, float | str | None] = {
        "cpus": counted,
        "affinity": budget.affinity,
        "quota": budget.quota,
        "budget": budget.budget,
    }
    if budget.budget >= counted:
        return Check(GROUP, "CPU budget", "ok", f"All {counted} CPUs of the machine.", values=values)
    by_quota = budget.quota is not None and budget.quota < budget.affinity
    why = "a cgroup quota" if by_quota else "affinity (a CPU set)"
    return Check(
        GROUP,
        "CPU budget",
        "limited",
        f"{budget.budget:g} of the machine's {counted} CPUs, by {why}.",
        "Programs that size themselves by os.cpu_count() start too many workers and threads.",
        f"Set num_workers for {budget.budget:g} CPUs, or ask for more"
        + (" (docker --cpus, Kubernetes limits.cpu)." if by_quota else " (taskset, cpuset)."),
        values,
    )


def memory(root: Path) -> Check:
    """What the machine could give, and the limit of a control group where it leaves less than the machine has."""
    whole = machine_memory(root).get(b"MemTotal")
    use, left = tightest(memory_limits(0, root)), memory_available(root)
    killed = oom_kills(cgroup_levels(0, root, "memory"), root)
    values: dict[str, float | str | None] = {
        "machine_bytes": None if whole is None else 1024 * whole,
        "limit_bytes": None if use is None else use.limit.bytes,
        "available_bytes": left,
        "oom_kills": killed,
    }
    could = "" if left is None else f", {left / 2**30:.1f} GiB available now"
    of_machine = "an unknown amount" if whole is None else f"{whole / 2**20:.1f} GiB"
    if use is None:
        if whole is None:
            lost = "When memory will run out (input.memory)."
            return Check(GROUP, "Memory", "missing", "No /proc/meminfo.", lost, "Mount /proc.", values)
        return Check(GROUP, "Memory", "ok", f"{of_machine} of the machine{could}; no limit.", values=values)
    limit = f"{use.limit.bytes / 2**30:.1f} GiB of the machine's {of_machine}"
    says = f"{limit}, by a limit of {use.limit.level.path}{could}."
    if use.limit.slows:
        lost = "The kernel slows a training that takes more, and takes pages back from it (memory.high)."
    else:
        lost = "The kernel kills a worker or the training that takes more, whatever the machine has left."
    fix = "Raise docker run --memory, Kubernetes limits.memory, sbatch --mem, or MemoryMax= of the unit."
    return Check(GROUP, "Memory", "limited", says, lost, fix, values)


def _quota(root: Path) -> Check:
    levels = cgroup_levels(root=root)
    versions = sorted({level.version for level in levels})
    values: dict[str, float | str | None] = {"versions": ", ".join(map(str, versions)) or None}
    if not levels:
        lost = "CPU quotas and how much they throttle (input.cpu_quota)."
        fix = "Mount /sys/fs/cgroup into the container; on a machine without quotas nothing is lost."
        return Check(GROUP, "cgroup", "missing", "No CPU cgroup is visible.", lost, fix, values)
    told = throttling(levels)
    periods, spent = told["throttled_periods"], told["throttled_us"]
    values |= {"throttled_periods": periods, "throttled_s": None if spent is None else spent / 1e6}
    says = f"Version {' and '.join(map(str, versions))}"
    if periods:
        says += f"; throttled in {periods:.0f} periods since it was made."
        lost = "The quota has held the job back before."
        return Check(GROUP, "cgroup", "limited", says, lost, "Raise the quota, or use fewer workers.", values)
    says += "; never throttled." if periods is not None else "; it does not report throttling."
    return Check(GROUP, "cgroup", "ok", says, values=values)


def _pressure(root: Path) -> Check:
    seen = [n for n in ("cpu", "io", "memory") if parse_pressure(read(str(root / f"proc/pressure/{n}"))) is not None]
    values: dict[str, float | str | None] = {"files": ", ".join(seen) or None}
    if len(seen) == 3:
        return Check(GROUP, "Pressure (PSI)", "ok", "CPU, I/O and memory.", values=values)
    lost = "How long tasks of the machine waited for CPU, disk or memory; a report uses other signs."
    fix = "Boot with psi=1 (kernel 4.20 or newer); some containers cannot have it."
    says = f"Only {', '.join(seen)}." if seen else "The kernel does not report it."
    return Check(GROUP, "Pressure (PSI)", "limited" if seen else "missing", says, lost, fix, values)


def _run_queue(root: Path) -> Check:
    told = parse_run_queue(read(str(root / "proc/self/schedstat")))
    if told is not None:
        return Check(GROUP, "Run-queue time", "ok", "Reported for each thread.", values={"told": "yes"})
    lost = "How long workers were ready and waited for a CPU (input.oversubscribed)."
    fix = "Use a kernel with CONFIG_SCHED_INFO; sandboxes such as gVisor do not report it."
    return Check(GROUP, "Run-queue time", "missing", "No schedstat in /proc.", lost, fix, {"told": "no"})


def clock(root: Path = Path("/")) -> Check:
    """The clock source, and what asking for the time costs."""
    source = read(str(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"))
    name = source.decode(errors="replace").strip() if source else None
    cost = _clock_cost_ns()
    values: dict[str, float | str | None] = {"source": name, "cost_ns": cost}
    says = f"{name or 'Unknown source'}, {cost:.0f} ns per reading."
    if cost < SLOW_CLOCK_NS and (name is None or name in GOOD_CLOCKS):
        return Check(GROUP, "Clock", "ok", says, values=values)
    lost = f"Each step reads the clock about ten times, which takes {10 * cost / 1e3:.1f} µs."
    fix = "Boot with clocksource=tsc, unless the kernel log calls the TSC unstable."
    return Check(GROUP, "Clock", "limited", says, lost, fix, values)


def _clock_cost_ns() -> float:
    """The median of several short rounds: others may interrupt one."""
    rounds = []
    for _ in range(9):
        begin = time.monotonic_ns()
        for _ in range(100):
            time.monotonic_ns()
        rounds.append((time.monotonic_ns() - begin) / 101)
    return statistics.median(rounds)
