"""The device's utilisation over time as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from support.crafted import add, analysis_of_run
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.commands.main import main
from whyidle.errors import WhyidleError
from whyidle.record.run import update_run
from whyidle.record.schema import DEVICE
from whyidle.report.plot.utilisation import MOST_WINDOWS, WINDOW_NS, figure, trace_of, traces_of, write_utilisation
from whyidle.scenarios.planted import MS, Step, train

SVG = "{http://www.w3.org/2000/svg}"


def recorded(folder: Path, fetch_ms: int, compute_ms: int, steps: int = 40) -> Path:
    """A training whose batches are made in turn with the computing: the loss is read after every step."""
    train(folder, [[Step(fetch_ns=fetch_ms * MS, compute_ns=compute_ms * MS, sync=True)] * steps])
    return folder


def words(picture: Path) -> str:
    return " ".join(text.strip() for each in ElementTree.parse(picture).iter(f"{SVG}text") for text in each.itertext())


def test_the_windows_say_what_share_of_them_the_device_computed(tmp_path: Path) -> None:
    trace = trace_of("half", analysis_of_run(recorded(tmp_path / "run", 50, 50)), None)
    # 4 s at 100 ms a step, less the warm-up of 2.
    assert len(trace.busy) == pytest.approx(23, abs=1)
    assert np.mean(trace.busy) == pytest.approx(50, abs=2)
    assert trace.gaps == "gaps: half below 50 ms, 95 % below 50 ms"


def test_a_long_training_is_shown_from_its_middle(tmp_path: Path) -> None:
    trace = trace_of("long", analysis_of_run(recorded(tmp_path / "run", 200, 800, 60)), None)
    assert len(trace.busy) == MOST_WINDOWS
    assert (min(trace.busy), max(trace.busy)) == (0, 100)


def test_nvmls_readings_of_the_stretch_are_kept(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", 50, 50)
    window = analysis_of_run(folder).facts.window
    times = (window.begin_ns - MS, (window.begin_ns + window.end_ns) // 2, window.end_ns + MS)
    looks = [{"t_ns": t, "device": 0, "window_ns": WINDOW_NS, "utilisation_pct": 37.0} for t in times]
    add(folder, DEVICE, [*looks, {"t_ns": times[1], "device": 0, "power_mw": 9}])
    [(seconds, percent)] = trace_of("seen", analysis_of_run(folder), folder).sampled
    assert percent == 37.0
    assert seconds == pytest.approx((window.wall_ns - WINDOW_NS) / 2e9, abs=0.1)


def test_a_panel_stands_for_the_typical_run_of_a_cell(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"caffe-b8-r{n}", fetch, 50) for n, fetch in enumerate((50, 60, 90))]
    cells = [
        Cell("caffe", 8, "ok", None, tuple(map(str, runs)), tuple(map(analysis_of_run, runs)), (0, 1, 2)),
        Cell("caffe", 16, "oom", "too large", (), ()),
        Cell("none", 8, "ok", None, (str(runs[0]),), (analysis_of_run(runs[0]),), axes={"feed": "loader-only"}),
    ]
    [trace] = traces_of(compare(cells))
    assert trace.name.endswith("caffe, batch 8")
    assert np.mean(trace.busy) == pytest.approx(100 * 50 / 110, abs=2)


def test_a_run_that_failed_does_not_shift_the_folders(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"caffe-b8-r{n}", 50, 50) for n in range(2)]
    middle = analysis_of_run(runs[1]).facts.window.begin_ns + 1000 * MS
    add(runs[1], DEVICE, [{"t_ns": middle, "device": 0, "window_ns": MS, "utilisation_pct": 64.0}])
    cell = Cell("caffe", 8, "ok", None, tuple(map(str, runs)), (analysis_of_run(runs[1]),), (1,))
    [trace] = traces_of(compare([cell]))
    assert [percent for _, percent in trace.sampled] == [64.0]
    # Of several devices none is the run's.
    add(runs[1], DEVICE, [{"t_ns": middle, "device": 1, "window_ns": MS, "utilisation_pct": 50.0}])
    assert trace_of("two", analysis_of_run(runs[1]), runs[1]).sampled == ()


def test_the_command_draws_a_run_and_names_its_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    folder, picture = recorded(tmp_path / "run", 50, 50), tmp_path / "trace.svg"
    assert main(["report", str(folder), "--trace-plot", str(picture)]) == 0
    said = words(picture)
    assert "emulated Test" in said
    assert "gaps: half below 50 ms" in said
    again = tmp_path / "again.svg"
    main(["report", str(folder), "--trace-plot", str(again)])
    assert again.read_bytes() == picture.read_bytes()
    assert "emulated Test" in capsys.readouterr().out


def test_a_picture_has_a_panel_a_training(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trace = trace_of("caffe, batch 8", analysis_of_run(recorded(tmp_path / "run", 50, 50)), None)
    two = [replace(trace, sampled=((0.5, 40.0), (1.0, 60.0))), replace(trace, name="workers", busy=())]
    drawn = figure(two, "ssd on an emulated V100")
    assert [axes.get_title("left") for axes in drawn.axes] == ["caffe, batch 8", "workers"]
    write_utilisation(two, "ssd on an emulated V100", tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.width > picture.height > 200


def test_the_axis_says_what_is_cut_and_the_title_what_was_stopped(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    short_run = recorded(tmp_path / "short", 50, 50)
    update_run(short_run, {"ended": {"status": "stopped", "error": None, "exit_code": 1}})
    runs = short_run, recorded(tmp_path / "long", 200, 800, 60)
    short, long = (trace_of(run.name, analysis_of_run(run), None) for run in runs)
    assert short.name == "short, stopped"
    said = [figure(several, "x").axes[-1].get_xlabel() for several in ([short], [long], [short, long])]
    cut = "seconds, from the middle of a longer training"
    assert said == ["seconds", cut, f"{cut} where it was"]


def test_nothing_to_draw_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    short = trace_of("short", analysis_of_run(recorded(tmp_path / "run", 1, 1, 10)), None)
    with pytest.raises(WhyidleError, match="no run of 167 ms"):
        write_utilisation([short], "x", tmp_path / "out.png")
    assert not (tmp_path / "out.png").exists()
