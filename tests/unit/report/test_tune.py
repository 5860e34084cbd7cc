"""A tuning where no kept output has it: as text and as a page, and read back from its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from support.page_content import Element, parsed
from support.rendered import rendered
from support.tuned import ADVICE, BEST, FAILED, NOW, RESULT, SLOWER, trial
from whyidle.analyse.predict.replay import BINDS
from whyidle.commands.main import main
from whyidle.errors import RecordError
from whyidle.record.tuning import LoaderSettings
from whyidle.report.contract import tuning as tune_json
from whyidle.report.documents.tuning import tuning_document
from whyidle.terminal.console import json_text
from whyidle.tune.patch import Patch
from whyidle.tune.result import SearchEnd, Tuning, WorkersCost, keep

HOSTILE = "<script>alert(1)</script>\x1b[31m"
ONCE = {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
UNKNOWN = {"speedup": 1.83, "speedup_low": nan, "speedup_high": nan}


def tuned(**known: Any) -> Tuning:
    """The same with another outcome."""
    return replace(RESULT, **known)


def text(result: Tuning, width: int = 80) -> str:
    printed = rendered(tuning_document(result), width)
    assert max(map(len, printed.splitlines())) <= width
    return " ".join(printed.split())


def stored(result: Tuning) -> dict[str, Any]:
    """As a folder holds it."""
    return dict(json.loads(json_text(tune_json.tuning(result))))


DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-loader = DataLoader(a)\n+loader = DataLoader(a, num_workers=4)\n"
ARGUMENTS = "+ DataLoader(…, num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True)"
RUN = ("python", "train.py", "-j", "4")
BEFORE = trial(LoaderSettings(8, 4, pin_memory=True), 700.0)
MEASURED = replace(BEFORE, cost=WorkersCost(10**8, 0.02, 0.9))
PLAIN = trial(LoaderSettings(4, 2, persistent_workers=True), 754.0)
PIPELINES = {
    "baseline": replace(NOW, settings=LoaderSettings(0, pipeline="workers", batch_size=8)),
    "best": replace(BEST, settings=LoaderSettings(3, 2, pipeline="prefetch", batch_size=8)),
}
SCENARIO = replace(tuned(**PIPELINES, trials=tuple(PIPELINES.values())), what="ssd", scenario="ssd", batch_size=8)
H200 = {"kind": "emulated", "name": "emulated:h200", "title": "An emulated H200"}
CUT: dict[str, Any] = {"best": NOW, "ended": SearchEnd.BUDGET, **ONCE}
STOPPED = {"ended": SearchEnd.STOPPED, "because": "stopped by Ctrl-C"}
FASTER = {"b_95": None, "failed": {}}
CASES: list[tuple[Tuning, tuple[str, ...], tuple[str, ...]]] = [
    (
        replace(RESULT, patch=Patch(DIFF, "/home/me/it", RUN, ("pin_memory is x.",))),
        (
            "+loader = DataLoader(a, num_workers=4)",
            "No file was changed. Apply this with `patch -p1` in /home/me/it.",
            "Then run: python train.py -j 4",
            "By hand: pin_memory is x.",
        ),
        ("DataLoader(…",),
    ),
    (replace(RESULT, patch=Patch(command=RUN)), ("No source changes; run: python train.py -j 4",), ()),
    (replace(RESULT, patch=Patch(by_hand=("Set `n`.",))), (ARGUMENTS, "By hand: Set `n`."), ()),
    (
        tuned(baseline=BEFORE, best=PLAIN, trials=(BEFORE, PLAIN)),
        (
            "num_workers=8, prefetch_factor=4, pin_memory=True)",
            "+ DataLoader(…, num_workers=4, persistent_workers=True)",
        ),
        (),
    ),
    (
        tuned(**CUT, because="the time is up"),
        (": nothing proven to be faster yet ", "The time is up."),
        ("DataLoader(",),
    ),
    (tuned(**CUT | STOPPED), (": nothing proven to be faster yet ", "Stopped by Ctrl-C."), ()),
    (tuned(**CUT | {"ended": SearchEnd.FAILED}), (": undecided, the training ended too early ",), ("DataLoader(",)),
    (tuned(**CUT | {"ended": SearchEnd.DECIDED}), (": nothing faster found ",), ("so far",)),
    (tuned(**STOPPED), ("1.83× faster (95 % interval 1.76–1.90), so far",), ()),
    (tuned(headroom=0.5), ("An infinitely fast loader would give 754.",), ()),
    (
        tuned(speedup=1.0, speedup_low=0.98, speedup_high=1.02, because="as fast and costs less"),
        ("as fast with less (1.00×, 95 % interval 0.98–1.02)",),
        ("within an epoch",),
    ),
    (SCENARIO, ("- workers: no workers + prefetch: 3 workers, prefetch 2",), ("DataLoader(",)),
    (
        tuned(batch=replace(ADVICE, **FASTER)),
        ("largest tried that fits 64", "n/a the loader sets the pace"),
        ("larger ones gain little",),
    ),
    (tuned(**UNKNOWN), ("1.83× faster (interval unknown)",), ("nan",)),
    (
        tuned(baseline=MEASURED, trials=(MEASURED, BEST)),
        ("Cost of 4 workers (8 now): memory 1230 MB (100 now), CPUs in use 1.6 (0.02 now), time to start 0.41 s (0.9",),
        (),
    ),
    (tuned(best=SLOWER, trials=(NOW, SLOWER)), ("num_workers=2",), ("Cost of 2 workers",)),
]


@pytest.mark.parametrize(("result", "said", "unsaid"), CASES)
def test_an_outcome_is_told_in_words_and_read_back_says_the_same(
    result: Tuning, said: tuple[str, ...], unsaid: tuple[str, ...]
) -> None:
    printed = text(result, 120)
    assert [each for each in said if each not in printed] == []
    assert [each for each in unsaid if each in printed] == []
    again = tune_json.read(stored(result))
    assert text(again) == text(result)
    assert stored(again) == stored(result)
    assert tune_json.read(stored(result)).patch == result.patch


@pytest.mark.parametrize("binding", sorted(BINDS))
def test_what_sets_the_pace_is_said_in_sentences(binding: str) -> None:
    said = text(tuned(binding_constraint=binding, trials=(NOW, BEST), not_tested=())).split("What sets the pace then ")[
        1
    ]
    assert said[0].isupper()
    assert "Next to try: " in said
    assert f"{binding}: " not in said


def test_figures_that_are_not_known_are_null() -> None:
    endless = tuned(speedup_low=0.0, speedup_high=inf)
    assert stored(endless)["speedup_high"] is None
    assert stored(tune_json.read(stored(endless))) == stored(endless)
    assert [stored(RESULT)["batch"][key] for key in ("b_max", "b_95", "b_star")] == [None] * 3
    assert stored(tuned(**CUT))["best"]["settings"] == stored(RESULT)["baseline"]["settings"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", []), ("trials", None), ("cost", {}), ("version", 2), ("best", {"settings": {"num_workers": "<b>"}})],
)
def test_what_is_no_result_is_refused(name: str, value: object) -> None:
    with pytest.raises(RecordError):
        tune_json.read(stored(RESULT) | {name: value})


def test_the_page_is_the_document_and_whatever_a_tuning_holds_stays_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(name: str, result: Tuning) -> Element:
        (tmp_path / name).mkdir()
        keep(tmp_path / name, {"command": ["x"]}, "2026", tune_json.tuning(result))
        assert main(["report", str(tmp_path / name), "--format", "html", "-o", "-"]) == 0
        return parsed(capsys.readouterr().out)

    page = shown("known", replace(RESULT, patch=Patch(DIFF, "/home/me/it"), device=H200))
    assert page.all("pre")[0].words.split() == DIFF.split()
    assert "emulated" in page.words
    trials, known = (NOW, BEST, replace(FAILED, error=HOSTILE)), {"not_tested": (HOSTILE,), "because": HOSTILE}
    advice = replace(ADVICE, notes=(HOSTILE,))
    hostile = shown("h", replace(tuned(trials=trials, batch=advice, ended=SearchEnd.BUDGET, **known), what=HOSTILE))
    assert len(hostile.all("script")) == len(page.all("script"))
    assert hostile.words.count("<script>alert(1)</script>") >= 4
    assert "\x1b" not in hostile.words


def test_what_was_said_of_the_data_is_said_again_and_a_tuning_without_a_result_names_its_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, told in (("tuned", tune_json.tuning(RESULT)), ("cut", None)):
        (tmp_path / name).mkdir()
        asked = {"command": ["python", "train.py"], "notices": ["image corrupt: 3, left out"]}
        keep(tmp_path / name, asked, "2026-01-01T00:00:00", told)
    said = "data: image corrupt: 3, left out"
    assert main(["report", str(tmp_path / "tuned")]) == 0
    assert capsys.readouterr().out.startswith(f"{said}\n")
    assert main(["report", str(tmp_path / "tuned"), "--format", "html", "-o", "-"]) == 0
    page = parsed(capsys.readouterr().out)
    assert said in page.words
    assert [each.words for each in page.by_id("environment").all("dd")] == ["python train.py", "2026-01-01T00:00:00"]
    for form in ("json", "html"):
        assert main(["report", str(tmp_path / "cut"), "--format", form]) == 2
        told = capsys.readouterr().err
        assert f"whyidle report {tmp_path / 'cut' / 'first-stretch'}" in " ".join(told.split())
