"""One look at the host: the machine, the training's process tree, its cgroups, and the sampler itself."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from ...record.schema import HOST, MEMORY, Row
from ..limits import CgroupLevel, MemoryLimit, cgroup_levels, cpu_budget, memory_limits, oom_kills, tightest
from .procfs import MachineCpu, parse_machine_cpu, parse_pairs, parse_pressure, read
from .schedule import NS_PER_S, Cadence
from .tree import Member, ProcessTree

SHARE = 0.005
"""Share of the sampler's time that scans of threads, rounds of proportional memory, and looks at limits on memory may
take, each: `smaps_rollup` makes the kernel walk page tables, `memory.stat` add up over all CPUs."""
SCAN_PERIOD_NS, MEMORY_PERIOD_NS, LIMITS_PERIOD_NS = NS_PER_S, NS_PER_S, 10 * NS_PER_S
PSS_PERIOD_NS, PSS_FIRST_NS = 5 * NS_PER_S, 2 * NS_PER_S
_SUMMED = {"tree_pss_bytes": (b"Pss",), "tree_private_bytes": (b"Private_Clean", b"Private_Dirty")}
_THROTTLED = {b"throttled_usec", b"throttled_time"}
Values = dict[str, float | None]


class Host:
    """Looks at the host on behalf of one training. `root` is where `/proc`, `/sys` and `/dev` are looked for."""

    def __init__(self, pid: int, start_ns: int, root: Path = Path("/")) -> None:
        self._pid = pid
        self._root = root
        self._proc = str(root / "proc")
        self._tree = ProcessTree(pid, self._proc)
        self._scan = Cadence(SCAN_PERIOD_NS, share=SHARE)
        self._pss = PssRound(self._proc, start_ns)
        self._limits = Cadence(LIMITS_PERIOD_NS)
        self._machine: MachineCpu | None = None
        self._cpus: int | None = None
        self._levels: list[CgroupLevel] = []
        self._groups: bytes | None = None
        """The control groups of the training, as the kernel lists them."""
        self._memory = Cadence(MEMORY_PERIOD_NS, share=SHARE)
        self._memory_limits: list[MemoryLimit] = []
        self._memory_levels: list[CgroupLevel] = []
        self._left_bytes: int | None = None
        """What the tightest limit on memory left when it was last looked at; `None` without a limit."""
        self.memory: Row | None = None
        """The body of a MEMORY record that came with the last sample, if one did."""

    @property
    def members(self) -> list[Member]:
        """The processes of the training's tree that live, as they were last seen."""
        return self._tree.alive

    def sample(self, now_ns: int, late_ns: int, last: bool = False) -> Row:
        """The body of a HOST record. `last` reads what would otherwise have waited for its turn."""
        values: Values = {"t_ns": now_ns, "late_ns": late_ns} | self._look_at_tree(now_ns, last)
        # Batch systems and containers put a process into its group after it has started.
        groups = read(f"{self._proc}/{self._pid}/cgroup")
        moved = groups is not None and groups != self._groups
        if self._limits.due(now_ns) or moved:
            # Those of the training process are kept after its end: the counters of its groups tell why it has ended.
            with contextlib.suppress(OSError):
                if self._tree.seen:
                    self._groups = groups
                    self._cpus = round(1000 * cpu_budget(self._pid, self._root).budget)
                    self._levels = cgroup_levels(self._pid, self._root)
            if levels := cgroup_levels(self._pid, self._root, "memory"):
                self._memory_levels, self._memory_limits = levels, memory_limits(self._pid, self._root)
        values["cpus"] = self._cpus
        self.memory = self._look_at_memory(now_ns) if self._memory.due(now_ns) or last else None
        values |= self._look_at_machine() | throttling(self._levels) | shared_memory(self._root)
        helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
        values["sampler_cpu_ns"] = time.process_time_ns() + round(1e9 * (helpers.ru_utime + helpers.ru_stime))
        return HOST.row(**values)

    def _look_at_tree(self, now_ns: int, last: bool) -> Values:
        tree = self._tree
        tree.look()
        scanned = self._scan.due(now_ns) or last
        if scanned:
            begin = time.monotonic_ns()
            tree.scan()
            self._scan.cost(now_ns, time.monotonic_ns() - begin)
        if not tree.seen:
            return {}
        alive, totals = tree.alive, tree.totals()
        if not scanned:
            del totals["run_queue_ns"]
        return {
            **totals,
            **self._pss.step(now_ns, alive),
            "main_cpu_ns": tree.main_cpu_ns,
            "main_thread_queue_ns": tree.main_thread_queue_ns if scanned else None,
            "tree_processes": len(alive),
            "tree_rss_bytes": sum(m.stat.rss_bytes for m in alive),
            "main_rss_bytes": next((m.stat.rss_bytes for m in alive if m.pid == self._pid), None),
        }

    def _look_at_machine(self) -> Values:
        before, self._machine = self._machine, parse_machine_cpu(read(f"{self._proc}/stat"))
        shares = self._machine.shares_since(before) if self._machine and before else None
        busy, iowait, steal = shares or (None, None, None)
        memory = parse_pairs(read(f"{self._proc}/meminfo"))
        swap, unused = memory.get(b"SwapTotal"), memory.get(b"SwapFree")
        could_give = [1024 * memory[name] for name in (b"MemAvailable",) if name in memory]
        could_give += [self._left_bytes] if self._left_bytes is not None else []
        return {
            "machine_busy_pct": busy,
            "machine_iowait_pct": iowait,
            "steal_pct": steal,
            "memory_available_bytes": min(could_give, default=None),
            "swap_used_bytes": None if swap is None or unused is None else (swap - unused) * 1024,
            "memory_pressure_us": parse_pressure(read(f"{self._proc}/pressure/memory")),
        }

    def _look_at_memory(self, now_ns: int) -> Row | None:
        """The body of a MEMORY record: the tightest limit on the training's memory, and its use."""
        begin = time.monotonic_ns()
        use, killed = tightest(self._memory_limits), oom_kills(self._memory_levels, self._root)
        self._memory.cost(now_ns, time.monotonic_ns() - begin)
        self._left_bytes = None if use is None else use.left_bytes
        if use is None:
            return None if killed is None else MEMORY.row(t_ns=now_ns, oom_kills=killed)
        return MEMORY.row(
            t_ns=now_ns,
            whose=use.limit.whose,
            slows=int(use.limit.slows),
            limit_bytes=use.limit.bytes,
            used_bytes=use.used_bytes,
            swap_limit_bytes=use.limit.swap_bytes,
            swap_used_bytes=use.swap_used_bytes,
            oom_kills=killed,
        )


class PssRound:
    """Proportional and private memory of the tree, one process per call.

    The kernel walks a process's page tables for it and holds its memory map meanwhile, which takes milliseconds
    per gigabyte: so seldom, one process at a time, and more seldom the longer a round takes.
    """

    def __init__(self, proc: str, start_ns: int) -> None:
        self._proc = proc
        self._cadence = Cadence(PSS_PERIOD_NS, start_ns + PSS_FIRST_NS, SHARE)
        self._left: list[int] = []
        self._sums: dict[str, int] = {}
        """Empty where one living process could not be read: such a round has no sums."""
        self._took_ns = 0

    def step(self, now_ns: int, alive: Sequence[Member]) -> dict[str, int]:
        """The sums of the tree in bytes, by their fields' names, when a round ends with this call; otherwise empty."""
        if not self._left:
            if not self._cadence.due(now_ns):
                return {}
            self._left, self._took_ns = [m.pid for m in alive], 0
            self._sums = dict.fromkeys(_SUMMED, 0)
        begin = time.monotonic_ns()
        while self._left:
            pid = self._left.pop()
            found = parse_pairs(read(f"{self._proc}/{pid}/smaps_rollup"))
            if b"Pss" in found:
                for field in self._sums:
                    self._sums[field] += 1024 * sum(found.get(name, 0) for name in _SUMMED[field])
                break
            if any(m.pid == pid for m in alive):
                self._sums = {}
        self._took_ns += time.monotonic_ns() - begin
        if self._left:
            return {}
        self._cadence.cost(now_ns, self._took_ns)
        return self._sums


def throttling(levels: Sequence[CgroupLevel]) -> Values:
    """Time and periods in which a cgroup was throttled, summed over the levels that may throttle."""
    stats = [parse_pairs(read(str(level.folder / "cpu.stat"))) for level in levels]
    spent = [s.get(b"throttled_usec", s.get(b"throttled_time", 0) // 1000) for s in stats if _THROTTLED & s.keys()]
    periods = [stat[b"nr_throttled"] for stat in stats if b"nr_throttled" in stat]
    return {"throttled_us": sum(spent) if spent else None, "throttled_periods": sum(periods) if periods else None}


def shared_memory(root: Path) -> Values:
    """Use and size of `/dev/shm`, where it is a file system of its own."""
    folder = root / "dev/shm"
    try:
        if folder.stat().st_dev == folder.parent.stat().st_dev:
            return {}
        stat = os.statvfs(folder)
    except OSError:
        return {}
    used = (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    return {"shm_used_bytes": used, "shm_total_bytes": stat.f_blocks * stat.f_frsize}
