"""Attribution against ground truth: random trainings on the emulated device and a virtual clock.

The truth (`VirtualRun.truth`) is told by the engines and the training loop themselves, and summed instant by instant;
it shares nothing with the analysis but the order in which causes are blamed.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallscope.analyse.facts import facts_of
from stallscope.analyse.partition import PARTS
from stallscope.devices.emulated import EmulatedSpec
from stallscope.record.run import open_run
from virtual import MS, Step, VirtualRun, Workers, train

MOST_ERROR = 0.001
"""Of wall time, for each part."""


@st.composite
def heavy_tailed(draw: st.DrawFn) -> st.SearchStrategy[int]:
    """Loading times around a median with a Pareto tail: one in a few dozen takes many times as long."""
    median = draw(st.sampled_from([0, MS // 5, 2 * MS, 8 * MS, 30 * MS]))
    shape = draw(st.sampled_from([1.1, 1.5, 3.0]))
    return st.floats(0.001, 1.0).map(lambda u: int(median * min(100.0, math.pow(u, -1 / shape))))


@st.composite
def trainings(draw: st.DrawFn) -> tuple[list[list[Step]], Workers | None, EmulatedSpec]:
    fetches = draw(heavy_tailed())
    compute = draw(st.sampled_from([MS // 10, 1 * MS, 9 * MS, 40 * MS]))
    copy = draw(st.sampled_from([0, 4_000, 3_000_000, 40_000_000]))
    pinned, ahead = draw(st.booleans()), draw(st.booleans())
    every = draw(st.sampled_from([1, 2, 4]))
    sync_every = draw(st.sampled_from([1, 3, 10, 1000]))
    within = draw(st.sampled_from([0, 0, 1, 3]))
    beside = draw(st.sampled_from([0, 0, compute // 2, 3 * compute]))
    copy_within = draw(st.sampled_from([0, 0, 0, 1_000_000]))
    epochs = []
    for _ in range(draw(st.integers(1, 3))):
        fetch_ns = draw(st.lists(fetches, min_size=4, max_size=40))
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
                    before_ns=before,
                    host_ns=after,
                    sync=(number + 1) % sync_every == 0,
                    sync_within=bool(within and number % within == 0),
                    within_ns=MS // 3,
                    copy_within=copy_within,
                    micro=(number + 1) % every != 0,
                    beside_ns=beside,
                    boundary_ns=50 * MS if number == len(fetch_ns) - 1 else 0,
                )
                for number, wait in enumerate(fetch_ns)
            ]
        )
    number = draw(st.integers(0, 4))
    workers = Workers(number, draw(st.integers(1, 3)), draw(st.sampled_from([0, 80 * MS]))) if number else None
    spec = EmulatedSpec("test", "Test", 10**12, 10e9, 4e9, queue_depth=draw(st.sampled_from([64, 256, 1024])))
    return epochs, workers, spec


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(training=trainings())
def test_every_part_is_what_the_engines_and_the_loop_really_did(
    tmp_path_factory: pytest.TempPathFactory, training: tuple[list[list[Step]], Workers | None, EmulatedSpec]
) -> None:
    epochs, workers, spec = training
    run = train(tmp_path_factory.mktemp("truth") / "run", epochs, workers=workers, spec=spec)
    assert_true(run)


def assert_true(run: VirtualRun) -> None:
    facts = facts_of(open_run(run.folder))
    assert facts is not None
    parts, window = facts.parts, facts.window
    assert parts.unresolved_steps == parts.unseen_ns == 0
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns == window.wall_ns
    truth = run.truth(window.begin_ns, window.end_ns)
    assert sum(truth.values()) == window.wall_ns
    for part in PARTS:
        found = getattr(parts, f"{part}_ns")
        assert found == pytest.approx(truth[part], abs=MOST_ERROR * window.wall_ns), (part, parts, truth)
