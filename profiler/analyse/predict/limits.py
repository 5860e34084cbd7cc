"""Whether settings fit: memory, /dev/shm."""

from __future__ import annotations

from ...record.tuning import LoaderSettings
from .closed_form import memory_held
from .pools import in_processes
from .workload import Workload


def infeasible(workload: Workload, settings: LoaderSettings) -> str | None:
    """What it would need beyond the recorded settings, and what there is; `None` where it fits, or nothing is known."""
    limits, recorded = workload.limits, workload.settings
    size = settings.batch_size or workload.batch_size
    batch = (workload.batch_bytes or 0) * size / workload.batch_size
    before = memory_held(recorded.outstanding, float(workload.batch_bytes or 0))
    after = memory_held(settings.outstanding, batch)
    if limits.shm_bytes is not None and in_processes(settings) and settings.num_workers:
        shared = after - (before if in_processes(recorded) and recorded.num_workers else 0.0)
        if shared > limits.shm_bytes:
            return (
                f"{settings.outstanding + 1} batches of {_bytes(batch)} take {_bytes(shared)} more of /dev/shm, "
                f"where {_bytes(limits.shm_bytes)} are free"
            )
    if limits.memory_bytes is not None:
        processes = (settings.num_workers if in_processes(settings) else 0) - (
            recorded.num_workers if in_processes(recorded) else 0
        )
        more = after - before + processes * (limits.worker_bytes or 0)
        if more > limits.memory_bytes:
            pinned = ", all of which may be pinned" if settings.pin_memory else ""
            return (
                f"{settings.num_workers} workers and {settings.outstanding + 1} batches of {_bytes(batch)}{pinned} "
                f"take {_bytes(more)} more memory, where {_bytes(limits.memory_bytes)} can be had"
            )
    return None


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
