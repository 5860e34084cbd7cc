"""The live view fits whatever terminal it is on: its rows and columns, its signs, its graphs."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from support.snapshots import NAN, VERDICT, WAVE, device, rank, running, shown, text, worker
from whyidle.analyse.recent.snapshot import HostView
from whyidle.report import live
from whyidle.report.live.words import Row, wrapped
from whyidle.report.render import bars


def test_a_terminal_that_is_too_small_says_so_and_how_the_run_stands() -> None:
    rows = shown(running(), 39, 5)
    assert rows[0].startswith("ssd · caffe: running, step 412/1000")
    assert rows[1] == "too small: 39×5, needs 40×8"
    assert all(cell_len(row) <= 39 for row in rows)


@pytest.mark.parametrize("ranks", [1, 9])
@pytest.mark.parametrize("devices", [0, 1, 8])
@pytest.mark.parametrize("workers", [0, 3, 64])
@pytest.mark.parametrize("size", [(40, 8), (60, 20), (80, 24), (81, 11), (132, 50), (250, 90)])
def test_whatever_runs_the_screen_is_kept_and_the_verdict_stays_on_it(
    size: tuple[int, int], workers: int, devices: int, ranks: int
) -> None:
    width, height = size
    view = running(
        devices=tuple(device(i) for i in range(devices)),
        makers=tuple(worker(i) for i in range(workers)),
        rank_views=tuple(rank(i) for i in range(ranks)) if ranks > 1 else (),
        ranks=ranks,
    )
    for focus in ("", "ranks", "devices", "workers"):
        rows = shown(view, width, height, keys=True, focus=focus, chosen=2)
        assert len(rows) == height
        assert all(cell_len(row) <= width for row in rows)
        assert rows[-1].startswith(" q quit")
        assert any("verdict" in row for row in rows) or height < 12
        assert "412/1000 steps" in "\n".join(rows)


maybe = st.none() | st.floats(0, 1e6)
percents = st.none() | st.floats(0, 100)
histories = st.lists(st.floats(0, 100) | st.just(NAN), max_size=300).map(tuple)


@given(
    size=st.tuples(st.integers(1, 200), st.integers(1, 60)),
    ascii_only=st.booleans(),
    left=maybe,
    rate=maybe,
    queue=st.none() | st.floats(0, 64),
    capacity=st.none() | st.integers(0, 4096),
    history=histories,
    busy=percents,
    cpus=maybe,
    title=st.text(max_size=90),
)
def test_no_figures_whatever_break_the_frame(
    size: tuple[int, int],
    ascii_only: bool,
    left: float | None,
    rate: float | None,
    queue: float | None,
    capacity: int | None,
    history: tuple[float, ...],
    busy: float | None,
    cpus: float | None,
    title: str,
) -> None:
    view = running(
        left_s=left,
        samples_per_s=rate,
        queue_ready=queue,
        queue_capacity=capacity,
        devices=(device(busy_pct=history, sm_active_pct=history, power_w=history, memory_total_bytes=None),),
        makers=(worker(busy_pct=busy, reading_pct=busy, queued_pct=busy, batch_ms=rate, quiet_s=left),) * 3,
        host=HostView(tree_cpus=cpus, cpu_budget=cpus, cpus=history),
    )
    view = replace(view, title=title)
    rows = live.screen(view, *size, live.Options(ascii_only=ascii_only, keys=True))
    assert len(rows) <= size[1]
    for row in rows:
        assert row.cells == cell_len(row.plain) <= size[0]
        assert not any(unicodedata.category(c) == "Cc" for c in row.plain)


def test_help_cuts_no_sentence_at_80_columns() -> None:
    rows = shown(running(), 80, 60, help=True)
    assert not any("…" in row for row in rows)
    assert "outside steps (boundary)" in " ".join(" ".join(rows).split())
    # Keys come first, and are all there on 24 rows.
    assert any("ASCII signs" in row for row in shown(running(), 80, 24, help=True))


def test_ascii_holds_nothing_else() -> None:
    view = running(rank_views=tuple(rank(i) for i in range(3)), ranks=3)
    view = replace(view, title="plain")
    for size in ((60, 20), (80, 24), (140, 50)):
        for focus in ("", "workers", "devices"):
            rows = shown(view, *size, ascii_only=True, keys=True, focus=focus, paused=True)
            assert "\n".join(rows).isascii()
    assert "\n".join(shown(view, ascii_only=True, help=True)).isascii()


def test_parts_are_told_apart_without_colour() -> None:
    row = next(row for row in shown(running(), 100, 30) if row.startswith(" step"))
    assert {"█", "░", "▒"} <= set(row)
    legend = text(running(), 100, 30)
    assert "█ compute 63 %" in legend
    assert "░ input 31 %" in legend
    line = Row("red", "bold red").add(" plain")
    assert line.ansi(colour=True) == "\x1b[1;31mred\x1b[0m plain"
    assert line.ansi(colour=False) == "\x1b[1mred\x1b[0m plain"


def test_control_characters_and_markup_of_a_run_reach_no_terminal() -> None:
    view = replace(running(), title="a\x1b[2Jb [/x]\nc", device="dev\x07ice")
    view = replace(view, verdict=replace(VERDICT, title="waits \x1b]0;x\x07 for data"))
    drawn = "".join(row.ansi(colour=False) for row in live.screen(view, 80, 30, live.Options()))
    assert "a?[2Jb [/x] c" in drawn
    assert "dev?ice" in drawn
    assert "\x07" not in drawn
    assert "\x1b]" not in drawn
    assert "\x1b[2J" not in drawn


@pytest.mark.parametrize("steps", [0, 400])
def test_how_a_run_ended_is_one_row_whatever_it_says(steps: int) -> None:
    view = replace(running(), state="x\n::error::y\x1b[31m", steps=steps)
    assert "x ::error::y?[31m" in live.line(view)
    assert "\n" not in live.line(view)
    rows = [row.ansi(colour=False) for row in live.screen(view, 80, 30, live.Options())]
    assert "x ::error::y?[31m" in rows[0]
    assert not any("\n" in row or "\x1b[31m" in row for row in rows)


def test_wrapped_keeps_figures_and_units_together() -> None:
    for width in range(16, 60):
        rows = wrapped("It waits 31 % of the time, for 42 s of 9000 samples/s", width)
        assert all(len(row) <= width for row in rows)
        assert not any(row.endswith(("31", "42", "9000")) for row in rows)
    assert " ".join(wrapped("a b  c", 3)) == "a b c"


def test_a_graph_tells_zero_from_not_measured_and_full_from_half() -> None:
    assert bars.graph((0.0, NAN, 100.0, 50.0), 2, 1) == ("⡀⣧",)
    assert bars.graph((0.0, NAN, 50.0, 100.0), 2, 2) == (" ⢸", "⡀⣿")
    assert bars.graph((0.0, NAN, 50.0, 100.0), 4, 2, ascii_only=True) == ("   @", "_ @@")
    assert bars.graph((), 3, 1) == ("   ",)


def test_a_gauge_shows_the_least_share_and_never_more_than_all() -> None:
    assert [tuple(map(len, bars.gauge(share, 10))) for share in (0.0, 0.001, 0.5, 1.0)] == [
        (0, 10),
        (1, 9),
        (5, 5),
        (10, 0),
    ]


def test_the_history_of_the_view_is_that_of_the_snapshot() -> None:
    row = next(row for row in shown(running(devices=(device(busy_pct=WAVE, sm_active_pct=()),))) if row[2:6] == "busy")
    drawn = bars.graph(WAVE, 80 - 12 - 7, 1)[0]
    assert drawn in row


def test_a_gap_in_the_history_of_cpus_is_no_full_load() -> None:
    measured = replace(running().host, cpus=(*(NAN,) * 100, 2.0, NAN))
    row = next(row for row in shown(running(host=measured), 120, 40) if row.startswith("  CPU"))
    assert row.endswith("n/a")
    assert len(row.removeprefix("  CPU").removesuffix("n/a").strip()) == 1
