"""What the replay is compared with: two closed forms that know nothing of a loader's order.

Both are fed with the same recorded times as the replay, hand-over and sharing of memory included. Rates are samples a
second.
"""

from __future__ import annotations

from whyidle.analyse.predict import closed_form
from whyidle.analyse.predict.workload import Workload
from whyidle.record.tuning import LoaderSettings


def _times(workload: Workload) -> tuple[float, float, float]:
    """Mean ns of a batch: making it in a worker, the CPU part of that, and training on it."""
    cpu = float(workload.cpu_ns.mean()) + workload.sharing_ns
    return cpu + float((workload.wait_ns + workload.read_ns).mean()), cpu, float(workload.host_ns.mean())


def _alone(workload: Workload) -> float:
    """Without workers."""
    made, _, own = _times(workload)
    return workload.batch_size * 1e9 / (made - workload.sharing_ns + own)


def bound(workload: Workload, settings: LoaderSettings) -> float:
    """Whichever of loader, training and processors is the slowest."""
    if settings.num_workers == 0:
        return _alone(workload)
    made, cpu, own = _times(workload)
    least = closed_form.bound(made, settings.num_workers, own, workload.handoff_ns, cpu, workload.limits.cpus)
    return workload.batch_size * 1e9 / least


def queue(workload: Workload, settings: LoaderSettings) -> float:
    """M/M/1/K, as tf.data's model: batches come and go at random, and W times prefetch of them fit the queue."""
    if settings.num_workers == 0:
        return _alone(workload)
    made, _, own = _times(workload)
    own += workload.handoff_ns
    waits = closed_form.empty_wait(made, settings.num_workers, own, settings.outstanding)
    return workload.batch_size * 1e9 / (own + waits)
