"""Series on whole seconds, the window of a growing file, and which verdict is shown."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import rows_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.recent.judged import HOLD_NS, Steady
from whyidle.analyse.recent.series import grid, held, means, rate_since, rates, sums
from whyidle.analyse.recent.tail import Tail
from whyidle.record.schema import NOT_MEASURED, STEP
from whyidle.record.segment import RecordWriter

S = 1_000_000_000
EDGES = np.arange(6, dtype=np.int64) * S


def stamps(*seconds: float) -> np.ndarray:
    return np.array([round(S * each) for each in seconds], dtype=np.int64)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 300), st.integers(0, 100)), min_size=1, max_size=30),
    st.integers(1, 900),
)
def test_means_are_those_of_counting_every_hundredth(spans: list[tuple[int, int, int]], length: int) -> None:
    edges = np.array([0, length, 2 * length, 1000 + 2 * length], dtype=np.int64)
    rows, at = [], 0
    for gap, lasts, value in spans:
        rows.append((at + gap, at + gap + lasts, value))
        at += gap + lasts
    begin, end, value = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    moments = np.arange(edges[-1]) + 0.5
    inside = (moments[:, None] > begin) & (moments[:, None] < end)
    for found, first, after in zip(means(begin, end, value.astype(float), edges), edges, edges[1:], strict=False):
        seen = inside[first:after]
        counted = (seen * value).sum() / seen.sum() if seen.any() else np.nan
        assert found == pytest.approx(counted, nan_ok=True, abs=1e-9)


def test_a_counter_that_was_reset_leaves_a_gap_and_never_a_negative_rate() -> None:
    times, counter = stamps(0, 1, 2, 3, 4, 5), np.array([100, 200, 50, NOT_MEASURED, 450, 500])
    assert rates(times, counter, EDGES) == pytest.approx([100, np.nan, 200, 200, 50], nan_ok=True)
    assert rate_since(times, counter, 0) is None
    assert rate_since(times, counter, 2 * S) == 150
    assert rate_since(times, counter, 5 * S) is None


def test_a_reading_stands_for_the_time_before_it_but_not_for_long() -> None:
    found = held(stamps(1, 2, 5), np.array([10, 30, 50]), EDGES)
    assert found == pytest.approx([10, 30, 50, 50, 50], nan_ok=True)
    found = held(stamps(1, 5), np.array([10, 50]), EDGES)
    assert found == pytest.approx([10, np.nan, 50, 50, 50], nan_ok=True)


def test_amounts_are_spread_over_the_time_they_came_in() -> None:
    assert sums(stamps(0.5, 2.0), stamps(1.5, 4.0), np.array([8.0, 6.0]), EDGES).tolist() == [4, 4, 3, 3, 0]


def test_the_grid_is_of_whole_seconds_that_are_over() -> None:
    assert grid(round(12.7 * S), S, 3).tolist() == [8 * S, 9 * S, 10 * S, 11 * S]


@given(st.lists(st.integers(0, 90), min_size=1, max_size=12), st.integers(1, 50))
def test_a_tail_holds_the_last_records_however_the_file_grew(
    tmp_path_factory: pytest.TempPathFactory, grown: list[int], limit: int
) -> None:
    writer = RecordWriter(tmp_path_factory.mktemp("tail"), STEP)
    tail = Tail(writer.path, limit)
    written = 0
    for more in grown:
        for _ in range(more):
            writer.append(*rows_of(STEP, [{"step": written}])[0])
            written += 1
        writer.flush()
        fresh = tail.look()
        assert fresh["step"].tolist() == list(range(written - min(more, limit), written))
        assert tail.records()["step"].tolist() == list(range(max(0, written - limit), written))
        assert tail.seen == written
    writer.close()


def test_late_fields_are_read_again_however_many_steps_came_since(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, STEP)
    handles = [writer.append(*rows_of(STEP, [{"step": number}])[0]) for number in range(50)]
    writer.flush()
    tail = Tail(writer.path, 500)
    tail.look()
    tail.refresh(10)
    handles += [writer.append(*rows_of(STEP, [{"step": number}])[0]) for number in range(50, 350)]
    writer.flush()
    tail.look()
    for handle in handles[40:]:
        writer.patch(handle, "device_end_ns", handle)
    writer.flush()
    tail.refresh(10)
    assert tail.records()["device_end_ns"].tolist() == [NOT_MEASURED] * 40 + handles[40:]
    writer.close()


@pytest.mark.parametrize("count", [0, 3, 2000])
def test_a_complete_file_is_held_as_it_is_and_asked_no_more_for_what_is_held(tmp_path: Path, count: int) -> None:
    """Small ones are read with their headers."""
    writer = RecordWriter(tmp_path, STEP)
    for number in range(count):
        writer.append(*rows_of(STEP, [{"step": number}])[0])
    writer.close()
    tail = Tail(writer.path, 500)
    held = range(max(0, count - 500), count)
    assert tail.look()["step"].tolist() == list(held)
    assert len(tail.look()) == 0
    tail.refresh(10)
    writer.path.unlink()
    assert tail.records()["step"].tolist() == list(held)
    assert [int(tail.at(number)["step"][0]) for number in held[::100]] == list(held[::100])
    assert len(tail.at(count)) == 0
    assert (len(tail.at(0)) == 0) is (0 not in held)
    assert tail.seen == count


def finding(cause: str | None, share: float) -> Finding:
    return Finding(cause, f"{cause} {share}", share, 0.9)


def judgement(*findings: Finding) -> SimpleNamespace:
    return SimpleNamespace(findings=findings, verdict=findings[0])


def test_a_verdict_does_not_flicker_between_causes_that_are_about_as_good() -> None:
    steady, shown = Steady(), []
    for second in range(20):
        one, other = finding("input.storage", 0.30), finding("input.straggler", 0.31 - 0.02 * (second % 2))
        best = sorted((one, other), key=lambda f: -f.share)
        shown.append(steady.told(judgement(*best), second * S))
    assert {(found.cause, since) for found, since in shown} == {("input.straggler", 0)}
    # Its figures are those of the moment.
    assert shown[1][0].share == 0.29


def test_a_better_cause_takes_over_after_a_while_and_counts_from_when_it_first_led() -> None:
    steady = Steady()
    steady.told(judgement(finding("input.storage", 0.30)), 0)
    told = []
    for second in range(1, 10):
        now = judgement(finding("host.sync", 0.50), finding("input.storage", 0.10))
        told.append(steady.told(now, second * S))
    assert [found.cause for found, _ in told] == ["input.storage"] * 5 + ["host.sync"] * 4
    assert {since for found, since in told if found.cause == "host.sync"} == {S}
    assert HOLD_NS == 5 * S


def test_no_verdict_gives_way_at_once() -> None:
    steady = Steady()
    steady.told(judgement(finding(None, 0.0)), 0)
    assert steady.told(judgement(finding("host.gc", 0.2)), S) == (finding("host.gc", 0.2), S)
