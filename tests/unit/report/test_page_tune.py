"""The page of a tuning, and a tuning read back from its folder."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from support.page_content import Element, parsed
from support.rendered import rendered
from support.tuned import ADVICE, BEST, FAILED, NOW, RESULT, TUNED
from whyidle.analyse.statistics import Estimate
from whyidle.commands.main import main
from whyidle.errors import RecordError
from whyidle.report.contract import tuning as tune_json
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.tuning import tuning_document
from whyidle.report.page import tune_page
from whyidle.terminal.console import json_text
from whyidle.tune.search.result import BatchAdvice, SearchEnd
from whyidle.tune.search.tuning import Tuning, TuningFile

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def with_batch(advice: BatchAdvice | None = ADVICE) -> Tuning:
    return replace(RESULT, tuned=replace(TUNED, batch=advice))


def shown(result: Tuning) -> Element:
    return parsed(tune_page.page(result))


def text(result: Tuning) -> str:
    return rendered(tuning_document(result), 100)


def stored(result: Tuning) -> dict[str, Any]:
    """As a folder holds it."""
    return dict(json.loads(json_text(tune_json.tuning(result))))


def folder_of(result: Tuning | None, at: Path) -> Path:
    at.mkdir()
    told = None if result is None else builtins(tune_json.tuning(result))
    TuningFile({"command": ["python", "train.py"]}, "2026-01-01T00:00:00", result=told).save(at)
    return at


@pytest.mark.parametrize(
    "result",
    [
        RESULT,
        with_batch(),
        replace(RESULT, tuned=replace(TUNED, speedup=Estimate(1.83, nan, nan))),
        replace(RESULT, tuned=replace(TUNED, speedup=Estimate(1.83, 0.0, inf))),
        replace(RESULT, tuned=replace(TUNED, best=NOW, speedup=Estimate(1.0, 1.0, 1.0), ended=SearchEnd.TOO_NOISY)),
        replace(
            RESULT,
            tuned=replace(
                TUNED, best=NOW, speedup=Estimate(1.0, 1.76, 1.90), ended=SearchEnd.BUDGET, promising="6 workers were"
            ),
        ),
    ],
)
def test_a_tuning_that_is_read_back_says_the_same(result: Tuning) -> None:
    again = tune_json.read(stored(result))
    assert text(again) == text(result)
    assert stored(again) == stored(result)


def test_a_result_of_an_older_version_of_the_program_is_read() -> None:
    told = stored(with_batch())
    for name in ("batch_size", "promising", "prediction"):
        del told[name]
    del told["batch"]["loader_bound"]
    told["batch"] |= {"b_star": 512.0, "noise_samples": {"mean": 3.0}}
    for trial in told["trials"]:
        del trial["dropped"]
    assert "1.83 times as fast" in text(tune_json.read(told))


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", []), ("trials", None), ("cost", {}), ("version", 2), ("best", {"settings": {"num_workers": "<b>"}})],
)
def test_what_is_no_result_is_refused(name: str, value: object) -> None:
    with pytest.raises(RecordError):
        tune_json.read(stored(RESULT) | {name: value})


def test_the_page_shows_what_is_gained_and_the_change_to_paste() -> None:
    page = shown(RESULT)
    told = stored(RESULT)
    assert page.all("h1")[0].words == "python train.py on A processor: 1.83 times as fast (95 % interval 1.76 to 1.90)"
    tiles = {each.all("dt")[0].words: [dd.words for dd in each.all("dd")] for each in page.all("div", "tile")}
    assert tiles["now, samples/s"] == [f"{told['baseline']['samples_per_s']:.0f}", "95 %: 371 to 453"]
    assert tiles["best, samples/s"][0] == f"{told['best']['samples_per_s']:.0f}"
    assert tiles["speed-up"] == ["1.83 ×", "95 %: 1.76 to 1.90"]
    assert tiles["time it took"][0] == "64 s"
    pasted = page.by_id("change").all("pre")[-1].words
    assert pasted == "num_workers=4, batch_size=16, prefetch_factor=4, pin_memory=True, persistent_workers=True"
    # It is code.
    assert eval(f"dict({pasted})") == {
        "num_workers": 4,
        "batch_size": 16,
        "prefetch_factor": 4,
        "pin_memory": True,
        "persistent_workers": True,
    }


def test_trials_stand_by_their_rate_with_their_intervals_to_one_scale() -> None:
    table = shown(RESULT).by_id("tried").all("table")[0]
    rows = table.rows()[1:]
    assert [row[1].words for row in rows] == ["754 (679–829)", "601 (541–661)", "412 (371–453)", "failed"]
    assert [row[4].words for row in rows] == ["best", "out", "now", ""]
    places = [float(dot.attributes["cx"].rstrip("%")) for row in rows for dot in row[5].all("circle", "dot")]
    # Half of a mark has room at the right of the largest.
    assert places == pytest.approx([97 * rate / 829.4 for rate in (754, 601, 412)], abs=0.01)
    ends = [float(rows[0][5].all("line")[0].attributes[name].rstrip("%")) for name in ("x1", "x2")]
    assert ends == pytest.approx([97 * 678.6 / 829.4, 97.0], abs=0.01)
    # 0 is marked in each.
    assert all(row[5].all("line")[-1].attributes["x1"] == "0.5" for row in rows)
    assert table.rows()[0][5].words == "0"
    assert "RuntimeError: no room" in rows[3][5].words
    assert not rows[3][5].all("circle", "dot")
    # What it was predicted to be is shown all the same.
    assert len(rows[3][5].all("circle", "predicted")) == 1


def test_batch_sizes_have_their_throughput_and_memory_and_gaps_where_they_were_not_measured() -> None:
    part = shown(with_batch()).by_id("batch")
    rows = {row[0].words: row for row in part.all("table", "bars")[0].rows()[1:]}
    assert [rows["64"][1].words, rows["64"][3].words] == ["1000", "800 MB"]
    assert [rows["16"][1].words, rows["16"][3].words] == ["754", "n/a"]
    assert not rows["16"][4].all("rect")
    assert rows["128"][5].words == "out of memory"
    assert rows["32"][5].words == "within 5 % of the best"
    widths = [float(rows[size][2].all("rect")[0].attributes["width"].rstrip("%")) for size in ("16", "64")]
    assert widths[0] / widths[1] == pytest.approx(0.754, abs=1e-3)
    assert "Not looked for any further." in part.words


def test_where_nothing_is_to_change_no_change_is_shown() -> None:
    page = shown(replace(RESULT, tuned=replace(TUNED, best=NOW, speedup=Estimate(1.0, 1.0, 1.0))))
    assert "nothing faster found" in page.all("h1")[0].words
    assert not page.all("pre")
    assert "speed-up" not in page.words


def test_an_interval_that_is_not_known_is_not_shown_as_a_figure() -> None:
    page = shown(replace(RESULT, tuned=replace(TUNED, speedup=Estimate(1.83, nan, nan))))
    assert "its interval is not known" in page.words
    assert not re.search(r"\bnan\b", page.words)


def test_a_setting_of_workers_that_changes_is_in_the_table() -> None:
    rows = shown(RESULT).by_id("tried").all("table")[0].rows()[1:]
    assert rows[0][0].words == "4 workers, prefetch 4, pinned, persistent"
    assert rows[1][0].words == "2 workers, prefetch 2"


def test_a_ceiling_below_the_fastest_setting_is_shown_as_no_more_than_that() -> None:
    page = shown(replace(RESULT, tuned=replace(TUNED, headroom=0.5)))
    tiles = {each.all("dt")[0].words: [dd.words for dd in each.all("dd")] for each in page.all("div", "tile")}
    assert tiles["a loader that takes no time"] == [
        "+83 %",
        "no more than the fastest setting, within noise (measured +50 %)",
    ]


def test_figures_of_an_emulated_device_are_called_so() -> None:
    page = shown(replace(RESULT, device={"kind": "emulated", "name": "emulated:h200", "title": "emulated H200"}))
    assert "best, emulated samples/s" in page.words


def test_whatever_a_tuning_holds_stays_words() -> None:
    broken = replace(FAILED, error=HOSTILE)
    tuned = replace(TUNED, trials=(NOW, BEST, broken), not_tested=(HOSTILE,), because=HOSTILE, ended=SearchEnd.BUDGET)
    page = shown(replace(RESULT, what=HOSTILE, tuned=replace(tuned, batch=replace(ADVICE, notes=(HOSTILE,)))))
    assert len(page.all("script")) == len(shown(with_batch()).all("script"))
    assert page.words.count("<script>alert(1)</script>") >= 4
    assert "\x1b" not in page.words


def test_report_shows_a_folder_of_a_tuning_in_each_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(with_batch(), tmp_path / "tuned")
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.split() == text(with_batch()).split()
    assert main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == stored(with_batch())
    assert main(["report", str(folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    about = (("command", "python train.py"), ("began", "2026-01-01T00:00:00"))
    again = parsed((folder / "report.html").read_text())
    assert again.words == parsed(tune_page.page(with_batch(), environment=about)).words
    facts = again.by_id("environment")
    assert [each.words for each in facts.all("dd")] == ["python train.py", "2026-01-01T00:00:00"]


def test_what_was_said_of_the_data_is_said_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(RESULT, tmp_path / "tuned")
    content = json.loads((folder / "tune.json").read_text())
    content["asked"]["notices"] = ["image corrupt: 3, left out"]
    (folder / "tune.json").write_text(json.dumps(content))
    assert main(["report", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("data: image corrupt: 3, left out\n")
    assert main(["report", str(folder), "--format", "html", "-o", "-"]) == 0
    page = parsed(capsys.readouterr().out)
    assert [each.words for each in page.all("div", "warning")] == ["data: image corrupt: 3, left out"]


def test_a_tuning_without_a_result_names_its_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(None, tmp_path / "cut")
    for form in ("text", "json", "html"):
        assert main(["report", str(folder), "--format", form]) == 2
        said = capsys.readouterr().err
        assert f"whyidle report {folder / 'first-stretch'}" in " ".join(said.split())
