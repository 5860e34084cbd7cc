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

from support.snapshots import NAN, VERDICT, device, rank, running, shown, text, worker
from whyidle.analyse.recent import HostView, RecentReader, Snapshot
from whyidle.analyse.where.places import Where
from whyidle.record.run import create_run
from whyidle.report import bars, live
from whyidle.terminal.console import json_text

ALL = (
    *("ssd · caffe", "running", "412/1000 steps", "2:10 min left", "epoch 3", "1:23 min so far", "batch 32"),
    *("compute 63 % 16.3 ms", "░ input 31 %", "copy 4 %", "host 2 %", "25.9 ms", "1234", "3.1 of 8 batches ready"),
    *("busy 63 %", "SM active 31 %", "12.1 GB of 80.0 GB, 15 %", "⚠ throttled by power cap", "312/700 W", "54 °C"),
    *("1755/1980 MHz", "to device 3.20 GB/s", "to host 100 MB/s", "NVIDIA H200"),
    *("3.2 of 4 CPUs", "machine 81 % busy", "steal 0 %", "I/O wait 4 %", "reads 300 MB/s disk 120 MB/s"),
    *("memory 8.00 GB free 20.0 GB", "shm 200 MB of 2.00 GB", "(for 42 s)", "1.39× faster", "about 1712 samples/s"),
    *("3 ", "93 % 45 % 2 % 38.1 ms", "reading, of the time spent making batches: 45.2 % (normal: below 20)"),
    " ".join(VERDICT.title.split()),
)
SLOW = worker(2, quiet_s=12.0, batch_ms=9000.0)
QUIET = running(makers=(worker(0), worker(1, quiet_s=12.0), SLOW))
IN_TRAINING = running(makers=(), made_in_training=True, workers=0, worker_busy_pct=76.0, queue_ready=None)
NEXT = replace(VERDICT.next[0], predicted_samples_per_s=460.46, low=276.3, high=460.46)
ROUNDED = running(verdict=replace(VERDICT, next=(NEXT,)), samples_per_s=233.3)
WATCHED = Snapshot("watch", "", "watching", devices=(device(),), host=HostView(machine_busy_pct=12.0))
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
ALONE = Snapshot("watch", "", "watching", host=HostView(machine_busy_pct=3.0, memory_available_bytes=20 * 10**9))
BARE = device(busy_pct=(NAN,) * 20, sm_active_pct=(), memory_used_bytes=None)
MANY = running(makers=tuple(worker(i, busy_pct=float(i)) for i in range(64)))
RANKS = tuple(rank(i) for i in range(8))
STARTING = Snapshot("ssd · naive", "emulated Test", "starting")
UNKNOWN = ("waiting for the first training step", "no accelerator recorded", "step n/a", "queue n/a")
PRESSED = running(host=replace(running().host, throttled_pct=30.0, shm_used_bytes=1_900_000_000))
CASES: list[tuple[Snapshot, tuple[str, ...], tuple[str, ...]]] = [
    (running(), ALL, ("n/a",)),
    (STARTING, UNKNOWN, ("0 %", NO_GPU)),
    (running(devices=(BARE,)), ("busy n/a", "memory n/a"), ("SM active",)),
    (IN_TRAINING, ("none: the training process prepares batches", "loader has no visible queue"), ("busy 76 %",)),
    (QUIET, ("38.1 ms ⚠ 12 s", "a batch quiet"), ("9.00 s ⚠",)),
    (MANY, ("63 ━", " 63 %"), ("queued", "ms ⚠")),
    (running(devices=tuple(device(i) for i in range(6))), ("GPU 5 busy 63 % memory 12.1 GB of 80.0 GB",), ("700 W",)),
    (running(rank_views=RANKS, ranks=8), ("1234 on 8 ranks", "60 % 40 % 1193 412 node1"), ()),
    (running(rank_views=(rank(0), rank(1, samples_per_s=None)), ranks=2), ("60 % 40 % n/a 412 node0",), ()),
    (running(planned_steps=None, left_s=None, quiet_s=34.0), ("412 steps, no step for 34 s, epoch 3",), ("left",)),
    (WATCHED, ("no training: accelerators and machine only", "machine 12 % busy"), ("verdict", "workers", "CPUs")),
    (ALONE, (NO_GPU, "free 20.0 GB"), ("samples/s",)),
    (PRESSED, ("⚠ throttled by quota 30 %", "⚠ shm 1.90 GB of 2.00 GB"), ("⚠ steal",)),
    (ROUNDED, ("1.97× faster (1.18–1.97), about 460 samples/s",), ()),
    (
        replace(running(), state="ok"),
        ("(last seconds only; `whyidle report` covers the whole run)", "ended well"),
        ("(for",),
    ),
    (running(stand_in="VOC2007"), ("STAND-IN DATA: generated, in place of VOC2007",), ()),
    (replace(running(), state="oom", left_s=None), ("out of memory",), (" left",)),
    (replace(running(), state="lost", left_s=None), ("its process is gone",), (" left",)),
    (running(verdict=replace(VERDICT, cause=None, title="No verdict: too few steps.")), ("No verdict: too few",), ()),
]


@pytest.mark.parametrize(("view", "said", "unsaid"), CASES)
@pytest.mark.parametrize("width", [80, 200])
def test_a_moment_is_told(view: Snapshot, said: tuple[str, ...], unsaid: tuple[str, ...], width: int) -> None:
    together = text(view, width)
    assert [each for each in said if each not in together] == []
    assert [each for each in unsaid if each in together] == []


def test_what_matters_most_stands_first_and_a_list_by_itself_has_all() -> None:
    view = running(devices=tuple(device(i) for i in range(6)), rank_views=RANKS, ranks=8, makers=MANY.makers)
    names = [row.split()[0] for row in shown(view, 100) if row[1:2].isalpha()]
    first, last = ["verdict", "try", "step", "samples/s", "queue", "ranks"], ["workers", "host", "evidence"]
    assert names[2:] == [*first, *["GPU"] * 6, *last]
    assert live.views(view) == live.VIEWS
    assert live.views(STARTING) == ("",)
    for name, said, unsaid in (("ranks", "node1", "GPU"), ("devices", "700 W", "node1"), ("workers", "63", "GPU")):
        together = text(view, 100, view=name)
        assert [each for each in (said, unsaid, "queue", "412/1000", "verdict") if each in together] == [
            *(said, "412/1000", "verdict"),
        ]
    # A list that is gone leads back to all.
    assert "queue" in text(running(), view="ranks")
    assert "paused" in shown(running(), paused=True)[0]
    assert shown(replace(running(), state="ok"), note="next")[0].endswith("ended well; next")


OPENING = "with zipfile.ZipFile(self.path) as archive:"
WORKERS = Where("/me/data.py", 27, "Shards.__getitem__", OPENING, 0.843, 412, "ZipFile._open", "workers")
TRAINING = Where("/me/train.py", 88, "train", "for x, y in loader:", 0.12, 48, "", "training")
LOOP = "training 12 % train.py:88 for x, y in loader:"
MAKING = "the time in which workers make batches"
NAMED = Where("/me/data.py", 27, "Shards.__getitem__", OPENING, 0.91, 380, "ZipFile._open", MAKING)
MADE = Where("/me/train.py", 12, "main", "loader = DataLoader(data)", None, 0, time="where the loader is made")


@pytest.mark.parametrize(
    ("code", "where", "said"),
    [
        ((WORKERS, TRAINING), (), (f"workers 84 % data.py:27 {OPENING}", LOOP)),
        ((replace(WORKERS, code=""),), (), ("workers 84 % data.py:27 Shards.__getitem__",)),
        ((WORKERS, TRAINING), (NAMED, MADE), (f"verdict 91 % data.py:27 {OPENING}  ({MAKING})", LOOP)),
        ((TRAINING,), (MADE,), ("verdict train.py:12 loader = DataLoader(data)  (where the loader is made)", LOOP)),
    ],
)
def test_lines_of_code_have_a_row_each_and_the_verdicts_comes_first(
    code: tuple[Where, ...], where: tuple[Where, ...], said: tuple[str, ...]
) -> None:
    rows = shown(running(code=code, verdict=replace(VERDICT, where=where)), 140)
    begin = next(number for number, row in enumerate(rows) if row.startswith(" code"))
    assert tuple(row[11:] for row in rows[begin : begin + len(said)]) == said
    assert "\n".join(rows).count("data.py:27") == ("data.py:27" in said[0])


maybe = st.none() | st.floats(0, 1e6)
histories = st.lists(st.floats(0, 100) | st.just(NAN), max_size=150).map(tuple)


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 220), st.booleans(), st.tuples(maybe, maybe, maybe, maybe), histories, st.text(max_size=90))
def test_no_figures_whatever_break_the_frame_or_reach_the_terminal(
    width: int, ascii_only: bool, some: tuple[float | None, ...], history: tuple[float, ...], title: str
) -> None:
    one, two, three, four = some
    part = None if four is None else four / 1e4
    hostile = Where("/me/世界.py", 8, "f", f"\x1b[31m世界{title}" * 20, 0.12, 48, "", "training")
    figures = {"left_s": one, "samples_per_s": two, "queue_ready": part, "queue_capacity": three and int(three)}
    makers = (worker(busy_pct=part, reading_pct=part, queued_pct=part, batch_ms=two, quiet_s=one),) * 3
    devices = (device(busy_pct=history, sm_active_pct=history, power_w=two, memory_total_bytes=None, name=title),)
    host = HostView(tree_cpus=three, cpu_budget=three)
    view = running(**figures, devices=devices, makers=makers, host=host, code=(hostile, WORKERS), rates=history)
    view = replace(view, title=title, device=title, state=title, verdict=replace(VERDICT, title=title))
    for name in live.VIEWS:
        for row in (*shown(view, width, ascii_only=ascii_only, view=name), live.line(view)):
            assert cell_len(row) <= width or row == live.line(view)
            assert not any(unicodedata.category(c) == "Cc" for c in row)


def test_plain_characters_suffice_and_nothing_recorded_starts_a_row() -> None:
    plain = replace(running(rank_views=RANKS, ranks=8, code=(WORKERS, TRAINING)), title="plain")
    for name in live.VIEWS:
        assert "".join(shown(plain, 100, ascii_only=True, view=name, paused=True)).isascii()
    view = replace(running(), title="a\x1b[2Jb [/x]\nc", device="dev\x07ice", state="x\n::error::y\x1b[1m")
    rows = shown(replace(view, verdict=replace(VERDICT, title="waits \x1b]0;x\x07 for data")))
    assert "a?[2Jb [/x] c" in rows[0]
    assert "x ::error::y?[1m" in rows[0]
    assert live.line(view).startswith("a?[2Jb [/x] c: x ::error::y?[1m, 412/1000 steps")
    assert "dev?ice" in "".join(rows)


def test_graphs_and_gauges_tell_zero_from_not_measured_and_the_least_from_nothing() -> None:
    lengths = [tuple(map(len, bars.gauge(part, 10))) for part in (0.0, 0.001, 0.5, 1.0)]
    assert lengths == [(0, 10), (1, 9), (5, 5), (10, 0)]
    assert [bars.spark([0.0, NAN, 100.0], 3, ascii_only=plain) for plain in (False, True)] == ["▁ █", "_ @"]
    assert bars.spark([50.0], 3) == "  ▄"


@pytest.mark.parametrize("width", [39, 80, 120])
def test_what_ended_without_a_step_says_so(tmp_path: Path, width: int) -> None:
    create_run(tmp_path / "run", {"command": ["job"], "ended": {"status": "ok"}})
    view = RecentReader(tmp_path / "run").snapshot()
    assert live.line(view) == "job: ended well, no training step was recorded"
    assert "ended well" in text(view, width)
    assert "waiting" not in text(view, width)


def test_lines_and_json_say_the_same_in_short() -> None:
    said = live.line(running(stand_in="VOC2007", ranks=2, rank_views=RANKS[:2]))
    assert said.startswith("ssd · caffe: running, 412/1000 steps, 2:10 min left")
    assert said.endswith("1234 samples/s on 2 ranks, device busy 63 %, stand-in data")
    assert live.line(STARTING) == "ssd · naive: starting, waiting for the first training step"
    assert live.line(WATCHED) == "watch: NVIDIA H200 busy 63 %, memory 12.1 GB of 80.0 GB, 15 %"
    assert live.line(ALONE) == f"watch: {NO_GPU}"
    view = running(devices=(device(busy_pct=(NAN, 5.0), sm_active_pct=(), memory_used_bytes=None),))
    content = json.loads(json_text(live.as_json(view)))
    assert (content["format"], content["version"]) == ("whyidle-live", 2)
    assert (content["devices"][0]["busy_pct"], content["devices"][0]["memory_used_bytes"]) == ([None, 5.0], None)
    durations = [live.duration(seconds) for seconds in (0.4, 59.4, 59.6, 187, 7500)]
    assert durations == ["0 s", "59 s", "1:00 min", "3:07 min", "2:05 h"]
