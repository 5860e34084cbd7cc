"""The same training with another batch size, made of the samples of the recorded batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .workload import Times, Workload

Line = tuple[float, float]
"""alpha, beta in ns of T(B) = alpha + beta B, the time of a step."""


def with_batch_size(workload: Workload, size: int, rng: np.random.Generator, step: Line | None = None) -> Workload:
    """Workload of batches of `size` samples.

    Samples lie one after the other as they were made, each batch's slowest at a random place among its own, the rest of
    its making spread evenly over the others; another size cuts that line elsewhere. Putting samples together, bytes,
    drawing and the hand-off grow with the size, and so does the step, unless `step` says how: without it a step's fixed
    part counts as growing too, so that larger batches look no better for the device than they may be. Where the slowest
    sample is not known, smaller batches come out too even.
    """
    if size == workload.batch_size:
        return workload
    old, times = workload.batch_size, size / workload.batch_size
    making = workload.cpu_ns - workload.collate_ns + workload.wait_ns + workload.read_ns
    slowest = np.where(np.isnan(workload.slowest_ns), making / old, np.minimum(workload.slowest_ns, making))
    slowest = np.maximum(slowest, making / old)
    share = np.divide(slowest, making, out=np.zeros_like(making), where=making > 0)
    passes = max(1, int(np.ceil(times)))
    made = [workload.cpu_ns - workload.collate_ns, workload.wait_ns, workload.read_ns]
    cpu, wait, read = _cut([np.tile(part, passes) for part in made], np.tile(share, passes), old, size, rng)
    collate = np.full(len(cpu), workload.collate_ns.mean() * times)
    grows = times if step is None else (step[0] + step[1] * size) / (step[0] + step[1] * old)
    epoch = workload.batches_per_epoch
    return replace(
        workload,
        batch_size=size,
        cpu_ns=cpu + collate,
        wait_ns=wait,
        read_ns=read,
        collate_ns=collate,
        slowest_ns=np.full(len(cpu), np.nan),
        host_ns=workload.host_ns * grows,
        device_ns=None if workload.device_ns is None else workload.device_ns * grows,
        handoff_ns=workload.handoff_ns * times,
        drawing_ns=workload.drawing_ns * times,
        sharing_ns=workload.sharing_ns * times,
        latency_ns=workload.latency_ns,
        delay_ns=workload.delay_ns * times,
        batches_per_epoch=None if epoch is None else max(1, round(epoch / times)),
        batch_bytes=None if workload.batch_bytes is None else round(workload.batch_bytes * times),
    )


def _cut(parts: list[Times], share: Times, old: int, size: int, rng: np.random.Generator) -> list[Times]:
    """Each part of the samples' line, cut into batches of `size` from a random sample on; the line's end is joined to
    its begin, and what is left over is left out."""
    recorded = len(share)
    shift = int(rng.integers(old * recorded))
    count = max(1, recorded * old // size)
    edges = np.arange(count + 1) * float(size)
    at = (np.arange(recorded) * old + rng.integers(old, size=recorded) + 0.5 - shift) % (recorded * old)
    into = np.minimum(np.searchsorted(edges, at, side="right") - 1, count)
    made = []
    for part in parts:
        whole = np.concatenate([[0.0], np.cumsum(part * (1 - share))])
        rounds, within = np.divmod(edges + shift, recorded * old)
        even = rounds * whole[-1] + np.interp(within, np.arange(recorded + 1) * float(old), whole)
        slow = np.bincount(into, weights=part * share, minlength=count + 1)[:count]
        made.append(np.diff(even) + slow)
    return made
