"""What stretches say, and which spans they are cut out with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.crafted import records_of
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.headroom import SETTLING, cuts_of, headroom_of, stretches_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, HEADER_BYTES, STEP, EventKind, StepFlag
from whyidle.scenarios.planted import MS, Step, train

PLAIN, STRETCH, RECOVERY = 0, StepFlag.HEADROOM, StepFlag.RECOVERY
NO_EVENTS = np.empty(0, dtype=EVENT.dtype)


def steps_of(*parts: tuple[int, int, int], gap_ns: int = 0) -> Records:
    """Steps one after another: (how many, ns each, flag). `gap_ns` lie before each stretch."""
    rows, end, before = [], 0, PLAIN
    for count, ns, flag in parts:
        end += gap_ns * (flag == STRETCH != before)
        for _ in range(count):
            end += ns
            rows.append(
                {"step": len(rows), "flags": flag, "samples": 4, "step_end_ns": end, "fetch_begin_ns": end - ns}
            )
        before = flag
    return records_of(STEP, rows)


def event(what: int, begin: int, end: int) -> Records:
    return records_of(EVENT, [{"what": what, "t_ns": begin, "end_ns": end}])


def test_a_stretch_is_compared_with_the_steps_around_it() -> None:
    # A machine that becomes slower and slower: before 10 ns a step, after it 30.
    steps = steps_of((60, 10, PLAIN), (24, 5, STRETCH), (4, 7, RECOVERY), (60, 30, PLAIN))
    (found,) = stretches_of(steps, NO_EVENTS)
    assert found.samples_per_s == pytest.approx(4 / 5e-9)
    assert found.speedup == pytest.approx(20 / 5)
    assert found.error == 0


def test_the_first_steps_of_a_stretch_do_not_count_and_a_few_say_nothing() -> None:
    steps = steps_of((60, 10, PLAIN), (SETTLING, 900, STRETCH), (20, 5, STRETCH), (60, 10, PLAIN))
    assert stretches_of(steps, NO_EVENTS)[0].speedup == pytest.approx(2)
    assert stretches_of(steps_of((60, 10, PLAIN), (SETTLING + 3, 5, STRETCH)), NO_EVENTS) == []


def test_time_outside_the_steps_is_no_part_of_a_stretch() -> None:
    steps = steps_of((60, 10, PLAIN), (24, 5, STRETCH), (60, 10, PLAIN))
    steps["step_end_ns"][70:] += 1000
    steps["fetch_begin_ns"][71:] += 1000
    validation = event(EventKind.BOUNDARY, 652, 1652)
    assert stretches_of(steps, validation)[0].samples_per_s == pytest.approx(4 / 5e-9)
    cuts = cuts_of(steps, validation)
    assert cuts.spans.tolist() == [[600, 652], [1652, 1720]]
    assert cuts.steps.tolist() == list(range(60, 84))


def test_a_cut_begins_with_the_fill_and_ends_with_the_recovery() -> None:
    steps = steps_of((60, 10, PLAIN), (24, 5, STRETCH), (4, 7, RECOVERY), (60, 30, PLAIN), gap_ns=500)
    cuts = cuts_of(steps, event(EventKind.HEADROOM_FILL, 600, 1100))
    assert cuts.spans.tolist() == [[600, 1100 + 24 * 5 + 4 * 7]]
    assert len(cuts.steps) == 28
    # Killed before the fill was told, the stretch is cut at least.
    assert cuts_of(steps, NO_EVENTS).spans.tolist() == [[1100, 1100 + 24 * 5 + 4 * 7]]


def test_several_stretches_give_a_median_and_a_range(tmp_path: Path) -> None:
    run = open_run(create_run(tmp_path / "run", {"headroom": True}))
    parts = [part for ns in (5, 4, 8) for part in ((60, 10, PLAIN), (24, ns, STRETCH))]
    found = headroom_of(run, steps_of(*parts, (60, 10, PLAIN)), NO_EVENTS)
    assert found is not None
    assert (found.rate.value, found.rate.low, found.rate.high) == pytest.approx((4 / 5e-9, 4 / 8e-9, 4 / 4e-9))
    assert found.speedup == pytest.approx(2)
    assert found.rate.repeats == 3


@pytest.mark.parametrize("sync", [True, False], ids=["read each step", "never read"])
def test_on_a_device_with_a_queue_its_own_clock_counts(tmp_path: Path, sync: bool) -> None:
    """Without reading anything the host of the stretch is done in no time, and the device behind for long."""
    usual = Step(fetch_ns=15 * MS, compute_ns=10 * MS, sync=sync)
    fill = Step(fetch_ns=24 * 15 * MS, compute_ns=10 * MS, sync=sync)
    ready = Step(fetch_ns=0, compute_ns=10 * MS, sync=sync)
    train(tmp_path / "without", [[usual] * 260])
    train(tmp_path / "with", [[usual] * 100 + [fill] + [ready] * 23 + [usual] * 160])
    path = next((tmp_path / "with").glob("step-*.rec"))
    stored = np.memmap(path, STEP.dtype, "r+", HEADER_BYTES, (path.stat().st_size - HEADER_BYTES) // 256)
    stored["flags"][100:124] |= StepFlag.HEADROOM
    stored.flush()
    plain, cut = analyse(open_run(tmp_path / "without")), analyse(open_run(tmp_path / "with"))
    assert plain.facts is not None
    assert cut.facts is not None
    assert cut.headroom is not None
    assert cut.headroom.rate.value == pytest.approx(8 / 0.010, rel=0.01)
    predicted = 1 / (1 - plain.facts.parts.share("input"))
    assert cut.headroom.speedup == pytest.approx(predicted, rel=0.03)
    for part in PARTS:
        assert cut.facts.parts.share(part) == pytest.approx(plain.facts.parts.share(part), abs=0.005), part
