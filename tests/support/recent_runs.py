"""Recordings on a given clock: a training of even steps, its workers, two GPUs and the host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from support.crafted import store
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import Snapshot
from whyidle.record.run import create_run, describe_process
from whyidle.record.schema import BATCH, DEVICE, EVENT, HOST, PAUSE, STEP, EventKind, PauseKind

MS = 1_000_000
S = 1000 * MS
START = 5000 * S
ON_GPUS = {"device": {"kind": "cuda", "title": "NVIDIA Test", "count": 2, "uuids": ["GPU-a", "GPU-b"]}}


def steps(count: int, fetch_ms: Any = 5, step_ms: float = 20, per_epoch: int = 10**9, begin: int = START) -> list[dict]:
    """Each fetches, copies for 1 ms, and computes on a device until 1 ms before its end."""
    rows, at = [], begin
    for number in range(count):
        fetch = round(MS * (fetch_ms[number] if isinstance(fetch_ms, list) else fetch_ms))
        length = fetch + round(MS * step_ms)
        epoch = number // per_epoch
        rows.append(
            {
                "step": number,
                "epoch": epoch,
                "flags": 0,
                "samples": 32,
                "fetch_begin_ns": at,
                "fetch_end_ns": at + fetch,
                "queue_ready": 1,
                "queue_capacity": 4,
                "copy_begin_ns": at + fetch,
                "copy_end_ns": at + fetch + MS // 2,
                "copy_bytes": 1000,
                "forward_begin_ns": at + fetch + MS,
                "optimizer_begin_ns": at + length - 2 * MS,
                "optimizer_end_ns": at + length - MS,
                "sync_ns": 0,
                "step_end_ns": at + length,
                "gc_ns": 0,
                "overhead_ns": 1000,
                "skipped": 0,
                "skipped_samples": 0,
                "device_copy_begin_ns": at + fetch,
                "device_copy_end_ns": at + fetch + MS,
                "device_begin_ns": at + fetch + MS,
                "device_end_ns": at + length + 3 * MS,
                "loader": 1 + epoch,
                "batch": (epoch << 32) + number % per_epoch,
            }
        )
        at += length
    return rows


def batches(of: list[dict], workers: int = 2, making_ms: float = 30, ahead_ms: float = 50) -> list[dict]:
    """Each step's batch, finished some time before it was asked for."""
    rows = []
    for number, step in enumerate(of):
        end = step["fetch_end_ns"] - round(MS * ahead_ms)
        rows.append(
            {
                "worker": number % workers,
                "samples": 32,
                "begin_ns": end - round(MS * making_ms),
                "end_ns": end,
                "read_ns": round(MS * making_ms / 4),
                "collate_ns": MS,
                "run_queue_ns": round(MS * making_ms / 10),
                "cpu_ns": round(MS * making_ms / 2),
                "threads": 1,
                "training": os.getpid(),
                "loader": step["loader"],
                "batch": step["batch"],
            }
        )
    return rows


def ring(device: int, seconds: float, percent: float, begin: int = START) -> list[dict]:
    """Utilisation windows of a sixth of a second."""
    length = S // 6
    return [
        {"t_ns": begin + (n + 1) * length, "device": device, "window_ns": length, "utilisation_pct": percent}
        for n in range(int(seconds * 6))
    ]


def states(device: int, seconds: int, begin: int = START, **more: Any) -> list[dict]:
    """Once a second; of what is a pair, the first and what it rises by each second."""
    return [
        {"t_ns": begin + n * S, "device": device}
        | {name: value[0] + n * value[1] if isinstance(value, tuple) else value for name, value in more.items()}
        for n in range(1, seconds + 1)
    ]


def looks(seconds: float, begin: int = START, **more: Any) -> list[dict]:
    """Of the host, five a second."""
    return [
        {"t_ns": begin + n * S // 5, "late_ns": 0, "cpus": 4000}
        | {name: value[0] + n * value[1] if isinstance(value, tuple) else value for name, value in more.items()}
        for n in range(1, int(seconds * 5) + 1)
    ]


def training(folder: Path, seed: int, seconds: float = 30) -> Path:
    """An uneven training of two ranks and three epochs, with all that goes on around it."""
    random = np.random.default_rng(seed)
    create_run(folder, ON_GPUS | {"ended": {"status": "ok"}})
    count = int(seconds * 1000 / 27)
    sampled: list[dict] = []
    for rank in range(2):
        pid = os.getpid() + 10_000_000 * rank
        fetches = (random.exponential(7, count) + (np.arange(count) > count / 2) * 25 * rank).round(3).tolist()
        of = steps(count, fetches, per_epoch=count // 3)
        store(folder, STEP, of, rank, pid)
        made = batches(of)
        for row in made:
            row["training"] = pid
        for worker in range(2):
            path = store(folder, BATCH, [row for row in made if row["worker"] == worker], rank, pid)
            path.rename(path.with_name(f"batch-{rank}-{pid}.w{worker}.rec"))
        told = [(START, EventKind.LOADER_WORKERS, 2), (START, EventKind.LOADER_PREFETCH, 2)]
        told += [(step["fetch_begin_ns"], EventKind.EPOCH_BEGIN, step["epoch"]) for step in of[:: count // 3]]
        events = [{"t_ns": at, "what": what, "value": value} for at, what, value in told]
        for step in of[5::40]:
            at = step["fetch_end_ns"]
            events.append({"t_ns": at, "what": EventKind.GARBAGE, "value": 2, "end_ns": at + 2 * MS})
        store(folder, EVENT, sorted(events, key=lambda e: e.get("end_ns", e["t_ns"])), rank, pid)
        pauses = []
        for step in of[::3]:
            at = step["optimizer_begin_ns"]
            stamps = {"begin_ns": at, "end_ns": at + MS, "device_begin_ns": at, "device_end_ns": at + MS}
            pauses.append({"step": step["step"], "what": PauseKind.SYNC, "amount_bytes": 0} | stamps)
        store(folder, PAUSE, pauses, rank, pid)
        describe_process(folder, rank, pid, {"device": ON_GPUS["device"], "world_size": 2})
        sampled += ring(rank, seconds, 40 + 20 * rank)
        sampled += states(rank, int(seconds), memory_used_bytes=(10**9, 10**6), memory_total_bytes=8 * 10**9)
    store(folder, DEVICE, sorted(sampled, key=lambda row: row["t_ns"]), 0, 1)
    store(folder, HOST, looks(seconds, tree_cpu_ns=(0, 300 * MS), steal_pct=1.0, machine_busy_pct=50.0), 0, 1)
    return folder


def recorded(folder: Path, info: dict[str, Any] | None = None, **kinds: list[dict[str, Any]]) -> Path:
    """A run of the records of each kind, by its name."""
    create_run(folder, ON_GPUS if info is None else info)
    of = {"step": STEP, "batch": BATCH, "event": EVENT, "device": DEVICE, "host": HOST}
    for name, rows in kinds.items():
        sampled = name in ("device", "host")
        store(folder, of[name], sorted(rows, key=lambda r: r["t_ns"]) if sampled else rows, pid=1 if sampled else None)
    return folder


def at(folder: Path, seconds: float) -> Snapshot:
    """What a look shows so long after the begin."""
    return RecentReader(folder, lambda: START + round(S * seconds)).snapshot()
