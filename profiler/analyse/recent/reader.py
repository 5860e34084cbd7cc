"""A run that is being recorded (or has ended), as it stands: for the live view.

What each worker that makes batches did over the last seconds. How far a training is, and how long the rest takes:
what moves between two judgements. A run at one moment, from the windows of records that were there then.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RecordError
from ...record.reader import RecordFile, Records, measured
from ...record.run import AGAIN, SampledDevice, TrainingProcess, open_run, processes, sampled_devices
from ...record.schema import EVENT, NOT_MEASURED, PAUSE, STEP
from ...record.stacks import StackFollower
from ..run.device_state import IDLE, POWER_CAP, SLOWDOWN, THERMAL
from ..run.resource_usage import deaths_of
from ..run.stall_breakdown import DividedTime
from ..where.located import LEAST_LOOKS
from ..where.looks import Looks, ProcessLooks
from ..where.places import places
from .gathered import KEPT, PAUSES_A_STEP, Epoch, Folder, ProcessRecords, RunRecords, settled
from .judged import Judged, Steady, judged, planned_epoch, planned_steps, recent_looks, time_of_last
from .series import (
    HELD_NS,
    LAG_NS,
    MAKERS_S,
    RECENT_NS,
    SECOND_NS,
    Stamps,
    Values,
    grid,
    held,
    in_turn,
    last_of,
    mean_of,
    means,
    rate_since,
    rates,
    sums,
    told,
)
from .snapshot import CodeView, DeviceView, HostView, RankView, Snapshot, WorkerView
from .tail import LATE, Tail

LATELY, BEFORE = 10, 30
"""Seconds that a trend compares."""
LEAST_BEFORE = 10
"""Steps before the recent ones that a trend of the rate is told against, at least."""


def moved(
    view: Snapshot, info: dict[str, Any], steps: int, last_end_ns: int, epoch: Epoch | None, first_ns: int, now_ns: int
) -> Snapshot:
    """The view with what is newer than its judgement.

    Args:
        steps: that ran so far.
        last_end_ns: when the last of them ended.
        first_ns: when the first one began.
    """
    over = view.state != "running"
    pace = view.steps_per_s if not over else None
    planned = planned_steps(info)
    in_epoch, estimated = _length(info, epoch)
    done = steps - epoch.begin if epoch is not None else None
    if in_epoch is not None and done is not None and done > in_epoch:
        in_epoch, estimated = None, False
    return replace(
        view,
        steps=steps,
        planned_steps=planned,
        elapsed_s=max(0, (last_end_ns if over else now_ns) - first_ns) / SECOND_NS,
        left_s=_left(planned, steps, pace),
        quiet_s=None if over else max(0, now_ns - last_end_ns) / SECOND_NS,
        epoch=None if epoch is None else epoch.number,
        epoch_done=done,
        epoch_steps=in_epoch,
        epoch_estimated=estimated,
        epoch_left_s=_left(in_epoch, done, pace),
    )


def rates_of(steps: Records) -> tuple[float, ...]:
    """Samples/s of each whole second up to the last step's end; a step's samples come evenly while it lasts."""
    if len(steps) == 0 or (steps["samples"] == NOT_MEASURED).any():
        return ()
    edges = grid(int(steps["step_end_ns"][-1]), 0)
    edges = edges[edges >= steps["fetch_begin_ns"][0]]
    if len(edges) < 2:
        return ()
    begin, end = steps["fetch_begin_ns"], steps["step_end_ns"]
    # Those let pass came between the step before and this one.
    before = np.minimum(begin, np.concatenate((begin[:1], np.maximum.accumulate(end)[:-1])))
    begin = np.maximum(begin, before)
    stamps = np.stack((before, begin, begin, np.maximum(begin, end)), axis=1).reshape(-1, 2)
    amounts = np.stack((steps["skipped_samples"], steps["samples"]), axis=1).ravel().astype(np.float64)
    amounts[0] = 0.0
    return tuple(sums(stamps[:, 0], stamps[:, 1], amounts, edges).tolist())


def trend_of(rates: Sequence[float]) -> float | None:
    """Percent by which the last seconds differ from those before."""
    lately, before = rates[-LATELY:], rates[-LATELY - BEFORE : -LATELY]
    if len(before) < LEAST_BEFORE or sum(before) <= 0:
        return None
    return 100 * (sum(lately) / len(lately) / (sum(before) / len(before)) - 1)


def steps_of(process: ProcessRecords) -> int:
    """Steps that it ran so far, as far as the last record tells."""
    return int(process.steps["step"][-1]) + 1 if len(process.steps) else 0


def _length(info: dict[str, Any], epoch: Epoch | None) -> tuple[int | None, bool]:
    """(steps of this epoch, whether they are those of the epoch before)."""
    planned = planned_epoch(info)
    if planned is not None or epoch is None:
        return planned, False
    return epoch.previous_steps, epoch.previous_steps is not None


def _left(whole: int | None, done: int | None, pace: float | None) -> float | None:
    return max(0.0, (whole - done) / pace) if whole is not None and done is not None and pace else None


STAGES = ("read_ns", "decode_ns", "transform_ns", "collate_ns")


def makers_of(process: ProcessRecords, since_ns: int, now_ns: int, edges: Stamps) -> tuple[WorkerView, ...]:
    """The makers of batches, by number: workers that an epoch starts anew have the numbers of those before them.

    Args:
        since_ns: shares and times are of what was made since then.
        edges: seconds of the history.
    """
    batches = process.batches[process.batches["end_ns"] > edges[-1] - (MAKERS_S + 1) * SECOND_NS]
    # What no step names is a validation's, whose workers have the same numbers.
    numbered = batches["loader"] != NOT_MEASURED
    batches = batches[~numbered | np.isin(batches["loader"], _loaders(process.steps))]
    edges = edges[-MAKERS_S - 1 :]
    return tuple(
        _worker_view(int(number), batches[batches["worker"] == number], since_ns, now_ns, edges)
        for number in np.unique(batches["worker"][batches["worker"] >= 0])
    )


def _loaders(steps: Records) -> Stamps:
    """Each loader's number where its steps begin: a handful among thousands."""
    numbers = steps["loader"]
    return numbers[np.concatenate(([True], numbers[1:] != numbers[:-1]))] if len(numbers) else numbers


def _worker_view(number: int, batches: Records, since_ns: int, now_ns: int, edges: Stamps) -> WorkerView:
    begin, end, busy = _stretches(batches)
    within = np.maximum(0, end - np.maximum(begin, since_ns))
    within[np.isnan(busy)] = 0
    known_ns = float(within.sum())
    late = batches[batches["end_ns"] > since_ns]
    wall = (late["end_ns"] - late["begin_ns"]).astype(np.float64)
    return WorkerView(
        number,
        busy_pct=float(np.nansum(within * busy)) / known_ns if known_ns else None,
        reading_pct=_worker_share(late, wall, "read_ns"),
        queued_pct=_worker_share(late, wall, "run_queue_ns"),
        batch_ms=float(np.median(wall)) / 1e6 if len(late) else None,
        quiet_s=max(0.0, (now_ns - int(batches["end_ns"].max())) / SECOND_NS),
        history=told(means(begin, end, busy, edges)),
    )


def _stretches(batches: Records) -> tuple[Stamps, Stamps, Values]:
    """(begin, end, percent busy) of each batch and of the time before it, in which skipped batches were made.

    They overlap nowhere. After its last batch nothing is known: it may make another one, or have none to make.
    """
    end = np.maximum.accumulate(batches["end_ns"])
    before = np.concatenate((batches["begin_ns"][:1], end[:-1]))
    begin = np.minimum(np.maximum(batches["begin_ns"], before), end)
    skipped = np.where(batches["skipped_ns"] == NOT_MEASURED, 0, batches["skipped_ns"])
    # Of the first one it is not known how long it was idle before.
    before[:1] -= skipped[:1]
    share = np.minimum(100.0, 100 * skipped / np.maximum(1, begin - before))
    starts, ends = np.empty(2 * len(end), dtype=np.int64), np.empty(2 * len(end), dtype=np.int64)
    starts[0::2], starts[1::2], ends[0::2], ends[1::2] = before, begin, begin, end
    return starts, ends, in_turn(share, _working_pct(batches))


def _working_pct(batches: Records) -> Values:
    """Share of a batch's time in which its makers worked.

    A pool of threads has several batches at a time and lets their samples wait in between: only its stages are work.
    """
    if (batches["threads"] <= 1).all():
        return np.full(len(batches), 100.0)
    stages = np.stack([measured(batches[name]) for name in STAGES])
    spent = np.where(np.isnan(stages).all(axis=0), np.nan, np.nansum(stages, axis=0))
    wall = np.maximum(1, batches["end_ns"] - batches["begin_ns"]) * np.maximum(1, batches["threads"])
    return np.where(batches["threads"] > 1, np.minimum(100.0, 100 * spent / wall), 100.0)


def _worker_share(batches: Records, wall: Values, name: str) -> float | None:
    """Of the time in which these were made, over the threads that made them."""
    known = batches[name] != NOT_MEASURED
    working = float((wall * np.maximum(1, batches["threads"]))[known].sum())
    return min(100.0, 100 * float(batches[name][known].sum()) / working) if working else None


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


LATE_STEPS = 128
"""Last steps that are read again at each look: more than can wait for their device stamps at a time."""
MOST_SHARE = 0.01
"""Share of one CPU that judging may take: where a judgement takes longer, there are fewer of them."""
MOST_WAITS = 20
"""Times the planned distance between two judgements that a costly one may stretch it to, at most."""
GONE_NS = 5 * SECOND_NS
"""Time since its last step after which a training whose process is not there counts as killed."""
YOUNG_NS = SECOND_NS // 10
"""A folder that was changed less than this ago is listed again at the next look: more may have come at that moment."""


class RecentReader:
    """Follows a run folder. `snapshot()` may be called as often as wanted; it reads only what is new.

    Args:
        folder: the run.
        clock: tells CLOCK_MONOTONIC, ns.
        judge_s: what costs most, shares, histories and the verdict, is done anew after so long.

    Raises:
        RecordError: not a run folder, or one of an unknown version.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = time.monotonic_ns, judge_s: float = 0.9) -> None:
        self.folder = folder
        self._clock = clock
        self._judge_ns = round(judge_s * SECOND_NS)
        self._run = open_run(folder)
        self._told: list[TrainingProcess] = []
        self._sampled: tuple[SampledDevice, ...] = ()
        self._changed_ns = -1
        """When the folder was last changed, as far as it was looked at."""
        self._young = False
        self._files = Folder()
        self._stacks = StackFollower(folder)
        self._tails: dict[str, Tail] = {}
        self._closed: set[str] = set()
        """Files to which nothing will be added."""
        self._all_read: set[str] = set()
        """Files to which nothing will be added, and that were read to their end since that is known."""
        self._steady = Steady()
        self._ranks: dict[int, RankView] = {}
        self._turn = 0
        self._last: _Judgement | None = None

    def snapshot(self) -> Snapshot:
        """The state of the run now.

        Raises:
            RecordError: the folder is gone.
        """
        changed = self._look_around()
        news = self._take_in()
        now_ns, last = self._now_ns(), self._last
        if last is not None and not changed and not (news and last.name is None):
            if last.over or now_ns < last.until_ns:
                return last.view if last.over or last.name is None else self._moved(last, now_ns)
            self._look_around(anyway=True)
            self._take_in()
        self._last = self._judge(now_ns)
        return self._last.view

    def _judge(self, now_ns: int) -> _Judgement:
        began = time.thread_time_ns()
        if (self._run.info.get("device") or {}).get("kind", "cpu") != "cpu":
            for tail in self._tails.values():
                if tail.header.kind.name in LATE:
                    tail.refresh(LATE_STEPS * (PAUSES_A_STEP if tail.header.kind.name == PAUSE.name else 1))
        ended = self._run.info.get("ended")
        over = str(ended.get("status")) if isinstance(ended, dict) else None
        if over is None and self._writer_is_gone(now_ns):
            over = "lost"
        if over is not None:
            now_ns = self._files.newest_ns() or now_ns
        run = self._files.gather(self._run, self._told, now_ns, over, self._sampled, self._stacks.table)
        view = snapshot_of(run, self._steady, self._known_ranks(run) if over is None else None)
        self._ranks = {each.rank: each for each in view.rank_views}
        mine = run.mine if view.state == "running" else None
        cost_ns = time.thread_time_ns() - began
        until_ns = now_ns + max(self._judge_ns, min(round(cost_ns / MOST_SHARE), MOST_WAITS * self._judge_ns))
        return _Judgement(
            view, over is not None, None if mine is None else mine.name, run.first_ns or now_ns, now_ns, until_ns
        )

    def _moved(self, last: _Judgement, now_ns: int) -> Snapshot:
        """The last view with the steps that ran since."""
        assert last.name is not None
        step = self._tails[last.name].records()[-1]
        epoch = self._files.epoch(last.name)
        done, end_ns = int(step["step"]) + 1, int(step["step_end_ns"])
        view = moved(last.view, self._run.info, done, end_ns, epoch, last.first_ns, now_ns)
        since_s = view.verdict_since_s
        return view if since_s is None else replace(view, verdict_since_s=since_s + (now_ns - last.at_ns) / SECOND_NS)

    def _known_ranks(self, run: RunRecords) -> dict[int, RankView]:
        """Of several ranks one is looked at in turn, the others stay as they were."""
        numbers = [process.rank for process in ranks_of(run)]
        self._turn += 1
        due = numbers[self._turn % len(numbers)] if numbers else None
        return {rank: view for rank, view in self._ranks.items() if rank != due}

    def _now_ns(self) -> int:
        """Where the run is recorded on another machine, its clock is known by its newest record only."""
        newest = self._files.newest_ns()
        if newest is None:
            return self._clock()
        return max(newest, self._clock()) if self._is_here() else newest

    def _is_here(self) -> bool:
        return (self._run.info.get("host") or {}).get("name") == socket.gethostname()

    def _writer_is_gone(self, now_ns: int) -> bool:
        """Whether the training was killed: its process is not there, and it was on this machine.

        One that has just ended is not: whoever started it has yet to say how.
        """
        tails = [tail for tail in self._tails.values() if tail.header.kind is STEP]
        if not tails or not self._is_here():
            return False
        ended = (int(rows["step_end_ns"][-1]) for tail in tails if len(rows := tail.records()))
        last_ns = max(ended, default=0)
        if last_ns - self._clock() >= GONE_NS:
            return True  # the machine was started anew since: the clock began at 0
        return now_ns - last_ns >= GONE_NS and not any(
            Path(f"/proc/{tail.header.pid % AGAIN}").exists() for tail in tails
        )

    def _look_around(self, anyway: bool = False) -> bool:
        """Find what is new in the folder, apart from records. Whether it was changed since the last look."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            if changed_ns == self._changed_ns and not (anyway or self._young):
                return False
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(".rec"))
        except OSError as error:
            raise RecordError(
                f"{self.folder} is gone: the run's folder was removed or moved while it was watched."
            ) from error
        new = [name for name in names if name not in self._tails and name.partition("-")[0] in KEPT]
        for name in new:
            self._open(name)
        if new:
            self._look_for_closed()
        if changed_ns == self._changed_ns and not self._young:
            return False
        before, known_ns = self._run.info, self._changed_ns
        self._changed_ns = changed_ns
        # What changes within the same tick of the file system's clock has no stamp of its own.
        self._young = abs(time.time_ns() - changed_ns) < YOUNG_NS
        self._told = processes(self.folder)
        self._sampled = sampled_devices(self.folder) or ()
        with suppress(RecordError):  # as it was, then: it is about to go
            self._run = open_run(self.folder)
        return changed_ns != known_ns or self._run.info != before

    def _look_for_closed(self) -> None:
        """A folder may hold a training after another: those that have ended are not read again and again."""
        for name in self._tails.keys() - self._closed:
            if self._tails[name].header.closed:
                self._closed.add(name)
                continue
            with suppress(RecordError, OSError):
                if RecordFile(self.folder / name).header.closed:
                    self._closed.add(name)

    def _open(self, name: str) -> None:
        path = self.folder / name
        try:
            tail = Tail(path, KEPT[name.partition("-")[0]])
            if tail.header.kind is EVENT:
                self._files.settled[name] = settled_before(path, tail.seen)
        except (RecordError, OSError):
            return  # its header is being written; it is there at the next look
        self._tails[name] = self._files.sources[name] = tail

    def _take_in(self) -> bool:
        """Read what is new in the files. Whether a step was."""
        news = False
        self._stacks.look()
        for name, tail in list(self._tails.items()):
            if name in self._all_read:
                continue
            closed = name in self._closed
            try:
                fresh = tail.look()
            except OSError:
                continue  # what was read of a file that is gone stays
            if closed:
                self._all_read.add(name)
            if len(fresh) == 0:
                continue
            if name in self._files.settled:
                self._files.settled[name] = np.concatenate((self._files.settled[name], settled(fresh)))
            news |= tail.header.kind is STEP
        return news


@dataclass(frozen=True)
class _Judgement:
    """A judgement, and what may be shown until the next."""

    view: Snapshot
    over: bool
    name: str | None
    """File of the steps that it shows; `None` while it shows none."""
    first_ns: int
    """When the first step began."""
    at_ns: int
    until_ns: int


def settled_before(path: Path, count: int) -> Records:
    """Events among the first `count` of a file that still count."""
    parts: list[Records] = [np.empty(0, dtype=EVENT.dtype)]
    for chunk in RecordFile(path).chunks() if count else ():
        parts.append(settled(chunk[chunk["seq"] <= count]))
        if chunk["seq"][-1] >= count:
            break
    return np.concatenate(parts)
