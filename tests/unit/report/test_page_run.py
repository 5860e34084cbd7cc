"""The page of a run: it says what the text says, embeds what the analysis found, and lets nothing in or out."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from support.crafted import amend, train_on_cpu
from support.jobs import Rank, record
from support.long_run import make
from support.page_content import parsed
from support.rendered import rendered
from support.run_pages import CHROMIUM, data_in, opened, page_of, told_by
from whyidle.analyse.timeline.lines import TimelineLine
from whyidle.commands.main import main
from whyidle.record.notices import SAMPLER_NOTICES, Notices
from whyidle.record.run import note_devices, open_run, update_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.report.documents.run import run_document
from whyidle.report.page import frame
from whyidle.report.page import run_page as overview
from whyidle.report.page.run_page import SHARE, TYPES, environment_of, pack, settings_of, unpack
from whyidle.scenarios.planted import MS, train

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m\u2028"


def test_a_page_says_all_that_the_text_says_without_any_script(starved: Path) -> None:
    made, analysis, _ = page_of(starved)
    words = parsed(made).words
    parts = ("verdict", "why", "next", "time", "evidence", "measured", "setting")
    places = [made.index(f'id="{part}"') for part in parts]
    assert places == sorted(places)
    assert f"{analysis.verdict.cause} " in words
    assert f"confidence {analysis.verdict.confidence:.1f}" in words
    pieces = [
        piece.strip("█░▒▓▚·? ()")
        for line in rendered(run_document(analysis), 1000).splitlines()
        for piece in line.split("  ")
    ]
    assert len(pieces) > 100
    for piece in pieces:
        assert piece.removeprefix("should be ") in words


def test_what_is_embedded_is_what_the_analysis_found(starved: Path) -> None:
    made, analysis, (timeline,) = page_of(starved)
    (rank,) = data_in(made)["ranks"]
    facts = analysis.facts
    assert facts is not None
    wall = facts.parts.wall_ns / 1e6
    assert rank["end"] == wall
    for part in timeline.parts:
        binned = unpack(rank["bins"]["parts"][part]).astype(float) * rank["bins"]["width"] / SHARE
        assert binned.sum() == pytest.approx(getattr(facts.parts, f"{part}_ns") / 1e6, abs=wall / SHARE)
    assert unpack(rank["bins"]["steps"]).sum() == pytest.approx(facts.window.count, rel=1e-4)
    assert unpack(rank["bins"]["samples"]).sum() == pytest.approx(facts.window.samples, rel=1e-4)
    steps = next(line for line in rank["lines"] if line["name"] == "step")
    assert unpack(steps["v"]).mean() == pytest.approx(
        np.mean(facts.window.steps["step_end_ns"] - facts.window.steps["fetch_begin_ns"]) / 1e6
    )


@pytest.mark.parametrize("type_", TYPES)
def test_packed_arrays_read_back(type_: str) -> None:
    values = np.array([0, 1, 200])
    assert list(unpack(pack(values, type_))) == list(values)


def test_nothing_that_a_run_holds_becomes_markup_or_code(starved: Path) -> None:
    update_run(
        starved,
        {
            "command": ["python", HOSTILE],
            "notices": [HOSTILE],
            "dataset": {"stand_in": HOSTILE},
            HOSTILE: {HOSTILE: HOSTILE},
            "host": {"name": HOSTILE},
            "trial": {},
        },
    )
    Notices(starved / SAMPLER_NOTICES)(HOSTILE)
    made, _, _ = page_of(starved)
    assert "<script>alert" not in made
    assert "<img" not in made
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", made)
    outside = re.sub(r"<(script|style)\b.*?</\1>", "", made, flags=re.DOTALL)
    assert not re.search(r"<[^>]*\son\w+\s*=", outside)


def test_a_page_asks_nothing_of_any_network_and_runs_no_script_but_its_own(starved: Path) -> None:
    made, _, _ = page_of(starved)
    outside = re.sub(r"<script.*?</script>", "", made, flags=re.DOTALL)
    linked = re.findall(r'(?:src|href|action|srcset|poster)="([^"]*)"', outside)
    assert len(linked) > 3
    assert {each for each in linked if not each.startswith("#")} == {"data:,"}
    assert not re.findall(r"@import|url\(", made)
    assert not re.findall(r"\b(?:fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\s*\(", made)
    assert set(re.findall(r"https?://[^\s\"'<)]+", made)) == {"https://github.com/leeoniya/uPlot"}
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', made)
    scripts = re.findall(r"<script>(.*?)</script>", made, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts}
    assert set(re.findall(r"sha256-([\w+/=]+)", html.unescape(policy))) == hashes
    assert html.unescape(policy).startswith("default-src 'none';")


def test_what_cannot_be_json_is_refused_and_what_json_holds_ends_no_script() -> None:
    assert json.loads(frame.as_json({"a": HOSTILE})) == {"a": HOSTILE}
    assert not set("<>&\u2028\x1b") & set(frame.as_json({"a": HOSTILE}))
    with pytest.raises(ValueError):
        frame.as_json(float("nan"))


def test_a_run_without_steps_has_a_page_without_a_time_line(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    made, _, _ = page_of(tmp_path / "run")
    assert "No verdict: no training step was recorded." in parsed(made).words
    assert "Over time" not in parsed(made).words
    assert 'id="data"' not in made
    # No verdict is no good verdict, and nothing is linked that is not there.
    assert 'class="card verdict"' in made
    assert set(re.findall(r'href="#(\w+)"', made)) - {"main"} <= set(re.findall(r'id="(\w+)"', made))
    assert "Evidence" not in parsed(made).words


def test_a_headroom_that_nobody_asked_for_is_no_setting(starved: Path) -> None:
    update_run(starved, {"headroom": False})
    assert "headroom" not in parsed(page_of(starved)[0]).words.partition("Settings")[2]
    update_run(starved, {"headroom": True})
    assert "headroom yes" in parsed(page_of(starved)[0]).words


def test_the_code_and_the_driver_are_named_where_it_ran(starved: Path) -> None:
    code = {"revision": "0123456789" * 4, "branch": HOSTILE, "changed": True}
    update_run(starved, {"code": code, "device": open_run(starved).info["device"] | {"kind": "cuda"}})
    note_devices(starved, [], "580.95.05")
    made, analysis, _ = page_of(starved)
    rows = dict(environment_of(analysis))
    assert rows["driver"] == "580.95.05"
    assert rows["code"].startswith("0123456789 + changes, branch </script>")
    assert not {"code", "code.revision"} & {what for what, _ in settings_of(analysis)}
    words = parsed(made).words
    assert "driver 580.95.05" in words
    assert "code 0123456789 + changes, branch </script>" in words
    assert "<img" not in made


def test_the_picture_of_the_gaps_ends_at_the_longest_and_says_how_long_they_are(tmp_path: Path) -> None:
    drawn = str(overview.gap_histogram(np.array([100, 130, 147]) * MS))
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert labels == ["1: 100 ms", "64 ms", "2: 277 ms", "128 ms", "147 ms"]


def test_a_run_that_was_killed_says_so(starved: Path) -> None:
    update_run(starved, {"ended": {"status": "failed", "exit_code": -9}})
    assert "killed by signal 9 after 100 steps" in parsed(page_of(starved)[0]).words


def test_on_a_processor_no_device_is_spoken_of(tmp_path: Path) -> None:
    record(tmp_path / "run", [Rank(fetch_ns=20 * MS, host_ns=10 * MS)])
    words = parsed(page_of(tmp_path / "run")[0]).words
    assert "the processor computing" in words
    assert "NVML" not in words


def test_what_is_not_told_apart_is_called_so_and_not_measured_is_not_zero(tmp_path: Path) -> None:
    train_on_cpu(tmp_path / "run", [{}] * 60)

    def unfed(steps: np.ndarray) -> None:
        steps["fetch_end_ns"] = NOT_MEASURED

    amend(tmp_path / "run", unfed)
    made, _, _ = page_of(tmp_path / "run")
    words = parsed(made).words
    assert "not told apart 100.0 %" in words
    assert "busy n/a" in words
    assert "waiting for data n/a" in words
    assert "untold" in data_in(made)["ranks"][0]["bins"]["parts"]


def test_where_nothing_was_measured_the_line_of_the_overview_is_broken(
    starved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, (timeline,) = page_of(starved)
    at = timeline.begin_ns + (timeline.end_ns - timeline.begin_ns) * np.arange(5) // 4
    line = TimelineLine("utilisation:0", at, np.array([0.0, 100.0, np.nan, 50.0, 0.0]), 4)
    monkeypatch.setattr(overview, "utilisation_of", lambda *_: iter([line]))
    picture, drawn = overview.over_time(timeline)
    assert drawn
    assert 'd="M0.0 150.0L250.0 0.0M750.0 75.0L1000.0 150.0"' in picture


def report(*arguments: str | Path) -> int:
    return main(["report", *map(str, arguments), "--format", "html"])


def test_the_command_writes_into_the_runs_folder_or_where_it_is_told(
    starved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(starved) == 0
    assert capsys.readouterr().out.strip() == str(starved / "report.html")
    assert report(starved, "-o", tmp_path / "x.html") == 0
    assert (tmp_path / "x.html").read_text() == (starved / "report.html").read_text()
    capsys.readouterr()
    assert report(starved, "-o", "-") == 0
    assert capsys.readouterr().out == (tmp_path / "x.html").read_text()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_cannot_be_written_or_read_is_refused_in_a_sentence(
    starved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(starved, "-o", tmp_path / "nowhere" / "x.html") == 2
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert report(tmp_path / "empty") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_builds_all_charts_without_an_error(tmp_path: Path) -> None:
    made, _, _ = page_of(make(tmp_path / "run", hours=0.1))
    (tmp_path / "page.html").write_text(made)
    document, console = opened(tmp_path / "page.html")
    assert console == ""
    assert re.search(r'<html[^>]* data-charts="8"', document)
    shown = parsed(document).words
    for title in ("Utilisation", "Where the time went", "samples/s", "CPUs in use", "sums of bins of"):
        assert title in shown


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_stretch_that_is_dragged_out_in_one_chart_is_shown_in_all(starved: Path, tmp_path: Path) -> None:
    made, _, _ = page_of(starved)
    drag = """
        const told = [], charts = [...document.querySelectorAll(".u-over")];
        const mouse = (type, share) => { const { left, top, width } = charts[0].getBoundingClientRect();
          const at = { bubbles: true, button: 0, clientX: left + share * width, clientY: top + 9, movementX: 9 };
          (type === "mouseup" ? document : charts[0]).dispatchEvent(new MouseEvent(type, at)); };
        const pictures = () => [...document.querySelectorAll("#timeline canvas")].map((each) => each.toDataURL());
        const whole = pictures();
        mouse("mouseenter", 0.2); mouse("mousemove", 0.2); mouse("mousedown", 0.2);
        mouse("mousemove", 0.6); mouse("mouseup", 0.6);
        await new Promise((done) => setTimeout(done, 200));
        const part = pictures();
        told.push(part.every((each, i) => each !== whole[i]));
        document.querySelector("#timeline button").click();
        await new Promise((done) => setTimeout(done, 200));
        told.push(pictures().every((each, i) => each === whole[i]));
    """
    told = told_by(made, drag, tmp_path / "page.html")
    assert told == [True, True]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_paper_is_white_and_has_what_is_behind_disclosures(starved: Path, tmp_path: Path) -> None:
    made, _, _ = page_of(starved)
    prints = """
        const button = document.getElementById("theme"), folded = document.createElement("details"), told = [];
        document.body.append(folded);
        button.click(); button.click();
        const tell = () => told.push([document.documentElement.dataset.theme, button.dataset.name, folded.open]);
        tell();
        for (const each of ["beforeprint", "afterprint"]) { dispatchEvent(new Event(each)); tell(); }
    """
    told = told_by(made, prints, tmp_path / "page.html")
    assert told == [
        ["dark", "dark", False],
        ["light", "dark", True],
        ["dark", "dark", False],
    ]
