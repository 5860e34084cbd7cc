"""A run at one moment, from the windows of records that were there then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..run.device_state import IDLE, POWER_CAP, SLOWDOWN, THERMAL
from ..run.divided_time import DividedTime
from ..run.worker_deaths import deaths_of
from ..where.located import LEAST_LOOKS
from ..where.looks import Looks, ProcessLooks
from ..where.places import places
from .gathered import ProcessRecords, RunRecords
from .judged import Judged, Steady, judged, planned_steps, recent_looks, time_of_last
from .makers import makers_of
from .progress import moved, rates_of, steps_of, trend_of
from .series import (
    HELD_NS,
    LAG_NS,
    RECENT_NS,
    SECOND_NS,
    Stamps,
    Values,
    grid,
    held,
    last_of,
    mean_of,
    means,
    rate_since,
    rates,
    told,
)
from .snapshot import CodeView, DeviceView, HostView, RankView, Snapshot

FRESH_NS = 30 * SECOND_NS
"""Age from which a figure of a device is not shown as that of now; the slowest are read every twenty seconds."""
REASONS = (
    (THERMAL, "heat"),
    (SLOWDOWN, "hardware slowdown"),
    (POWER_CAP, "power cap"),
)
"""Of several the one that is least usual."""


def devices_of(run: RunRecords, edges: Stamps) -> tuple[DeviceView, ...]:
    """The devices that were sampled, by number."""
    numbers = np.unique(run.device["device"])
    names = _names(run, len(numbers))
    emulated = run.device_kind == "emulated"
    limits = {} if emulated else {d.number: d.power_limit_mw for d in run.sampled if d.power_limit_mw is not None}
    return tuple(
        replace(
            _view(int(n), names.get(int(n)), emulated, run.device[run.device["device"] == n], edges, run.now_ns),
            power_limit_w=limits[n] / 1000 if n in limits else None,
        )
        for n in numbers
    )


def _view(number: int, name: str | None, emulated: bool, looks: Records, edges: Stamps, now_ns: int) -> DeviceView:
    # Windows tell utilisation only; states, which have none, are few.
    states = looks[looks["window_ns"] == NOT_MEASURED]
    times = states["t_ns"]
    fresh = states[times >= now_ns - FRESH_NS]
    return DeviceView(
        number,
        name or (f"emulated device {number}" if emulated else f"GPU {number}"),
        emulated,
        busy_pct=told(_share(looks, "utilisation_pct", edges)),
        sm_active_pct=told(_share(looks, "sm_active_pct", edges)),
        memory_pct=told(_memory_pct(states, edges)),
        power_w=told(held(times, states["power_mw"], edges) / 1000),
        pcie_rx_bytes_s=told(rates(times, states["pcie_rx_bytes"], edges)),
        pcie_tx_bytes_s=told(rates(times, states["pcie_tx_bytes"], edges)),
        memory_used_bytes=last_of(fresh["memory_used_bytes"]),
        memory_total_bytes=last_of(states["memory_total_bytes"]),
        sm_clock_mhz=last_of(fresh["sm_clock_mhz"]),
        sm_clock_max_mhz=last_of(states["sm_clock_max_mhz"]),
        memory_clock_mhz=last_of(fresh["memory_clock_mhz"]),
        temperature_c=last_of(fresh["temperature_c"]),
        pcie_generation=last_of(fresh["pcie_generation"]),
        pcie_width=last_of(fresh["pcie_width"]),
        pcie_max_generation=last_of(states["pcie_max_generation"]),
        pcie_max_width=last_of(states["pcie_max_width"]),
        processes=last_of(fresh["processes"]),
        held_down=_held_down(fresh),
    )


def _share(looks: Records, name: str, edges: Stamps) -> Values:
    """Of windows; where the driver does not say how long one is, it reaches back to the one before."""
    values = looks[name]
    known = ~np.isnan(values)
    end, length, values = looks["t_ns"][known], looks["window_ns"][known], values[known]
    before = np.maximum(end - HELD_NS, np.concatenate((end[:1] - SECOND_NS, end[:-1])))
    return means(np.where(length > 0, end - length, before), end, values, edges)


def _memory_pct(looks: Records, edges: Stamps) -> Values:
    """Its size does not change."""
    total = last_of(looks["memory_total_bytes"])
    used = held(looks["t_ns"], looks["memory_used_bytes"], edges)
    return 100 * used / total if total else np.full(len(used), np.nan)


def _held_down(looks: Records) -> str | None:
    """Why clocks are held down, by the last look that tells; `None`: they are not, or it is not known."""
    reasons = last_of(looks["throttle_reasons"])
    if reasons is None or reasons & IDLE:
        return None
    return next((why for bits, why in REASONS if reasons & bits), None)


def _names(run: RunRecords, count: int) -> dict[int, str]:
    """The devices' names by number: as the driver calls them, or else as far as the trainings tell. The sampler's
    numbers are theirs where the run named its devices, and the driver's otherwise.
    """
    named = {device.number: device.name for device in run.sampled if device.name is not None}
    # Before a run says that its device is emulated, the GPUs may have been looked at.
    if named and run.device_kind != "emulated":
        return named
    device = run.info.get("device") or {}
    # Seen from outside, a process does not tell what its devices are called.
    told = [] if run.info.get("attach") else [device, *(process.device for process in run.told)]
    titles = {str(d["title"]) for d in told if d.get("title") and d.get("kind") == device.get("kind")}
    if len(titles) == 1 and (run.device_kind == "emulated" or count <= max(1, len(run.told))):
        return dict.fromkeys(range(int(run.device["device"].max(initial=NOT_MEASURED)) + 1), titles.pop())
    return {}


def ranks_of(run: RunRecords) -> list[ProcessRecords]:
    """The process of each rank that ran most steps, by number; empty where there is only one rank."""
    most: dict[int, ProcessRecords] = {}
    for process in run.processes:
        if process.rank not in most or process.seen > most[process.rank].seen:
            most[process.rank] = process
    return [most[rank] for rank in sorted(most)] if len(most) > 1 else []


def rank_view(process: ProcessRecords, run: RunRecords, divided: DividedTime | None = None) -> RankView:
    """`divided`: the time of its last steps, where that is known already."""
    if divided is None:
        divided = time_of_last(process, run.info)
    steps = steps_of(process)
    if divided is None:
        return RankView(process.rank, process.host, steps)
    rate = divided.samples_per_s if divided.samples_known else None
    return RankView(process.rank, process.host, steps, rate, divided.shares)


PROPORTIONAL_NS = 60 * SECOND_NS
"""Memory with shared pages divided among processes is measured seldom. Where the last such figure is older than this,
each process counts all pages it holds."""


def host_of(run: RunRecords, edges: Stamps) -> HostView:
    """What the sampler saw; all `None` where there is none."""
    looks = run.host
    times = looks["t_ns"]
    since = run.now_ns - RECENT_NS
    late = looks[times >= since]

    def rate(name: str) -> float | None:
        return rate_since(times, looks[name], since)

    budget = last_of(looks["cpus"])
    cpus = (run.info.get("host") or {}).get("cpus")
    machine = HostView(
        cpu_budget=None if budget is None else budget / 1000,
        machine_cpus=cpus if isinstance(cpus, int) else None,
        machine_busy_pct=mean_of(late["machine_busy_pct"]),
        machine_busy=told(means(times[:-1], times[1:], looks["machine_busy_pct"][1:], edges)),
        steal_pct=mean_of(late["steal_pct"]),
        iowait_pct=mean_of(late["machine_iowait_pct"]),
        memory_available_bytes=last_of(late["memory_available_bytes"]),
        shm_used_bytes=last_of(late["shm_used_bytes"]),
        shm_total_bytes=last_of(late["shm_total_bytes"]),
    )
    if run.info.get("watching"):
        return machine  # the sampler was given no job to look at, but the process that started it
    busy, throttled = rate("tree_cpu_ns"), rate("throttled_us")
    memory = last_of(looks["tree_pss_bytes"])
    if memory is None and len(times) and times[-1] - times[0] > PROPORTIONAL_NS:
        memory = last_of(late["tree_rss_bytes"])
    return replace(
        machine,
        tree_cpus=None if busy is None else busy / SECOND_NS,
        cpus=told(rates(times, looks["tree_cpu_ns"], edges) / SECOND_NS),
        read_bytes_s=rate("read_chars_bytes"),
        storage_bytes_s=rate("read_storage_bytes"),
        memory_used_bytes=memory,
        # Told in µs, summed over groups.
        throttled_pct=None if throttled is None else float(np.clip(100 * throttled / 1e6, 0.0, 100.0)),
    )


def code_of(looks: ProcessLooks | None) -> tuple[CodeView, ...]:
    """The workers' line and the training's; of whom too few looks were made none."""
    if looks is None:
        return ()
    return (*_line("workers", looks.making, looks.workers), *_line("training", looks.training, looks.training))


def _line(whose: str, looks: Looks, of: Looks) -> Iterator[CodeView]:
    """The line that most of these looks saw, and its share `of` all that saw a stack."""
    seen = len(of) - of.failed
    for line in places(looks.stacks(), "", most=1):
        if line.samples >= LEAST_LOOKS:
            share_pct = 100 * line.samples / seen
            yield CodeView(whose, share_pct, line.samples, line.file, line.line, line.function, line.code, line.calls)


def snapshot_of(run: RunRecords, steady: Steady, ranks: Mapping[int, RankView] | None = None) -> Snapshot:
    """Everything that the live view shows.

    Args:
        steady: told of the verdict.
        ranks: views of ranks that need not be made anew.
    """
    # Records whose bytes were overwritten may hold any number: no warning is to be printed onto the view.
    with np.errstate(all="ignore"):
        return _snapshot(run, steady, ranks or {})


def _snapshot(run: RunRecords, steady: Steady, ranks: Mapping[int, RankView]) -> Snapshot:
    edges = grid(run.now_ns, LAG_NS if run.over is None else 0)
    mine = run.mine
    looks = recent_looks(run)
    judgement = judged(mine, run, looks) if mine is not None else None
    waits = "watching" if run.info.get("watching") or run.info.get("attach") else "starting"
    state = run.over or (waits if judgement is None else "running")
    view = Snapshot(
        title_of(run.info),
        device_of(run.info),
        state,
        devices=devices_of(run, edges),
        host=host_of(run, edges),
        code=code_of(looks),
        planned_steps=planned_steps(run.info),
        deaths=tuple(death for each in run.processes for death in deaths_of(each.events, run.host, run.memory)),
        stand_in=(run.info.get("dataset") or {}).get("stand_in"),
    )
    if mine is None or judgement is None:
        return view
    view = _trained(view, run, mine, judgement, edges)
    verdict, since_ns = steady.told(judgement, run.now_ns)
    since_s = max(0, run.now_ns - since_ns) / SECOND_NS
    if run.over is not None and view.elapsed_s is not None:
        # The sampler goes on for a moment after the last step, of which no verdict is.
        since_s = min(since_s, view.elapsed_s)
    return replace(
        view,
        verdict=verdict,
        verdict_since_s=None if verdict.cause is None else since_s,
        verdict_samples_per_s=view.samples_per_s,
        ranks=max(1, len({process.rank for process in run.processes})),
        rank_views=tuple(
            rank_view(each, run, judgement.facts if each is mine else None)
            if each is mine or each.rank not in ranks
            else ranks[each.rank]
            for each in ranks_of(run)
        ),
    )


def title_of(info: dict[str, Any]) -> str:
    """Of a scenario's run its settings, else the command."""
    trial = info.get("trial") or {}
    named = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    if trial.get("batch_size"):
        named.append(f"batch {trial['batch_size']}")
    return " · ".join(named) or " ".join(str(c) for c in info.get("command") or ["run"])


def device_of(info: dict[str, Any]) -> str:
    device = info.get("device") or {}
    return str(device.get("title") or device.get("name") or "")


def _trained(view: Snapshot, run: RunRecords, mine: ProcessRecords, judgement: Judged, edges: Stamps) -> Snapshot:
    facts = judgement.facts
    window, loader = facts.window, facts.loader
    rates = rates_of(mine.steps) if facts.samples_known else ()
    apart = not facts.made_in_training
    last_end_ns = int(mine.steps["step_end_ns"][-1])
    view = replace(
        view,
        rank=mine.rank,
        batch_size=facts.batch_size,
        samples_per_s=facts.samples_per_s if facts.samples_known else None,
        steps_per_s=window.count * SECOND_NS / window.wall_ns,
        recent_s=window.wall_ns / SECOND_NS,
        rates=rates,
        trend_pct=trend_of(rates),
        shares=facts.shares,
        queue_ready=loader.queue_ready_mean,
        queue_capacity=loader.queue_capacity,
        workers=(loader.workers or None) if apart else 0,
        worker_busy_pct=loader.worker_busy_pct if apart else None,
        makers=makers_of(mine, last_end_ns - window.wall_ns, run.now_ns, edges) if apart else (),
        made_in_training=not apart,
    )
    first_ns = last_end_ns if run.first_ns is None else run.first_ns
    return moved(view, run.info, steps_of(mine), last_end_ns, run.epoch, first_ns, run.now_ns)
