"""What activity windows say, on planned kernels with known sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import records_of
from whyidle.analyse.run.activity_windows import Activity, activity_of
from whyidle.analyse.run.window import Window
from whyidle.record.schema import EVENT, KERNEL, NOT_MEASURED, STEP, EventKind, KernelKind

US = 1_000
MAIN, SIDE, LOADER = 7, 20, 40
TRAINING, AUTOGRAD, WORKER = 0, 1, 2
WAIT = KernelKind.SYNC
COPY = KernelKind.COPY


def step(begin: int, end: int, launched: int | None = None, fetch: tuple[int, int] | None = None) -> dict[str, int]:
    """A step whose computation ran in [begin, end), in µs."""
    forward = begin if launched is None else launched
    fetched = fetch or (forward - 1, forward)
    return {
        "fetch_begin_ns": fetched[0] * US,
        "fetch_end_ns": fetched[1] * US,
        "forward_begin_ns": forward * US,
        "device_begin_ns": begin * US,
        "device_end_ns": end * US,
        "step_end_ns": end * US,
    }


def kernel(
    begin: int,
    end: int,
    launched: int | None = None,
    stream: int = MAIN,
    thread: int = TRAINING,
    what: int = KernelKind.KERNEL,
    window: int = 0,
) -> dict[str, int]:
    """Work in [begin, end), launched long before where not said, in µs."""
    launch_ns = (begin - 1000 if launched is None else launched) * US
    row = {"window": window, "what": what, "thread": thread, "begin_ns": begin * US, "end_ns": end * US}
    return row if what == WAIT else row | {"stream": stream, "launch_ns": launch_ns}


def look(
    steps: Sequence[dict[str, int]],
    kernels: Sequence[dict[str, int]],
    windows: Sequence[tuple[int, int]] = ((0, 10_000),),
) -> Activity | None:
    table = records_of(STEP, steps)
    events = records_of(
        EVENT,
        [
            {"t_ns": begin * US, "what": EventKind.ACTIVITY_WINDOW, "value": number, "end_ns": end * US}
            for number, (begin, end) in enumerate(windows)
        ],
    )
    window = Window(0, 10**9, table, 0, table)
    return activity_of(window, events, records_of(KERNEL, kernels))


def seen(*args: Any, **kwargs: Any) -> Activity:
    found = look(*args, **kwargs)
    assert found is not None
    return found


PARTS = ("busy", "idle_launch", "idle_sync", "idle_copy", "idle_other", "loader", "loader_alone")


def parts_us(found: Activity) -> dict[str, float | None]:
    told = {name: getattr(found, f"{name}_ns") for name in ("spans", *PARTS)}
    return {name: None if ns is None else ns / US for name, ns in told.items()}


STEP_SEEN = [step(2000, 2100)]
FETCHED = [step(2000, 2100, launched=1950, fetch=(1900, 1950))]
LATE = kernel(2090, 2100, launched=2085)


@pytest.mark.parametrize(
    ("steps", "kernels", "expected"),
    [
        # A gap before a kernel that came late is the launching's, before one that was queued in time another's.
        (STEP_SEEN, [kernel(2000, 2040), kernel(2070, 2100, launched=2065)], {"busy": 70, "idle_launch": 30}),
        (STEP_SEEN, [kernel(2000, 2040), kernel(2070, 2100, launched=2039)], {"busy": 70, "idle_other": 30}),
        (STEP_SEEN, [], {"idle_other": 100, "loader": None, "loader_alone": None}),
        # Each idle moment is blamed once: copies before waits before launches.
        (
            STEP_SEEN,
            [
                kernel(2000, 2010),
                kernel(2015, 2030, what=COPY),
                kernel(2020, 2050, what=WAIT),
                kernel(2090, 2100, launched=2080),
            ],
            {"busy": 20, "idle_copy": 15, "idle_sync": 20, "idle_launch": 45},
        ),
        # A copy on a stream without kernels of the model, and a waiting thread of the loader, are no reason.
        (
            STEP_SEEN,
            [kernel(2000, 2010), kernel(2010, 2090, what=COPY, stream=SIDE), LATE],
            {"busy": 20, "idle_launch": 80},
        ),
        (
            STEP_SEEN,
            [
                kernel(2000, 2010),
                kernel(2000, 2100, what=WAIT, thread=WORKER),
                kernel(2000, 2005, stream=LOADER, thread=WORKER),
                LATE,
            ],
            {"busy": 20, "idle_launch": 80, "loader": 5},
        ),
        # Kernels of the loader do not make the model busy.
        (
            STEP_SEEN,
            [
                kernel(2000, 2030),
                kernel(2010, 2080, stream=LOADER, thread=WORKER),
                kernel(2500, 2600, stream=LOADER, thread=WORKER),
                LATE,
            ],
            {"busy": 40, "idle_launch": 60, "loader": 170, "loader_alone": 150},
        ),
        # What autograd and collectives launch is the model's.
        (
            STEP_SEEN,
            [
                kernel(2000, 2020),
                kernel(2020, 2060, thread=AUTOGRAD),
                kernel(2060, 2100, thread=AUTOGRAD, stream=SIDE),
            ],
            {"busy": 100},
        ),
        # What the training's thread launches while it fetches is the loader's.
        (
            FETCHED,
            [kernel(2000, 2050), kernel(2050, 2100, launched=1925, stream=LOADER)],
            {"busy": 50, "loader": 50, "loader_alone": 50, "idle_other": 50},
        ),
        # Without the training's thread all is the model's, and the loader not measured.
        (
            STEP_SEEN,
            [kernel(2000, 2050, thread=AUTOGRAD), kernel(2050, 2100, stream=LOADER, thread=NOT_MEASURED)],
            {"busy": 100, "loader": None, "loader_alone": None},
        ),
    ],
)
def test_each_moment_of_a_step_is_busy_or_blamed_on_what_held_it_up(steps: Any, kernels: Any, expected: Any) -> None:
    found = seen(steps, kernels)
    assert parts_us(found) == {"spans": 100} | dict.fromkeys(PARTS, 0) | expected


def test_kernels_are_counted_and_their_median_told() -> None:
    found = seen(STEP_SEEN, [kernel(2000, 2040), kernel(2070, 2100), kernel(2010, 2080, stream=LOADER, thread=WORKER)])
    assert (found.steps, found.windows, found.kernels_per_step, found.median_kernel_ns) == (1, 1, 2.0, 35_000)
    assert seen(STEP_SEEN, []).median_kernel_ns is None


def test_only_steps_whole_inside_a_window_and_launched_in_it_count() -> None:
    steps = [
        step(2000, 2100, launched=900),  # launched before the window: its kernels left no record
        step(2200, 2300),
        step(2950, 3050),  # ends after the window
        step(4000, 4200),
    ]
    found = seen(steps, [kernel(2200, 2300)], windows=[(1000, 3000)])
    assert (found.steps, found.spans_ns, found.busy_ns) == (1, 100_000, 100_000)
    assert found.window_ns == 2_000_000
    assert found.slowdown == 1.0  # 100 µs, the others 100, 100 and 200
    assert look([step(2000, 2100, launched=900)], [], windows=[(1000, 3000)]) is None


def test_windows_add_up_and_keep_their_kernels_apart() -> None:
    kernels = [kernel(2000, 2100, window=0), kernel(5000, 5040, window=1), kernel(5040, 5100, window=0)]
    found = seen([step(2000, 2100), step(5000, 5100)], kernels, windows=[(1000, 3000), (4900, 6000)])
    assert (found.windows, found.steps, found.spans_ns, found.busy_ns) == (2, 2, 200_000, 140_000)


_WORK = st.builds(
    lambda begin, length, early, what, stream, thread: kernel(
        begin, begin + length, begin - early, stream, thread, what
    ),
    st.integers(900, 3000), st.integers(0, 200), st.integers(0, 300),
    st.sampled_from([KernelKind.KERNEL, COPY, WAIT]), st.sampled_from([MAIN, SIDE, LOADER]), st.integers(0, 3),
)  # fmt: skip


@given(st.lists(_WORK, max_size=40), st.lists(st.tuples(st.integers(0, 100), st.integers(1, 400)), min_size=1))
def test_the_parts_sum_to_the_spans_whatever_ran(work: list[dict[str, int]], plan: list[tuple[int, int]]) -> None:
    steps, at = [], 1000
    for gap, length in plan:
        steps.append(step(at + gap, at + gap + length))
        at += gap + length
    found = seen(steps, work, windows=[(0, 10**6)])
    idle = found.idle_launch_ns + found.idle_sync_ns + found.idle_copy_ns + found.idle_other_ns
    assert found.busy_ns + idle == found.spans_ns == sum(length for _, length in plan) * US
    assert min(found.busy_ns, found.idle_launch_ns, found.idle_sync_ns, found.idle_copy_ns, found.idle_other_ns) >= 0
    # Counted the slow way, in µs: no kernel at all is the most that can be idle.
    kernels = [row for row in work if row["what"] == KernelKind.KERNEL]
    covered = {t for row in kernels for t in range(row["begin_ns"] // US, row["end_ns"] // US)}
    spanned = {t for s in steps for t in range(s["device_begin_ns"] // US, s["device_end_ns"] // US)}
    assert found.busy_ns <= len(covered & spanned) * US
    if found.loader_ns is None:
        assert found.busy_ns == len(covered & spanned) * US


def test_what_tracing_may_have_added_is_not_blamed_on_launches() -> None:
    kernels = [kernel(2000, 2040), kernel(2090, 2100, launched=2085)]
    # Untraced steps take 80 µs: 20 of the 50 µs of launch gaps may be the tracing's own.
    found = seen([step(2000, 2100), step(20_000, 20_080)], kernels)
    assert found.slowdown == 1.25
    assert found.launch_share == pytest.approx(30 / 80)
