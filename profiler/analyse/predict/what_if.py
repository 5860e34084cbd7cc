"""A recorded training without some of its work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .workload import Times, Workload


@dataclass(frozen=True)
class VanishedWork:
    """Work that would not be done. Times in ns are means over steps; below 0 there would be more of it."""

    making: float = 0.0
    """Share of making a batch, 0..1, of its computing, waiting and reading alike."""
    queueing: float = 0.0
    """Share of making a batch, 0..1, that is waiting in line: the longest waits are the first to go."""
    loop_ns: float = 0.0
    """Of the training's own part of a step."""
    taking_ns: float = 0.0
    """Of what the training spends on a batch that lies ready: on unpacking it."""
    drawing_ns: float = 0.0
    """Of what the sampler takes for a batch."""
    sending: float = 0.0
    """Share of what workers spend on a finished batch to have it sent, 0..1."""
    moved: bool = False
    """Whether `loop_ns` becomes part of making a batch."""

    def times(self, share: float) -> VanishedWork:
        """So much of it."""
        less: dict[str, float] = {name: share * value for name, value in vars(self).items() if name != "moved"}
        return VanishedWork(**less, moved=self.moved)


def without(workload: Workload, gone: VanishedWork, quicker: float = 0.0) -> Workload:
    """The same training without that work.

    Args:
        quicker: share of its time by which other computing would get quicker if all computing beside it vanished, as
            that leaves it caches and memory to itself.
    """
    left = 1 - gone.making
    pace = 1.0 if gone.moved else 1 - quicker * _computing(workload, gone)
    cpu = workload.cpu_ns * left * pace
    host_ns = _less(workload.host_ns, gone.loop_ns)
    return replace(
        workload,
        cpu_ns=cpu + gone.loop_ns if gone.moved else cpu,
        wait_ns=_cut(workload.wait_ns, gone.queueing) * left,
        read_ns=_cut(workload.read_ns, gone.queueing) * left,
        collate_ns=workload.collate_ns * left * pace,
        slowest_ns=workload.slowest_ns * left * pace,
        host_ns=host_ns * pace if workload.device_ns is None else host_ns,
        handoff_ns=max(0.0, workload.handoff_ns - gone.taking_ns),
        drawing_ns=max(0.0, workload.drawing_ns - gone.drawing_ns),
        # A worker that has less to do is out of the way of its sending thread sooner.
        delay_ns=workload.delay_ns * left * (1 - gone.sending),
        sharing_ns=workload.sharing_ns * (1 - gone.sending),
    )


def _computing(workload: Workload, gone: VanishedWork) -> float:
    """Share of what a batch takes of CPUs, made and trained on, that vanishes, 0..1."""
    making, computes = float(workload.cpu_ns.mean()), min(1.0, workload.main_cpus)
    whole = making + computes * float(workload.host_ns.mean()) + workload.handoff_ns + workload.drawing_ns
    gone_ns = gone.making * making + computes * gone.loop_ns + gone.taking_ns + gone.drawing_ns
    return min(1.0, gone_ns / whole) if whole > 0 else 0.0


def _cut(times: Times, share: float) -> Times:
    """Times none of which is above so much that so large a share of their sum is left out."""
    wanted = (1 - min(1.0, share)) * float(times.sum())
    order = np.concatenate(([0.0], np.sort(times)))
    # Sum of all, were each cut at the time that stands at that place.
    sums = np.cumsum(order) + order * np.append(len(times), np.arange(len(times) - 1, -1, -1))
    cut: Times = np.minimum(times, np.interp(wanted, sums, order) if wanted < sums[-1] else np.inf)
    return cut


def _less(times: Times, less: float) -> Times:
    """Times whose mean is less by so much: each in proportion, since it is not known which of them had more of it."""
    mean = float(times.mean())
    left: Times = times * max(0.0, 1 - less / mean) if mean > 0 else np.maximum(0.0, times - less)
    return left
