"""What the replay is compared with: two closed forms that know nothing of a loader's order or its processors.

Both are fed with the same recorded times as the replay. Rates are samples a second.
"""

from __future__ import annotations

from stallscope.analyse.replay.workload import Workload
from stallscope.record.tuning import LoaderSettings


def _times(workload: Workload) -> tuple[float, float]:
    """Making a batch and training on it, mean ns."""
    made = workload.cpu_ns + workload.wait_ns + workload.read_ns
    return float(made.mean()), float(workload.host_ns.mean())


def bound(workload: Workload, settings: LoaderSettings) -> float:
    """min(W/S, 1/g): whichever of loader and training is slower."""
    made, own = _times(workload)
    if settings.num_workers == 0:
        return workload.batch_size * 1e9 / (made + own)
    return workload.batch_size * 1e9 / max(made / settings.num_workers, own)


def queue(workload: Workload, settings: LoaderSettings) -> float:
    """M/M/1/K, as tf.data's model: batches come and go at random, and W times prefetch of them fit the queue."""
    if settings.num_workers == 0:
        return bound(workload, settings)
    made, own = _times(workload)
    own += workload.handoff_ns
    each, size = made / settings.num_workers, settings.outstanding
    load = own / each
    empty = 1 / (size + 1) if abs(load - 1) < 1e-9 else (1 - load) / (1 - load ** (size + 1))
    # `load` is how many batches come while one is trained on; the queue is empty the less often the more do.
    return workload.batch_size * 1e9 / (own + empty * each)
