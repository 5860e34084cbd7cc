"""The device's utilisation over time as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from support.crafted import add, analysis_of_run
from whyidle.analyse.cells.comparison import Cell, RunRow, compare
from whyidle.commands.main import main
from whyidle.errors import WhyidleError
from whyidle.record.run import update_run
from whyidle.record.schema import DEVICE
from whyidle.report.plot import MOST_WINDOWS, save_picture, trace_of, traces_of, utilisation
from whyidle.scenarios.planted import MS, Step, train

SVG = "{http://www.w3.org/2000/svg}"


def recorded(folder: Path, fetch_ms: int, compute_ms: int, steps: int = 40) -> Path:
    """A training whose batches are made in turn with the computing."""
    train(folder, [[Step(fetch_ns=fetch_ms * MS, compute_ns=compute_ms * MS, sync=True)] * steps])
    return folder


def test_the_windows_say_what_share_of_them_the_device_computed(tmp_path: Path) -> None:
    trace = trace_of("half", analysis_of_run(recorded(tmp_path / "run", 50, 50)), tmp_path / "run")
    # 4 s at 100 ms a step, less the warm-up of 2.
    assert len(trace.busy) == pytest.approx(23, abs=1)
    assert np.mean(trace.busy) == pytest.approx(50, abs=2)
    assert trace.gaps == "gaps: half below 50 ms, 95 % below 50 ms"

    # A long training is shown from its middle.
    trace = trace_of("long", analysis_of_run(recorded(tmp_path / "long", 200, 800, 60)), tmp_path / "long")
    assert len(trace.busy) == MOST_WINDOWS
    assert (min(trace.busy), max(trace.busy)) == (0, 100)


def test_a_panel_stands_for_the_typical_run_of_a_cell(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"caffe-b8-r{n}", fetch, 50) for n, fetch in enumerate((50, 60, 90))]
    cells = [
        Cell("caffe", 8, "ok", None, tuple(RunRow(str(run), 0, analysis_of_run(run)) for run in runs)),
        Cell("caffe", 16, "oom", "too large"),
        Cell("none", 8, "ok", None, (RunRow(str(runs[0]), 0, analysis_of_run(runs[0])),), {"feed": "loader-only"}),
    ]
    [trace] = traces_of(compare(cells))
    assert trace.name == "caffe at batch 8"
    assert np.mean(trace.busy) == pytest.approx(100 * 50 / 110, abs=2)


def test_a_run_that_failed_does_not_shift_the_folders(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"caffe-b8-r{n}", 50, 50) for n in range(2)]
    middle = analysis_of_run(runs[1]).facts.window.begin_ns + 1000 * MS
    add(runs[1], DEVICE, [{"t_ns": middle, "device": 0, "window_ns": MS, "utilisation_pct": 64.0}])
    cell = Cell("caffe", 8, "ok", None, (RunRow(str(runs[0]), 0), RunRow(str(runs[1]), 1, analysis_of_run(runs[1]))))
    [trace] = traces_of(compare([cell]))
    assert [percent for _, percent in trace.sampled] == [64.0]
    # Of several devices none is the run's.
    add(runs[1], DEVICE, [{"t_ns": middle, "device": 1, "window_ns": MS, "utilisation_pct": 50.0}])
    assert trace_of("two", analysis_of_run(runs[1]), runs[1]).sampled == ()


def test_the_command_draws_a_run_and_names_its_device(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", 50, 50)
    pictures = [tmp_path / "trace.svg", tmp_path / "again.svg"]
    for picture in pictures:
        assert main(["report", str(folder), "--trace-plot", str(picture)]) == 0
    texts = ElementTree.parse(pictures[0]).iter(f"{SVG}text")
    said = " ".join(text.strip() for each in texts for text in each.itertext())
    assert "emulated Test" in said
    assert "gaps: half below 50 ms" in said
    assert pictures[1].read_bytes() == pictures[0].read_bytes()
    # Nothing that the same call wrote is written over.
    page = str(tmp_path / "page.svg")
    assert main(["report", str(folder), "--format", "html", "-o", page, "--trace-plot", page]) == 2
    assert not Path(page).exists()


def test_a_picture_has_a_panel_a_training(tmp_path: Path) -> None:
    trace = trace_of("caffe, batch 8", analysis_of_run(recorded(tmp_path / "run", 50, 50)), tmp_path / "run")
    two = [replace(trace, sampled=((0.5, 40.0), (1.0, 60.0))), replace(trace, name="workers", busy=())]
    assert [axes.get_title("left") for axes in utilisation(two, "ssd").axes] == ["caffe, batch 8", "workers"]
    save_picture(lambda: utilisation(two, "ssd on an emulated V100"), tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.width > picture.height > 200
    short = trace_of("short", analysis_of_run(recorded(tmp_path / "short", 1, 1, 10)), tmp_path / "short")
    with pytest.raises(WhyidleError, match="No run of 167 ms"):
        save_picture(lambda: utilisation([short], "x"), tmp_path / "none.png")


def test_the_axis_says_what_is_cut_and_the_title_what_was_stopped(tmp_path: Path) -> None:
    short_run = recorded(tmp_path / "short", 50, 50)
    update_run(short_run, {"ended": {"status": "stopped", "error": None, "exit_code": 1}})
    runs = short_run, recorded(tmp_path / "long", 200, 800, 60)
    short, long = (trace_of(run.name, analysis_of_run(run), run) for run in runs)
    assert short.name == "short, stopped"
    said = [utilisation(several, "x").axes[-1].get_xlabel() for several in ([short], [short, long])]
    assert said == ["seconds", "seconds (middle of longer trainings)"]
