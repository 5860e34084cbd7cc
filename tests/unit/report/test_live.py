"""The live view as text: what it shows of moments made by hand, and of recorded runs."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from support.snapshots import NAN, VERDICT, WAVE, device, rank, running, worker
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import HostView, Snapshot
from whyidle.record.run import create_run, update_run
from whyidle.report import live
from whyidle.report.live import as_json
from whyidle.report.live.lines import Row, wrapped
from whyidle.report.render import bars
from whyidle.scenarios.planted import MS, Step, train
from whyidle.terminal.console import json_text


def shown(view: Snapshot, width: int = 80, height: int = 24, **options: object) -> list[str]:
    return [row.plain for row in live.screen(view, width, height, live.Options(**options))]  # type: ignore[arg-type]


def text(view: Snapshot, width: int = 80, height: int = 24, **options: object) -> str:
    return "\n".join(shown(view, width, height, **options))


ESSENTIALS = (
    "ssd · caffe",
    "running",
    "412/1000 steps",
    "2:10 min left",
    "epoch 3",
    "NVIDIA H200",
    "held down by power",
    "312 W",
    "54 °C",
    "1755/1980 MHz",
    "12.1 of 80.0 GB",
    "to device 3.2 GB/s",
    "to host 100 MB/s",
    "link 4 x8 (able to 4 x16)",
    "25.9 ms",
    "compute 63 %",
    "input 31 %",
    "copy 4 %",
    "host 2 %",
    "1234",
    "↑ 4 %",
    "3.1 of 8 batches ready",
    "38.1 ms a batch",
    "3.2 of 4 CPUs",
    "steal 0 %",
    "I/O wait 4 %",
    "reads 300 MB/s, disk 120 MB/s",
    "shm 0.2 of 2.0 GB",
    "(for 42 s)",
    "about 1712 samples/s (1500 to 1900)",
)


def test_a_terminal_of_80_columns_and_24_rows_shows_all_essentials() -> None:
    rows = shown(running(), keys=True)
    assert len(rows) == 24
    assert all(cell_len(row) <= 80 for row in rows)
    together = "\n".join(rows)
    assert [each for each in ESSENTIALS if each not in together] == []
    assert {"busy", "SM", "memory", "PCIe", "step", "queue", "workers", "host", "verdict", "try"} <= {
        row.split()[0] for row in rows
    }
    assert next(row for row in rows if row.startswith("  busy")).endswith(" 63 %")
    assert next(row for row in rows if row.startswith("  SM active")).endswith(" 31 %")
    # Nothing of the sentences is cut, whatever the width.
    assert " ".join(VERDICT.title.split()) in " ".join(together.split())


def test_more_room_shows_a_row_for_each_worker_higher_graphs_and_the_evidence() -> None:
    small, large = text(running(), 80, 24), text(running(), 120, 40)
    assert "reading, of the time spent making batches: 45.2 % (should be below 20)" in large
    assert "45.2 %" not in small
    assert large.count("reading  45 %  queued   2 %  38.1 ms/batch") == 4
    # A graph of several rows: above the row with the label stand rows of nothing but signs.
    rows = large.splitlines()
    above = rows[next(i for i, row in enumerate(rows) if row.startswith("  busy")) - 1]
    assert set(above.strip()) <= {chr(c) for c in range(0x2800, 0x2900)} | {" "}
    assert above.strip()


def test_a_narrow_terminal_has_the_telling_figures() -> None:
    rows = shown(running(), 60, 20, keys=True)
    assert len(rows) == 20
    assert all(cell_len(row) <= 60 for row in rows)
    together = "\n".join(rows)
    for each in ("412/1000 steps", "63 %", "12.1 of 80.0 GB", "compute 63 %", "1234", "3.1 of 8", "3.2 of 4 CPUs"):
        assert each in together
    assert " ".join(VERDICT.title.split()) in " ".join(together.split())


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


def test_what_was_not_measured_is_said_and_never_zero() -> None:
    together = text(Snapshot("ssd · naive", "emulated Test", "starting"))
    assert "waiting for the first step" in together
    assert "no accelerator recorded" in together
    assert "0 %" not in together
    assert [row.split()[1] for row in together.splitlines() if row.split()[:1] in (["step"], ["host"], ["queue"])] == [
        "n/a"
    ] * 3
    bare = text(
        running(devices=(device(busy_pct=(NAN,) * 20, sm_active_pct=(), memory_used_bytes=None, memory_pct=()),))
    )
    busy, memory = (next(r for r in bare.splitlines() if r.startswith(f"  {what}")) for what in ("busy", "memory"))
    assert busy.split() == ["busy", "n/a"]
    assert memory.split() == ["memory", "n/a"]
    assert "SM active" not in bare


def test_a_run_without_workers_says_where_batches_are_made() -> None:
    view = running(makers=(), made_in_training=True, workers=1, worker_busy_pct=76.0, queue_ready=None)
    assert "busy 76 %" not in text(view)
    assert "none: samples are made in the training process" in text(view)
    assert "none: the loader shows no finished batches" in text(view)


def test_of_many_workers_those_around_the_chosen_one_are_shown() -> None:
    view = running(makers=tuple(worker(i, busy_pct=float(i)) for i in range(64)))
    rows = shown(view, 100, 40, keys=True, focus="workers", chosen=40)
    chosen = next(row for row in rows if row.startswith("▸"))
    assert chosen.split()[1] == "40"
    more = next(row for row in rows if "more workers:" in row)
    assert "before" in more
    assert "after" in more
    # In a small terminal all are in one row, with how far they differ.
    assert "64  busy 32 % (0 to 63)" in text(view, 80, 24)


def test_workers_and_ranks_are_sorted_as_asked_and_what_is_not_known_comes_last() -> None:
    makers = (worker(0, busy_pct=50.0), worker(1, busy_pct=None), worker(2, busy_pct=20.0))
    numbers = {
        reverse: [
            row.replace("▸", " ").split()[0]
            for row in shown(running(makers=makers), 100, 44, **asked)
            if "/batch" in row
        ]
        for reverse in (False, True)
        for asked in [{"focus": "workers", "order": 1, "reverse": reverse, "keys": True}]
    }
    assert numbers == {False: ["2", "0", "1"], True: ["0", "2", "1"]}
    view = running(rank_views=tuple(rank(i) for i in range(3)), ranks=3)
    rows = [row for row in shown(view, 100, 44, focus="ranks", order=1) if "step 412" in row]
    assert [row.replace("▸", " ").split()[0] for row in rows] == ["2", "1", "0"]


def test_a_worker_that_has_been_quiet_for_long_is_pointed_out() -> None:
    quiet = running(makers=(worker(0), worker(1, quiet_s=12.0), worker(2, quiet_s=12.0, batch_ms=9000.0)))
    assert [row.split()[0] for row in shown(quiet, 100, 40) if "quiet 12 s" in row] == ["1"]


def test_ranks_are_shown_together_and_one_by_one() -> None:
    view = running(rank_views=tuple(rank(i) for i in range(8)), ranks=8)
    assert "8  together 9572 samples/s" in text(view)
    rows = [row for row in shown(view, 100, 50) if "step 412" in row]
    assert [row.split()[:2] for row in rows] == [[str(i), f"node{i // 4}"] for i in range(8)]
    assert all("busy 60 %" in row for row in rows)
    assert "(rank 0 of 8)" in text(view)


def test_one_rank_of_unknown_speed_gives_no_sum() -> None:
    view = running(rank_views=(rank(0), rank(1, samples_per_s=None)), ranks=2)
    assert "together" not in text(view)
    assert "n/a" in next(row for row in shown(view, 100, 50) if row.split()[:1] == ["1"])


@pytest.mark.parametrize(
    ("state", "said"), [("ok", "ended well"), ("oom", "out of memory"), ("lost", "its process is gone"), ("x", "x")]
)
def test_the_end_of_a_run_is_said_in_words(state: str, said: str) -> None:
    view = replace(running(), state=state, left_s=None)
    assert said in shown(view)[0]
    assert "left" not in "".join(shown(view)[1:3])


def test_pause_replay_and_notes_are_said_in_the_first_row() -> None:
    assert shown(running(), paused=True)[0].endswith("paused")
    moment = replace(running(), at_s=63.0)
    assert shown(moment, replay_length_s=200.0, replay_speed=4.0)[0].endswith("▶ replay 1:03 of 3:20 ×4")
    assert shown(moment, replay_length_s=200.0, paused=True)[0].endswith("paused at 1:03 of 3:20")
    assert shown(replace(running(), state="ok"), note="waiting for the next run")[0].endswith(
        "ended well; waiting for the next run"
    )


def test_an_estimated_epoch_is_called_so() -> None:
    view = running(planned_steps=None, left_s=None, epoch_done=12, epoch_steps=200, epoch_left_s=30.0)
    assert "epoch 3 12/200  30 s left of it" in text(view)
    assert "epoch 3 12/about 200" in text(replace(view, epoch_estimated=True))
    assert "no step for 34 s" in text(replace(view, quiet_s=34.0))


def test_accelerators_alone_show_no_steps_and_no_verdict() -> None:
    view = Snapshot("watch", "", "watching", devices=(device(),), host=HostView(machine_busy_pct=12.0, tree_cpus=0.1))
    together = text(view)
    assert "no steps: accelerators and machine alone" in together
    assert "machine 12 % busy" in together
    for absent in ("samples/s", "verdict", "workers", "0.1 CPUs"):
        assert absent not in together
    assert live.line(view) == "watch: NVIDIA H200 busy 63 %, memory 15 %"


def test_without_a_job_the_machine_is_drawn_and_told() -> None:
    seen = HostView(
        cpu_budget=4.0,
        cpus=(0.04,) * 60,
        machine_busy=(100.0,) * 60,
        machine_busy_pct=100.0,
        memory_used_bytes=34_800_000,
        memory_available_bytes=20_000_000_000,
    )
    view = Snapshot("watch", "", "watching", devices=(device(),), host=seen)
    together = text(view, 100, 40)
    assert next(row for row in together.splitlines() if row.startswith("  CPU")).endswith("100 %")
    assert "memory 20.0 GB free" in together
    assert "34.8 MB" not in together


def test_a_machine_without_an_accelerator_says_so_once_it_was_looked_at() -> None:
    looked = Snapshot("watch", "", "watching", host=HostView(machine_busy_pct=3.0))
    said = "no NVIDIA GPU found (`whyidle doctor` says why)"
    assert said in text(looked)
    assert live.line(looked) == f"watch: {said}"
    assert said not in text(Snapshot("watch", "", "watching"))


@pytest.mark.parametrize("size", [(39, 5), (40, 8), (80, 24), (120, 40)])
def test_a_recording_that_ended_without_a_step_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    create_run(tmp_path / "run", {"command": ["job"], "ended": {"status": "ok"}})
    view = RecentReader(tmp_path / "run").snapshot()
    assert live.line(view) == "job: ended well, no training step was recorded"
    together = text(view, *size)
    assert "ended well" in together
    assert "waiting" not in together
    for rows in (6, 3, 1):
        assert "no training step was recorded" in live.panel(view, 80, rows, live.Options())[0].plain


def test_the_smallest_screen_has_the_cause_and_its_share() -> None:
    rows = shown(running(), 40, 8, keys=True)
    assert next(row for row in rows if row.startswith(" verdict")).split() == ["verdict", "input.storage,", "31", "%"]
    none = replace(VERDICT, cause=None, title="No verdict: too few steps.")
    assert " verdict    No verdict: too few steps." in shown(running(verdict=none), 40, 8)


def test_the_verdict_of_a_whole_run_is_called_so() -> None:
    view = running(verdict_of_whole_run=True, verdict_since_s=None, verdict_samples_per_s=900.0)
    assert "(of the whole run)" in " ".join(text(view).split())
    assert "about 1712 samples/s (1500 to 1900), now 900" in " ".join(text(view).split())
    assert live.panel(view, 120, 3, live.Options())[-1].plain.endswith("(of the whole run)")


def test_figures_of_a_prediction_are_rounded_as_in_the_report() -> None:
    change = replace(VERDICT.next[0], predicted_samples_per_s=460.46, low=276.3, high=460.46)
    view = running(verdict=replace(VERDICT, next=(change,)), verdict_samples_per_s=233.3)
    assert "about 460 samples/s (276 to 460), now 233" in " ".join(text(view).split())


def test_a_trend_has_its_direction_once() -> None:
    assert "↓ 12 %" in text(running(trend_pct=-12.0))
    assert "-12" not in text(running(trend_pct=-12.0))


def test_help_cuts_no_sentence_at_80_columns() -> None:
    rows = shown(running(), 80, 60, help=True, replay_length_s=9.0)
    assert not any("…" in row for row in rows)
    assert "outside steps (boundary)" in " ".join(" ".join(rows).split())
    # Keys come first, and are all there on 24 rows.
    assert any("to the end" in row for row in shown(running(), 80, 24, help=True, replay_length_s=9.0))


def test_the_line_of_a_replay_says_which_moment_it_is() -> None:
    assert "running at 1:03 of its replay, step 412" in live.line(running(at_s=63.4))


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


def test_help_names_every_key_and_those_of_a_replay_only_there() -> None:
    plain = text(running(), help=True)
    for key in ("q, Ctrl-C", "h, ?", "p, space", "Tab", "up, down"):
        assert key in plain
    assert "Home, End" not in plain
    assert "Home, End" in text(running(), help=True, replay_length_s=9.0)


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


@pytest.mark.parametrize("rows", [6, 3, 1])
@pytest.mark.parametrize("width", [40, 79, 200])
def test_the_panel_has_exactly_its_rows(rows: int, width: int) -> None:
    for view in (running(), Snapshot("x", "", "starting"), running(devices=(), makers=(), verdict=None)):
        panel = live.panel(view, width, rows, live.Options())
        assert len(panel) == rows
        assert all(row.cells <= width for row in panel)
        assert "whyidle" in panel[0].plain


def test_the_panel_says_what_the_view_says_in_short() -> None:
    rows = [row.plain for row in live.panel(running(), 100, 6, live.Options())]
    assert rows[0].split("  ")[:4] == [" whyidle", "running", "412/1000 steps", "2:10 min left"]
    assert "busy 63 %" in rows[1]
    assert rows[2].endswith("25.9 ms")
    assert "compute 63 %" in rows[3]
    for each in ("1234 samples/s", "queue 3.1 of 8", "workers 4 busy 92 %"):
        assert each in rows[4]
    assert rows[5].endswith("(for 42 s)")
    three = [row.plain for row in live.panel(running(), 100, 3, live.Options())]
    assert "compute 63 %" in three[1]
    assert three[2] == rows[5]


def test_the_panel_takes_fewer_rows_of_a_smaller_terminal() -> None:
    assert [live.rows_for(height) for height in (60, 24, 23, 16, 15, 5)] == [6, 6, 3, 3, 1, 1]


def test_the_snapshot_as_json_has_null_for_what_was_not_measured() -> None:
    view = running(devices=(device(busy_pct=(NAN, 5.0), sm_active_pct=(), memory_used_bytes=None),))
    content = json.loads(json_text(as_json(view)))
    assert (content["format"], content["version"]) == ("whyidle-live", 1)
    assert content["devices"][0]["busy_pct"] == [None, 5.0]
    assert content["devices"][0]["memory_used_bytes"] is None
    assert content["samples_per_s"] == 1234.5
    assert content["verdict"]["cause"] == "input.storage"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_recorded_run_is_shown_as_it_stands(tmp_path: Path, width: int) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    update_run(tmp_path / "run", {"plan": {"steps": 120}, "ended": None})
    together = text(RecentReader(tmp_path / "run").snapshot(), width)
    assert "60/120 steps" in together
    assert "The device waits 50 % of the time" in " ".join(together.split())
    assert "compute 50 %" in together


def test_plain_lines_say_the_same_in_words(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    line = live.line(RecentReader(tmp_path / "run").snapshot())
    assert "ok, step 60, on emulated Test, 400.0 samples/s, device busy 50 %" in line
    assert live.line(Snapshot("ssd · naive", "", "starting")) == "ssd · naive: no training step yet"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (187, "3:07 min"), (7500, "2:05 h")]
)
def test_durations_for_people(seconds: float, said: str) -> None:
    assert live.duration(seconds) == said


def test_the_history_of_the_view_is_that_of_the_snapshot() -> None:
    row = next(row for row in shown(running(devices=(device(busy_pct=WAVE, sm_active_pct=()),))) if row[2:6] == "busy")
    drawn = bars.graph(WAVE, 80 - 12 - 7, 1)[0]
    assert drawn in row


def test_stand_in_data_are_called_so_in_every_form() -> None:
    view = running(stand_in="VOC2007")
    for size in ((60, 20), (80, 24), (120, 40)):
        assert "STAND-IN DATA: generated, in place of VOC2007" in text(view, *size)
    assert "stand-in data" in live.panel(view, 80, 6, live.Options())[0].plain
    assert live.line(view).endswith("stand-in data")
    assert "stand-in" not in text(running()).lower()


def test_a_gap_in_the_history_of_cpus_is_no_full_load() -> None:
    measured = replace(running().host, cpus=(*(NAN,) * 100, 2.0, NAN))
    row = next(row for row in shown(running(host=measured), 120, 40) if row.startswith("  CPU"))
    assert row.endswith("n/a")
    assert len(row.removeprefix("  CPU").removesuffix("n/a").strip()) == 1


def test_the_panel_of_a_training_without_accelerator_shows_the_host() -> None:
    rows = [row.plain for row in live.panel(running(devices=()), 80, 6, live.Options())]
    assert "3.2 of 4 CPUs" in rows[4]
    assert all(rows)
