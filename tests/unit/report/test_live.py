"""The live view as text: what it shows of moments made by hand, and of recorded runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from support.snapshots import NAN, VERDICT, device, rank, running, shown, text, worker
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import HostView, Snapshot
from whyidle.record.run import update_run
from whyidle.report import live
from whyidle.scenarios.planted import MS, Step, train

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


def test_pause_and_notes_are_said_in_the_first_row() -> None:
    assert shown(running(), paused=True)[0].endswith("paused")
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


def test_the_smallest_screen_has_the_cause_and_its_share() -> None:
    rows = shown(running(), 40, 8, keys=True)
    assert next(row for row in rows if row.startswith(" verdict")).split() == ["verdict", "input.storage,", "31", "%"]
    none = replace(VERDICT, cause=None, title="No verdict: too few steps.")
    assert " verdict    No verdict: too few steps." in shown(running(verdict=none), 40, 8)


def test_the_verdict_of_a_whole_run_is_called_so() -> None:
    view = running(verdict_of_whole_run=True, verdict_since_s=None, verdict_samples_per_s=900.0)
    assert "(of the whole run)" in " ".join(text(view).split())
    assert "about 1712 samples/s (1500 to 1900), now 900" in " ".join(text(view).split())


def test_the_verdict_of_the_end_of_a_run_is_not_taken_for_that_of_the_run() -> None:
    view = replace(running(), state="ok", verdict_since_s=25.0)
    assert "(of its last seconds; of the whole run: whyidle report)" in " ".join(text(view).split())
    assert "(for 25 s)" not in text(view)


def test_figures_of_a_prediction_are_rounded_as_in_the_report() -> None:
    change = replace(VERDICT.next[0], predicted_samples_per_s=460.46, low=276.3, high=460.46)
    view = running(verdict=replace(VERDICT, next=(change,)), verdict_samples_per_s=233.3)
    assert "about 460 samples/s (276 to 460), now 233" in " ".join(text(view).split())


def test_a_trend_has_its_direction_once() -> None:
    assert "↓ 12 %" in text(running(trend_pct=-12.0))
    assert "-12" not in text(running(trend_pct=-12.0))


def test_help_names_every_key() -> None:
    plain = text(running(), help=True)
    for key in ("q, Ctrl-C", "h, ?", "p, space", "Tab", "up, down"):
        assert key in plain


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_recorded_run_is_shown_as_it_stands(tmp_path: Path, width: int) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    update_run(tmp_path / "run", {"plan": {"steps": 120}, "ended": None})
    together = text(RecentReader(tmp_path / "run").snapshot(), width)
    assert "60/120 steps" in together
    assert "The device waits 50 % of the time" in " ".join(together.split())
    assert "compute 50 %" in together


def test_stand_in_data_are_called_so_in_every_form() -> None:
    view = running(stand_in="VOC2007")
    for size in ((60, 20), (80, 24), (120, 40)):
        assert "STAND-IN DATA: generated, in place of VOC2007" in text(view, *size)
    assert live.line(view).endswith("stand-in data")
    assert "stand-in" not in text(running()).lower()
