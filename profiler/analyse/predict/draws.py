"""Sequences of batches and steps drawn from the recorded ones."""

from __future__ import annotations

import numpy as np

from .rows import DrawnTimes, Ints
from .workload import Times, Workload


def draw(workload: Workload, sequences: int, length: int, rng: np.random.Generator) -> DrawnTimes:
    """So many sequences of so many batches, with their steps.

    Stretches of the recording in random order, over all sequences each as often as any other: what follows one another
    stays together, as slow batches often come in a row, and sequences differ as recordings of their length would, while
    all of them together have the tail that was recorded. What is left of a difference in the mean is scaled away.
    """
    recorded = len(workload.cpu_ns)
    batches = _stretches(recorded, sequences * length, rng)
    steps = batches if len(workload.host_ns) == recorded else _stretches(len(workload.host_ns), len(batches), rng)

    def of(times: Times, chosen: Ints) -> Times:
        drawn = times[chosen % len(times)]
        mean = drawn.mean()
        drawn = drawn * (times.mean() / mean) if mean > 0 else drawn
        return drawn.reshape(sequences, length)

    return DrawnTimes(
        of(workload.read_ns, batches),
        of(workload.wait_ns, batches),
        of(workload.cpu_ns, batches),
        of(workload.host_ns, steps),
        None if workload.device_ns is None else of(workload.device_ns, steps),
    )


def _stretches(recorded: int, length: int, rng: np.random.Generator) -> Ints:
    """So many places in the recording: stretches of it in random order, each place about as often as any other."""
    long = int(np.clip(round(2 * recorded ** (1 / 3)), 1, recorded))
    starts = np.arange(0, recorded, long)
    rounds = -(-length // recorded)
    every = np.concatenate([starts + rng.integers(recorded) for _ in range(rounds)])
    return (rng.permutation(every)[:, None] + np.arange(long)).ravel()[:length] % recorded


def together(draws: list[DrawnTimes]) -> DrawnTimes:
    """The draws of several workloads as one: their sequences, one workload's after the other's."""
    devices = [each.device for each in draws if each.device is not None]
    return DrawnTimes(
        np.concatenate([each.read for each in draws]),
        np.concatenate([each.wait for each in draws]),
        np.concatenate([each.cpu for each in draws]),
        np.concatenate([each.host for each in draws]),
        np.concatenate(devices) if devices else None,
    )
