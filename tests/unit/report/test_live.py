"""The live view: what it shows of moments made by hand and of recorded runs, and that it fits whatever terminal."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from support.jobs import Rank, record
from support.snapshots import NAN, VERDICT, WAVE, device, rank, running, shown, text, worker
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import CodeView, HostView, Snapshot
from whyidle.analyse.where.places import Where
from whyidle.record.run import create_run, update_run
from whyidle.report import live
from whyidle.report.live.lines import Row, wrapped
from whyidle.report.render import bars
from whyidle.scenarios.planted import MS, Step, train
from whyidle.terminal.console import json_text

FIGURES = ("412/1000 steps", "63 %", "12.1 of 80.0 GB", "compute 63 %", "1234", "3.1 of 8", "3.2 of 4 CPUs")
ESSENTIALS = (
    *("ssd · caffe", "running", "2:10 min left", "epoch 3", "NVIDIA H200", "held down by power", "312 W", "54 °C"),
    *("1755/1980 MHz", "to device 3.2 GB/s", "to host 100 MB/s", "link 4 x8 (able to 4 x16)", "25.9 ms", "input 31 %"),
    *("copy 4 %", "host 2 %", "↑ 4 %", "batches ready", "38.1 ms a batch", "steal 0 %", "I/O wait 4 %", "(for 42 s)"),
    *("reads 300 MB/s, disk 120 MB/s", "shm 0.2 of 2.0 GB", "about 1712 samples/s (1500 to 1900)", "█ compute 63 %"),
    *("░ input 31 %", "8.0 GB, 20.0 GB free"),
)
PLACES = {"busy", "SM", "memory", "PCIe", "step", "queue", "workers", "host", "verdict", "try"}


def row_of(rows: list[str], begin: str) -> str:
    return next(row.rstrip() for row in rows if row.startswith(begin))


@pytest.mark.parametrize(("size", "said"), [((80, 24), FIGURES + ESSENTIALS[:-1]), ((60, 20), FIGURES)])
def test_a_terminal_shows_all_that_it_has_room_for(size: tuple[int, int], said: tuple[str, ...]) -> None:
    rows = shown(running(), *size, keys=True)
    assert len(rows) == size[1]
    assert all(cell_len(row) <= size[0] for row in rows)
    together = "\n".join(rows)
    assert [each for each in said if each not in together] == []
    assert " ".join(VERDICT.title.split()) in " ".join(together.split())
    if size[0] == 80:
        assert {row.split()[0] for row in rows} >= PLACES
        assert row_of(rows, "  busy").endswith(" 63 %")
        assert row_of(rows, "  SM active").endswith(" 31 %")


def test_more_room_shows_a_row_for_each_worker_higher_graphs_and_the_evidence() -> None:
    large = text(running(), 120, 40)
    assert "reading, of the time spent making batches: 45.2 % (should be below 20)" in large
    assert "45.2 %" not in text(running())
    assert large.count("reading  45 %  queued   2 %  38.1 ms/batch") == 4
    assert ESSENTIALS[-1] in large
    # Above the row with the label stand rows of nothing but signs.
    rows = large.splitlines()
    above = rows[next(i for i, row in enumerate(rows) if row.startswith("  busy")) - 1].strip()
    assert above
    assert set(above) <= {chr(c) for c in range(0x2800, 0x2900)} | {" "}


QUIET = running(makers=(worker(0), worker(1, quiet_s=12.0), worker(2, quiet_s=12.0, batch_ms=9000.0)))
NEXT = replace(VERDICT.next[0], predicted_samples_per_s=460.46, low=276.3, high=460.46)
WATCHED = Snapshot("watch", "", "watching", devices=(device(),), host=HostView(machine_busy_pct=12.0, tree_cpus=0.1))
EPOCH = running(planned_steps=None, left_s=None, epoch_done=12, epoch_steps=200, epoch_left_s=30.0)
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
CASES: dict[str, tuple[Snapshot, tuple[str, ...], tuple[str, ...]]] = {
    "nothing measured": (
        Snapshot("ssd · naive", "emulated Test", "starting"),
        ("waiting for the first step", "no accelerator recorded", "step n/a", "host n/a", "queue n/a"),
        ("0 %", NO_GPU),
    ),
    "no figures of the device": (
        running(devices=(device(busy_pct=(NAN,) * 20, sm_active_pct=(), memory_used_bytes=None, memory_pct=()),)),
        ("busy n/a", "memory n/a"),
        ("SM active",),
    ),
    "no workers": (
        running(makers=(), made_in_training=True, workers=1, worker_busy_pct=76.0, queue_ready=None),
        ("none: samples are made in the training process", "none: the loader shows no finished batches"),
        ("busy 76 %",),
    ),
    "many workers": (
        running(makers=tuple(worker(i, busy_pct=float(i)) for i in range(64))),
        ("64 busy 32 % (0 to 63)",),
        (),
    ),
    "ranks": (
        running(rank_views=tuple(rank(i) for i in range(8)), ranks=8),
        ("8 together 9572 samples/s", "(rank 0 of 8)"),
        (),
    ),
    "a rank of unknown speed": (
        running(rank_views=(rank(0), rank(1, samples_per_s=None)), ranks=2),
        ("n/a",),
        ("together",),
    ),
    "an epoch": (EPOCH, ("epoch 3 12/200 30 s left of it",), ()),
    "an estimated epoch": (
        replace(EPOCH, epoch_estimated=True, quiet_s=34.0),
        ("epoch 3 12/about 200", "no step for 34 s"),
        (),
    ),
    "accelerators alone": (
        WATCHED,
        ("no steps: accelerators and machine alone", "machine 12 % busy"),
        ("samples/s", "verdict", "workers", "0.1 CPUs"),
    ),
    "no accelerator": (Snapshot("watch", "", "watching", host=HostView(machine_busy_pct=3.0)), (NO_GPU,), ()),
    "a verdict of a whole run": (
        running(verdict_of_whole_run=True, verdict_since_s=None, verdict_samples_per_s=900.0),
        ("(of the whole run)", "about 1712 samples/s (1500 to 1900), now 900"),
        (),
    ),
    "a verdict of a run's end": (
        replace(running(), state="ok", verdict_since_s=25.0),
        ("(of its last seconds; of the whole run: whyidle report)", "ended well"),
        ("(for 25 s)", " left"),
    ),
    "a rounded prediction": (
        running(verdict=replace(VERDICT, next=(NEXT,)), verdict_samples_per_s=233.3),
        ("about 460 samples/s (276 to 460), now 233",),
        (),
    ),
    "a falling rate": (running(trend_pct=-12.0), ("↓ 12 %",), ("-12",)),
    "stand-in data": (running(stand_in="VOC2007"), ("STAND-IN DATA: generated, in place of VOC2007",), ()),
    "a run out of memory": (replace(running(), state="oom", left_s=None), ("out of memory",), ()),
    "a run that is gone": (replace(running(), state="lost", left_s=None), ("its process is gone",), ()),
    "a word that nobody knows": (replace(running(), state="odd", left_s=None), ("odd",), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_moment_is_told_in_words(case: str) -> None:
    view, said, unsaid = CASES[case]
    together = " ".join(text(view).split())
    assert [each for each in said if each not in together] == []
    assert [each for each in unsaid if each in together] == []


def test_of_a_long_list_those_around_the_chosen_one_are_shown_and_sorted_as_asked() -> None:
    many = running(makers=tuple(worker(i) for i in range(64)))
    rows = shown(many, 100, 40, keys=True, focus="workers", chosen=40)
    assert row_of(rows, "▸").split()[1] == "40"
    more = next(row for row in rows if "more workers:" in row)
    assert all(word in more for word in ("before", "after", "↑↓"))
    makers = (worker(0, busy_pct=50.0), worker(1, busy_pct=None), worker(2, busy_pct=20.0))
    for reverse, arrow, order in ((False, "↑", "201"), (True, "↓", "021")):
        rows = shown(running(makers=makers), 100, 44, focus="workers", order=1, reverse=reverse, keys=True)
        assert "".join(row.replace("▸", " ").split()[0] for row in rows if "/batch" in row) == order
        assert arrow in row_of(rows, " workers")
    view = running(rank_views=tuple(rank(i) for i in range(5)), ranks=5)
    rows = [row for row in shown(view, 100, 50, focus="ranks", order=1) if "step 412" in row]
    assert [row.replace("▸", " ").split()[:2] for row in rows] == [[str(i), f"node{i // 4}"] for i in range(4, -1, -1)]
    assert all("busy 60 %" in row for row in rows)


def test_a_worker_that_has_been_quiet_for_long_is_pointed_out() -> None:
    assert [row.split()[0] for row in shown(QUIET, 100, 40) if "quiet 12 s" in row] == ["1"]


def test_pause_notes_and_a_verdict_in_little_room() -> None:
    assert shown(running(), paused=True)[0].endswith("paused")
    assert shown(replace(running(), state="ok"), note="next run")[0].endswith("ended well; next run")
    assert row_of(shown(running(), 40, 8, keys=True), " verdict").split() == ["verdict", "input.storage,", "31", "%"]
    none = replace(VERDICT, cause=None, title="No verdict: too few steps.")
    assert " verdict    No verdict: too few steps." in shown(running(verdict=none), 40, 8)


def test_without_a_job_the_machine_is_drawn_and_told() -> None:
    busy = {"machine_busy": (100.0,) * 60, "machine_busy_pct": 100.0, "memory_used_bytes": 34_800_000}
    seen = HostView(cpu_budget=4.0, cpus=(0.04,) * 60, memory_available_bytes=20_000_000_000, **busy)
    rows = shown(replace(WATCHED, host=seen), 100, 40)
    assert row_of(rows, "  CPU").endswith("100 %")
    assert "memory 20.0 GB free" in "\n".join(rows)
    assert "34.8 MB" not in "\n".join(rows)


OPENING = "with zipfile.ZipFile(self.path) as archive:"
WORKERS = CodeView("workers", 84.3, 412, "/home/me/data.py", 27, "Shards.__getitem__", OPENING, "ZipFile._open")
TRAINING = CodeView("training", 12.0, 48, "/home/me/train.py", 88, "train", "for x, y in loader:", "")
LOOP = "training 12 % train.py:88 for x, y in loader:"
MAKING = "the time in which workers make batches"
NAMED = Where("/home/me/data.py", 27, "Shards.__getitem__", OPENING, 0.91, 380, "ZipFile._open", MAKING)
MADE = Where("/home/me/train.py", 12, "main", "loader = DataLoader(data)", None, 0, time="where the loader is made")


@pytest.mark.parametrize(
    ("code", "where", "width", "said"),
    [
        ((WORKERS, TRAINING), (), 100, (f"workers 84 % data.py:27 {OPENING}", LOOP)),
        ((replace(WORKERS, code=""),), (), 80, ("workers 84 % data.py:27 Shards.__getitem__",)),
        ((WORKERS, TRAINING), (NAMED, MADE), 140, (f"verdict 91 % data.py:27 {OPENING}  of {MAKING}", LOOP)),
        ((), (NAMED,), 90, (f"verdict 91 % data.py:27 {OPENING}",)),
        ((TRAINING,), (MADE,), 100, ("verdict train.py:12 loader = DataLoader(data)  where the loader is made", LOOP)),
        ((), (), 100, ()),
    ],
)
def test_lines_of_code_have_a_row_each_and_the_verdicts_comes_first(
    code: tuple[CodeView, ...], where: tuple[Where, ...], width: int, said: tuple[str, ...]
) -> None:
    rows = [row.rstrip() for row in shown(running(code=code, verdict=replace(VERDICT, where=where)), width, 40)]
    at = next((number for number, row in enumerate(rows) if row.startswith(" code")), 0)
    assert tuple(row[12:] for row in rows[at : at + len(said)]) == said
    assert "\n".join(rows).count("data.py:27") == any("data.py:27" in each for each in said)
    small = [row for row in shown(running(code=(WORKERS, TRAINING)), 80, 10) if "data.py:27" in row]
    assert ["train.py:88" in row for row in small] == [True]


@pytest.mark.parametrize(("ranks", "devices", "workers"), [(1, 0, 0), (1, 1, 3), (9, 8, 64), (9, 1, 64), (1, 8, 3)])
@pytest.mark.parametrize("size", [(40, 8), (60, 20), (80, 24), (81, 11), (132, 50), (250, 90)])
def test_whatever_runs_the_screen_is_kept_and_the_verdict_stays_on_it(
    size: tuple[int, int], workers: int, devices: int, ranks: int
) -> None:
    view = running(
        devices=tuple(device(i) for i in range(devices)),
        makers=tuple(worker(i) for i in range(workers)),
        rank_views=tuple(rank(i) for i in range(ranks)) if ranks > 1 else (),
        ranks=ranks,
    )
    for focus in ("", "ranks", "devices", "workers"):
        rows = shown(view, *size, keys=True, focus=focus, chosen=2)
        assert len(rows) == size[1]
        assert all(cell_len(row) <= size[0] for row in rows)
        assert rows[-1].startswith(" q quit")
        assert any("verdict" in row for row in rows) or size[1] < 12
        assert "412/1000 steps" in "\n".join(rows)
        assert text(replace(view, title="plain"), *size, ascii_only=True, keys=True, focus=focus, paused=True).isascii()


maybe = st.none() | st.floats(0, 1e6)
histories = st.lists(st.floats(0, 100) | st.just(NAN), max_size=300).map(tuple)


@settings(max_examples=40)
@given(
    st.tuples(st.integers(1, 200), st.integers(1, 60)),
    st.booleans(),
    st.tuples(maybe, maybe, maybe, maybe),
    histories,
    st.text(max_size=90),
)
def test_no_figures_whatever_break_the_frame(
    size: tuple[int, int],
    ascii_only: bool,
    some: tuple[float | None, ...],
    history: tuple[float, ...],
    title: str,
) -> None:
    one, two, three, four = some
    share = None if four is None else four / 1e4
    hostile = CodeView("training", 12.0, 48, "/home/me/世界.py", 8, "f", f"\x1b[31m世界{title}" * 20, "")
    view = running(
        left_s=one,
        samples_per_s=two,
        queue_ready=share,
        queue_capacity=None if three is None else int(three),
        devices=(device(busy_pct=history, sm_active_pct=history, power_w=history, memory_total_bytes=None),),
        makers=(worker(busy_pct=share, reading_pct=share, queued_pct=share, batch_ms=two, quiet_s=one),) * 3,
        host=HostView(tree_cpus=three, cpu_budget=three, cpus=history),
        code=(hostile, WORKERS),
    )
    rows = live.screen(replace(view, title=title), *size, live.Options(ascii_only=ascii_only, keys=True))
    assert len(rows) <= size[1]
    for row in rows:
        assert row.cells == cell_len(row.plain) <= size[0]
        assert not any(unicodedata.category(c) == "Cc" for c in row.plain)


def test_help_names_every_key_and_cuts_no_sentence_at_80_columns() -> None:
    rows = shown(running(), 80, 60, help=True)
    assert not any("…" in row for row in rows)
    said = " ".join(" ".join(rows).split())
    keys = ("q, Ctrl-C", "h, ?", "p, space", "Tab", "up, down", "outside steps (boundary)")
    assert [each for each in keys if each not in said] == []
    # Keys come first, and are all there on 24 rows.
    assert any("ASCII signs" in row for row in shown(running(), 80, 24, help=True))
    assert text(running(), ascii_only=True, help=True).isascii()


def test_nothing_that_was_recorded_reaches_the_terminal_or_starts_a_row() -> None:
    line = Row("red", "bold red").add(" plain")
    assert line.ansi(colour=True) == "\x1b[1;31mred\x1b[0m plain"
    assert line.ansi(colour=False) == "\x1b[1mred\x1b[0m plain"
    for steps in (0, 400):
        view = replace(
            running(), title="a\x1b[2Jb [/x]\nc", device="dev\x07ice", steps=steps, state="x\n::error::y\x1b[1m"
        )
        view = replace(view, verdict=replace(VERDICT, title="waits \x1b]0;x\x07 for data"))
        rows = [row.ansi(colour=False) for row in live.screen(view, 80, 30, live.Options())]
        assert "a?[2Jb [/x] c" in rows[0]
        assert "x ::error::y?[1m" in rows[0]
        assert "x ::error::y?[1m" in live.line(view)
        drawn = "".join((*rows, live.line(view)))
        assert "dev?ice" in drawn
        assert not [each for each in ("\n", "\x07", "\x1b]", "\x1b[2J", "\x1b[1mx") if each in drawn]


def test_wrapped_keeps_figures_and_units_together() -> None:
    for width in range(16, 60):
        rows = wrapped("It waits 31 % of the time, for 42 s of 9000 samples/s", width)
        assert all(len(row) <= width for row in rows)
        assert not any(row.endswith(("31", "42", "9000")) for row in rows)
    assert " ".join(wrapped("a b  c", 3)) == "a b c"


def test_graphs_and_gauges_tell_zero_from_not_measured_and_the_least_from_nothing() -> None:
    assert bars.graph((0.0, NAN, 100.0, 50.0), 2, 1) == ("⡀⣧",)
    assert bars.graph((0.0, NAN, 50.0, 100.0), 2, 2) == (" ⢸", "⡀⣿")
    assert bars.graph((0.0, NAN, 50.0, 100.0), 4, 2, ascii_only=True) == ("   @", "_ @@")
    assert bars.graph((), 3, 1) == ("   ",)
    lengths = [tuple(map(len, bars.gauge(share, 10))) for share in (0.0, 0.001, 0.5, 1.0)]
    assert lengths == [(0, 10), (1, 9), (5, 5), (10, 0)]
    assert bars.spark([0.0, NAN, 100.0], 3) == "▁ █"
    assert bars.spark([0.0, NAN, 100.0], 3, ascii_only=True) == "_ @"
    assert bars.spark([50.0], 3) == "  ▄"
    drawn = row_of(shown(running(devices=(device(busy_pct=WAVE, sm_active_pct=()),))), "  busy")
    assert bars.graph(WAVE, 80 - 12 - 7, 1)[0] in drawn
    # A gap in the history of CPUs is no full load.
    measured = replace(running().host, cpus=(*(NAN,) * 100, 2.0, NAN))
    row = row_of(shown(running(host=measured), 120, 40), "  CPU")
    assert len(row.removeprefix("  CPU").removesuffix("n/a").strip()) == 1


@pytest.mark.parametrize("size", [(39, 5), (40, 8), (80, 24), (120, 40)])
def test_a_recording_that_ended_without_a_step_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    create_run(tmp_path / "run", {"command": ["job"], "ended": {"status": "ok"}})
    view = RecentReader(tmp_path / "run").snapshot()
    assert live.line(view) == "job: ended well, no training step was recorded"
    assert "ended well" in text(view, *size)
    assert "waiting" not in text(view, *size)


def test_a_recorded_run_is_shown_as_it_stands(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    line = live.line(RecentReader(tmp_path / "run").snapshot())
    assert "ok, step 60, on emulated Test, 400.0 samples/s, device busy 50 %" in line
    update_run(tmp_path / "run", {"plan": {"steps": 120}, "ended": None})
    for width in (60, 160):
        together = " ".join(text(RecentReader(tmp_path / "run").snapshot(), width).split())
        for said in ("60/120 steps", "The device waits 50 % of the time", "compute 50 %"):
            assert said in together


def test_of_a_job_it_is_said_whose_figures_are_shown(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(), Rank()])
    update_run(tmp_path / "run", {"ended": None})
    view = RecentReader(tmp_path / "run").snapshot()
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        console.print(live.render(view, 60))
    assert "(rank 0 of 2)" in captured.get()
    assert max(map(len, captured.get().splitlines())) <= 60
    assert "samples/s on rank 0 of 2" in live.line(view)


def test_lines_and_json_say_the_same_in_short() -> None:
    assert live.line(Snapshot("ssd · naive", "", "starting")) == "ssd · naive: no training step yet"
    assert live.line(WATCHED) == "watch: NVIDIA H200 busy 63 %, memory 15 %"
    assert live.line(CASES["no accelerator"][0]) == f"watch: {NO_GPU}"
    assert live.line(running(stand_in="VOC2007")).endswith("stand-in data")
    assert shown(running(), 39, 5)[0].startswith("ssd · caffe: running, step 412/1000")
    assert shown(running(), 39, 5)[1] == "too small: 39×5, needs 40×8"
    view = running(devices=(device(busy_pct=(NAN, 5.0), sm_active_pct=(), memory_used_bytes=None),))
    content = json.loads(json_text(live.as_json(view)))
    assert (content["format"], content["version"]) == ("whyidle-live", 1)
    assert content["devices"][0]["busy_pct"] == [None, 5.0]
    assert content["devices"][0]["memory_used_bytes"] is None
    durations = [live.duration(seconds) for seconds in (0.4, 59.4, 59.6, 187, 7500)]
    assert durations == ["0 s", "59 s", "1:00 min", "3:07 min", "2:05 h"]
