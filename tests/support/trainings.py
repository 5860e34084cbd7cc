"""Random trainings: heavy-tailed loading, workers, copies, waits, accumulation, streams, full queues, epochs."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from whyidle.devices.emulated import EmulatedSpec
from whyidle.scenarios.planted import MS, PlantedWorkers, Step

Training = tuple[list[list[Step]], PlantedWorkers | None, EmulatedSpec]
"""Epochs of steps, the loader's workers, the device."""


@st.composite
def heavy_tailed(draw: st.DrawFn) -> st.SearchStrategy[int]:
    """Loading times around a median with a Pareto tail: one in a few dozen takes many times as long."""
    median = draw(st.sampled_from([0, MS // 5, 2 * MS, 8 * MS, 30 * MS]))
    shape = draw(st.sampled_from([1.1, 1.5, 3.0]))
    return st.floats(0.001, 1.0).map(lambda u: int(median * min(100.0, math.pow(u, -1 / shape))))


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    fetches = draw(heavy_tailed())
    compute = draw(st.sampled_from([MS // 10, 1 * MS, 9 * MS, 40 * MS]))
    copy = draw(st.sampled_from([0, 4_000, 3_000_000, 40_000_000]))
    pinned, ahead = draw(st.booleans()), draw(st.booleans())
    every = draw(st.sampled_from([1, 2, 4]))
    sync_every = draw(st.sampled_from([1, 3, 10, 1000]))
    within = draw(st.sampled_from([0, 0, 1, 3]))
    beside = draw(st.sampled_from([0, 0, compute // 2, 3 * compute]))
    copy_within = draw(st.sampled_from([0, 0, 0, 1_000_000]))
    labels = draw(st.sampled_from([0, 0, 40_000]))
    parts = draw(st.sampled_from([1, 1, 3]))
    kernels = draw(st.sampled_from([1, 60, 300]))
    reads = draw(st.sampled_from([0, 0, 0, 2, 20]))
    passed_over = draw(st.sampled_from([0, 0, 0, 5]))
    tail = draw(st.sampled_from([0, 0, compute]))
    epochs = []
    for _ in range(draw(st.integers(1, 3))):
        fetch_ns = draw(st.lists(fetches, min_size=4, max_size=90))
        before = draw(st.sampled_from([0, 0, MS // 10, 3 * MS]))
        after = draw(st.sampled_from([0, 0, MS // 10, 12 * MS]))
        epochs.append(
            [
                Step(
                    fetch_ns=wait,
                    compute_ns=compute,
                    copy_bytes=copy,
                    pinned=pinned,
                    ahead=ahead,
                    # Where the model is called is known from the second step on.
                    before_ns=before if copy or epochs or number else 0,
                    host_ns=after,
                    sync=(number + 1) % sync_every == 0,
                    sync_within=bool(within and number % within == 0),
                    within_ns=MS // 3,
                    copy_within=copy_within,
                    micro=(number + 1) % every != 0,
                    beside_ns=beside,
                    boundary_ns=50 * MS if number == len(fetch_ns) - 1 else 0,
                    kernels=kernels,
                    parts=parts,
                    between_ns=before,
                    labels_bytes=labels,
                    reads=reads,
                    # What nobody announces is seen as long as it runs when something else is.
                    tail_ns=tail if after == 0 else 0,
                    passed_over=bool(passed_over and number % passed_over == 1),
                )
                for number, wait in enumerate(fetch_ns)
            ]
        )
    number = draw(st.integers(0, 4))
    workers = PlantedWorkers(number, draw(st.integers(1, 3)), draw(st.sampled_from([0, 80 * MS]))) if number else None
    spec = EmulatedSpec("test", "Test", 10**12, 10e9, 4e9, queue_depth=draw(st.sampled_from([512, 1024])))
    return epochs, workers, spec
