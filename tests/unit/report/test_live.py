"""The live view of moments made by hand: what it says, and that it fits any terminal."""

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

from support.snapshots import NAN, VERDICT, WAVE, device, rank, running, shown, text, worker
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import CodeView, HostView, Snapshot
from whyidle.analyse.where.places import Where
from whyidle.record.run import create_run
from whyidle.report import live
from whyidle.report.live.words import Row, wrapped
from whyidle.report.render import bars
from whyidle.terminal.console import json_text

FIGURES = ("412/1000 steps", "63 %", "12.1 of 80.0 GB", "compute 63 %", "1234", "3.1 of 8", "3.2 of 4 CPUs")
ESSENTIALS = (
    *("ssd · caffe", "running", "2:10 min left", "epoch 3", "NVIDIA H200", "throttled by power", "312 W", "54 °C"),
    *("1755/1980 MHz", "to device 3.2 GB/s", "to host 100 MB/s", "link 4 x8 (can do 4 x16)", "25.9 ms", "input 31 %"),
    *("copy 4 %", "host 2 %", "↑ 4 %", "batches ready", "38.1 ms a batch", "steal 0 %", "I/O wait 4 %", "(for 42 s)"),
    *("reads 300 MB/s, disk 120 MB/s", "shm 0.2 of 2.0 GB", "1712 samples/s", "█ compute 63 %"),
    *("busy ", "SM active ", "PCIe ", " step ", " queue ", " workers ", " host ", " try ", "░ input 31 %"),
)
MORE = ("8.0 GB, 20.0 GB free", "reading, of the time spent making batches: 45.2 % (normal: below 20)")


def row_of(rows: list[str], begin: str) -> str:
    return next(row.rstrip() for row in rows if row.startswith(begin))


@pytest.mark.parametrize(("size", "said"), [((60, 20), ()), ((80, 24), ESSENTIALS), ((120, 40), MORE)])
def test_a_terminal_shows_what_it_has_room_for(size: tuple[int, int], said: tuple[str, ...]) -> None:
    rows = shown(running(), *size, keys=True)
    together = "\n".join(rows)
    assert [each for each in FIGURES + said if each not in together] == []
    assert " ".join(VERDICT.title.split()) in " ".join(together.split())
    assert row_of(rows, "  busy").endswith(" 63 %")
    assert together.count("reading  45 %  queued   2 %  38.1 ms/batch") == 4 * (size[0] == 120)
    if size[0] == 120:
        # A graph of several rows: above the row with the label stand rows of nothing but signs.
        above = rows[next(i for i, row in enumerate(rows) if row.startswith("  busy")) - 1].strip()
        assert set(above) <= {chr(c) for c in range(0x2800, 0x2900)} | {" "} != set()


SLOW = worker(2, quiet_s=12.0, batch_ms=9000.0)
QUIET = running(makers=(worker(0), worker(1, quiet_s=12.0), SLOW))
IN_TRAINING = running(makers=(), made_in_training=True, workers=1, worker_busy_pct=76.0, queue_ready=None)
NEXT = replace(VERDICT.next[0], predicted_samples_per_s=460.46, low=276.3, high=460.46)
ROUNDED = running(verdict=replace(VERDICT, next=(NEXT,)), verdict_samples_per_s=233.3, verdict_of_whole_run=True)
WATCHED = Snapshot("watch", "", "watching", devices=(device(),), host=HostView(machine_busy_pct=12.0, tree_cpus=0.1))
EPOCH = running(planned_steps=None, left_s=None, epoch_done=12, epoch_steps=200, epoch_left_s=30.0)
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
ALONE = Snapshot("watch", "", "watching", host=HostView(machine_busy_pct=3.0))
BARE = device(busy_pct=(NAN,) * 20, sm_active_pct=(), memory_used_bytes=None, memory_pct=())
MANY = running(makers=tuple(worker(i, busy_pct=float(i)) for i in range(64)))
RANKS = tuple(rank(i) for i in range(8))
STARTING = Snapshot("ssd · naive", "emulated Test", "starting")
UNKNOWN = ("waiting for the first step", "no accelerator recorded", "step n/a", "queue n/a")
CASES: list[tuple[Snapshot, tuple[str, ...], tuple[str, ...]]] = [
    (STARTING, UNKNOWN, ("0 %", NO_GPU)),
    (running(devices=(BARE,)), ("busy n/a", "memory n/a"), ("SM active",)),
    (IN_TRAINING, ("none: the training process prepares batches", "loader has no visible queue"), ("busy 76 %",)),
    (MANY, ("64 busy 32 % (0 to 63)",), ()),
    (running(rank_views=RANKS, ranks=8), ("8 together 9572 samples/s", "(rank 0 of 8)"), ()),
    (running(rank_views=(rank(0), rank(1, samples_per_s=None)), ranks=2), ("n/a",), ("together",)),
    (EPOCH, ("epoch 3 12/200 30 s left in it",), ()),
    (replace(EPOCH, epoch_estimated=True, quiet_s=34.0), ("epoch 3 12/about 200", "no step for 34 s"), ()),
    (WATCHED, ("no training: accelerators and machine only", "machine 12 % busy"), ("verdict", "workers", "0.1 CPUs")),
    (ALONE, (NO_GPU,), ("samples/s",)),
    (ROUNDED, ("(of the whole run)", "1.97× faster (1.18–1.97), about 460 samples/s"), ()),
    (
        replace(running(), state="ok"),
        ("(last seconds only; `whyidle report` covers the whole run)", "ended well"),
        ("(for",),
    ),
    (running(trend_pct=-12.0), ("↓ 12 %",), ("-12",)),
    (running(stand_in="VOC2007"), ("STAND-IN DATA: generated, in place of VOC2007",), ()),
    (replace(running(), state="oom", left_s=None), ("out of memory",), (" left",)),
    (replace(running(), state="lost", left_s=None), ("its process is gone",), (" left",)),
]


@pytest.mark.parametrize(("view", "said", "unsaid"), CASES)
def test_a_moment_is_told(view: Snapshot, said: tuple[str, ...], unsaid: tuple[str, ...]) -> None:
    together = " ".join(text(view).split())
    assert [each for each in said if each not in together] == []
    assert [each for each in unsaid if each in together] == []


def test_of_a_long_list_those_around_the_chosen_one_are_shown_and_sorted_as_asked() -> None:
    rows = shown(MANY, 100, 40, keys=True, focus="workers", chosen=40)
    assert row_of(rows, "▸").split()[1] == "40"
    more = next(row for row in rows if "more workers:" in row)
    assert [word for word in ("before", "after", "↑↓") if word not in more] == []
    makers = (worker(0, busy_pct=50.0), worker(1, busy_pct=None), worker(2, busy_pct=20.0))
    for reverse, arrow, order in ((False, "↑", "201"), (True, "↓", "021")):
        rows = shown(running(makers=makers), 100, 44, focus="workers", order=1, reverse=reverse, keys=True)
        assert "".join(row.replace("▸", " ").split()[0] for row in rows if "/batch" in row) == order
        assert arrow in row_of(rows, " workers")
    rows = shown(running(rank_views=RANKS[:5], ranks=5), 100, 50, focus="ranks", order=1)
    told = [row.replace("▸", " ").split()[:2] for row in rows if "busy 60 %" in row]
    assert told == [[str(i), f"node{i // 4}"] for i in range(4, -1, -1)]
    assert [row.split()[0] for row in shown(QUIET, 100, 40) if "quiet 12 s" in row] == ["1"]


def test_pause_notes_a_verdict_in_little_room_and_a_terminal_that_is_too_small() -> None:
    assert shown(running(), paused=True)[0].endswith("paused")
    assert shown(replace(running(), state="ok"), note="next")[0].endswith("ended well; next")
    assert row_of(shown(running(), 40, 8, keys=True), " verdict").split() == ["verdict", "input.storage,", "31", "%"]
    none = replace(VERDICT, cause=None, title="No verdict: too few steps.")
    assert " verdict    No verdict: too few steps." in shown(running(verdict=none), 40, 8)
    rows = shown(running(), 39, 5)
    assert rows[0].startswith("ssd · caffe: running, step 412/1000")
    assert rows[1] == "too small: 39×5, needs 40×8"


def test_without_a_job_the_machine_is_drawn_and_told() -> None:
    seen = HostView(cpu_budget=4.0, cpus=(0.04,) * 60, machine_busy_pct=100.0)
    seen = replace(
        seen, machine_busy=(100.0,) * 60, memory_used_bytes=34_800_000, memory_available_bytes=20_000_000_000
    )
    rows = shown(replace(WATCHED, host=seen), 100, 40)
    assert row_of(rows, "  CPU").endswith("100 %")
    assert "memory 20.0 GB free" in "\n".join(rows)
    assert "34.8 MB" not in "\n".join(rows)


OPENING = "with zipfile.ZipFile(self.path) as archive:"
WORKERS = CodeView("workers", 84.3, 412, "/me/data.py", 27, "Shards.__getitem__", OPENING, "ZipFile._open")
TRAINING = CodeView("training", 12.0, 48, "/me/train.py", 88, "train", "for x, y in loader:", "")
LOOP = "training 12 % train.py:88 for x, y in loader:"
MAKING = "the time in which workers make batches"
NAMED = Where("/me/data.py", 27, "Shards.__getitem__", OPENING, 0.91, 380, "ZipFile._open", MAKING)
MADE = Where("/me/train.py", 12, "main", "loader = DataLoader(data)", None, 0, time="where the loader is made")


@pytest.mark.parametrize(
    ("code", "where", "width", "said"),
    [
        ((WORKERS, TRAINING), (), 100, (f"workers 84 % data.py:27 {OPENING}", LOOP)),
        ((replace(WORKERS, code=""),), (), 80, ("workers 84 % data.py:27 Shards.__getitem__",)),
        ((WORKERS, TRAINING), (NAMED, MADE), 140, (f"verdict 91 % data.py:27 {OPENING}  of {MAKING}", LOOP)),
        ((), (NAMED,), 90, (f"verdict 91 % data.py:27 {OPENING}",)),
        ((TRAINING,), (MADE,), 100, ("verdict train.py:12 loader = DataLoader(data)  where the loader is made", LOOP)),
    ],
)
def test_lines_of_code_have_a_row_each_and_the_verdicts_comes_first(
    code: tuple[CodeView, ...], where: tuple[Where, ...], width: int, said: tuple[str, ...]
) -> None:
    rows = [row.rstrip() for row in shown(running(code=code, verdict=replace(VERDICT, where=where)), width, 40)]
    at = next(number for number, row in enumerate(rows) if row.startswith(" code"))
    assert tuple(row[12:] for row in rows[at : at + len(said)]) == said
    assert "\n".join(rows).count("data.py:27") == ("data.py:27" in said[0])
    small = [row for row in shown(running(code=(WORKERS, TRAINING)), 80, 10) if "data.py:27" in row]
    assert ["train.py:88" in row for row in small] == [True]


@pytest.mark.parametrize(("ranks", "devices", "workers"), [(1, 0, 0), (9, 8, 64), (1, 8, 3)])
@pytest.mark.parametrize("size", [(40, 8), (60, 20), (80, 24), (81, 11), (132, 50), (250, 90)])
def test_whatever_runs_the_screen_is_kept_and_the_verdict_stays_on_it(
    size: tuple[int, int], workers: int, devices: int, ranks: int
) -> None:
    views = tuple(rank(i) for i in range(ranks)) if ranks > 1 else ()
    view = running(devices=tuple(device(i) for i in range(devices)), rank_views=views, ranks=ranks)
    view = replace(view, makers=tuple(worker(i) for i in range(workers)))
    for focus in ("", "ranks", "devices", "workers"):
        rows = shown(view, *size, keys=True, focus=focus, chosen=2)
        assert len(rows) == size[1]
        assert all(cell_len(row) <= size[0] for row in rows)
        assert rows[-1].startswith(" q quit")
        assert any("verdict" in row for row in rows) or size[1] < 12
        assert "412/1000 steps" in "\n".join(rows)
        plain = replace(view, title="plain")
        assert text(plain, *size, ascii_only=True, keys=True, focus=focus, paused=True).isascii()


maybe = st.none() | st.floats(0, 1e6)
histories = st.lists(st.floats(0, 100) | st.just(NAN), max_size=300).map(tuple)
sizes = st.tuples(st.integers(1, 200), st.integers(1, 60))


@settings(max_examples=40)
@given(sizes, st.booleans(), st.tuples(maybe, maybe, maybe, maybe), histories, st.text(max_size=90))
def test_no_figures_whatever_break_the_frame(
    size: tuple[int, int], ascii_only: bool, some: tuple[float | None, ...], history: tuple[float, ...], title: str
) -> None:
    one, two, three, four = some
    share = None if four is None else four / 1e4
    hostile = CodeView("training", 12.0, 48, "/me/世界.py", 8, "f", f"\x1b[31m世界{title}" * 20, "")
    figures = {"left_s": one, "samples_per_s": two, "queue_ready": share, "queue_capacity": three and int(three)}
    makers = (worker(busy_pct=share, reading_pct=share, queued_pct=share, batch_ms=two, quiet_s=one),) * 3
    devices = (device(busy_pct=history, sm_active_pct=history, power_w=history, memory_total_bytes=None),)
    host = HostView(tree_cpus=three, cpu_budget=three, cpus=history)
    view = running(**figures, devices=devices, makers=makers, host=host, code=(hostile, WORKERS))
    options = live.Options(ascii_only=ascii_only, keys=True)
    rows = live.screen(replace(view, title=title), *size, options)
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


@pytest.mark.parametrize("steps", [0, 400])
def test_nothing_that_was_recorded_reaches_the_terminal_or_starts_a_row(steps: int) -> None:
    view = replace(running(), title="a\x1b[2Jb [/x]\nc", device="dev\x07ice", steps=steps, state="x\n::error::y\x1b[1m")
    view = replace(view, verdict=replace(VERDICT, title="waits \x1b]0;x\x07 for data"))
    rows = [row.ansi(colour=False) for row in live.screen(view, 80, 30, live.Options())]
    assert "a?[2Jb [/x] c" in rows[0]
    assert "x ::error::y?[1m" in rows[0]
    assert "x ::error::y?[1m" in live.line(view)
    drawn = "".join((*rows, live.line(view)))
    assert "dev?ice" in drawn
    assert not [each for each in ("\n", "\x07", "\x1b]", "\x1b[2J", "\x1b[1mx") if each in drawn]
    line = Row("red", "bold red").add(" plain")
    assert line.ansi(colour=True) == "\x1b[1;31mred\x1b[0m plain"
    assert line.ansi(colour=False) == "\x1b[1mred\x1b[0m plain"


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
    assert [bars.spark([0.0, NAN, 100.0], 3, ascii_only=plain) for plain in (False, True)] == ["▁ █", "_ @"]
    assert bars.spark([50.0], 3) == "  ▄"
    drawn = row_of(shown(running(devices=(device(busy_pct=WAVE, sm_active_pct=()),))), "  busy")
    assert bars.graph(WAVE, 80 - 12 - 7, 1)[0] in drawn
    # A gap in the history of CPUs is no full load.
    row = row_of(shown(running(host=replace(running().host, cpus=(*(NAN,) * 100, 2.0, NAN))), 120, 40), "  CPU")
    assert len(row.removeprefix("  CPU").removesuffix("n/a").strip()) == 1


@pytest.mark.parametrize("size", [(39, 5), (40, 8), (80, 24), (120, 40)])
def test_what_ended_without_a_step_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    create_run(tmp_path / "run", {"command": ["job"], "ended": {"status": "ok"}})
    view = RecentReader(tmp_path / "run").snapshot()
    assert live.line(view) == "job: ended well, no training step was recorded"
    console = Console(width=size[0], color_system=None)
    with console.capture() as captured:
        console.print(live.render(view, *size))
    assert "ended well" in captured.get()
    assert "waiting" not in captured.get()


def test_lines_and_json_say_the_same_in_short() -> None:
    said = live.line(running(stand_in="VOC2007", ranks=2))
    assert said.startswith("ssd · caffe: running, step 412/1000")
    assert "samples/s on rank 0 of 2" in said
    assert said.endswith("stand-in data")
    assert live.line(STARTING) == "ssd · naive: no training step yet"
    assert live.line(WATCHED) == "watch: NVIDIA H200 busy 63 %, memory 15 %"
    assert live.line(ALONE) == f"watch: {NO_GPU}"
    view = running(devices=(device(busy_pct=(NAN, 5.0), sm_active_pct=(), memory_used_bytes=None),))
    content = json.loads(json_text(live.as_json(view)))
    assert (content["format"], content["version"]) == ("whyidle-live", 1)
    assert (content["devices"][0]["busy_pct"], content["devices"][0]["memory_used_bytes"]) == ([None, 5.0], None)
    durations = [live.duration(seconds) for seconds in (0.4, 59.4, 59.6, 187, 7500)]
    assert durations == ["0 s", "59 s", "1:00 min", "3:07 min", "2:05 h"]
