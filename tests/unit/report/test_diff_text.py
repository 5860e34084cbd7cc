"""What `whyidle diff` says where no kept output says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.pairs import SOME, compare, crowded, noisy
from support.rendered import rendered
from whyidle.commands.main import main
from whyidle.record.run import update_run
from whyidle.report.documents.diff import diff_document, headline, moved
from whyidle.scenarios.planted import MS, Step, train


def test_a_share_that_rose_though_the_time_fell_is_not_shown(tmp_path: Path) -> None:
    """Waiting and computing both fell, computing more: 15 of 95 ms a step to 12 of 27."""
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, compute_ms=75, run_noise=0)
    b = noisy(tmp_path / "b", SOME(2), workers=2, fetch_ms=12, compute_ms=10, run_noise=0)
    found = compare(a, b)
    assert moved(found, "input").startswith("waiting for data 1.")
    assert "%" not in moved(found, "input")
    assert "computing 9" in headline(found)
    shown = rendered(diff_document(found), 80, "ascii")
    assert [said in shown for said in ("Time a sample, us", " -> ", "+-")] == [True] * 3


def test_what_a_busy_machine_leaves_open_is_said_with_the_way_out(tmp_path: Path) -> None:
    a, b = crowded(tmp_path / "a", SOME(1), fetch_ms=60), crowded(tmp_path / "b", SOME(2), fetch_ms=2)
    said = headline(compare(a, b))
    assert said.startswith("Not proven: B was 3.")
    assert "times as fast in these two runs" in said
    assert "other programs filled the machine. Repeat on a quiet machine, repeat runs on each side, or give" in said
    assert "because" not in said
    assert headline(compare(a, b, noise=0.02)).startswith("B is 3.")


def test_stand_in_data_and_emulation_are_told_of_the_side_that_has_them(tmp_path: Path) -> None:
    for name in "ab":
        train(tmp_path / name, [[Step(fetch_ns=MS)] * 40])
        update_run(tmp_path / name, {"dataset": {"stand_in": "photographs"}})
    text = rendered(diff_document(compare(tmp_path / "a", tmp_path / "b")))
    assert "EMULATED" in text
    assert "STAND-IN DATA on both sides" in text
    update_run(tmp_path / "a", {"dataset": {"stand_in": None}})
    assert "STAND-IN DATA on side B" in rendered(diff_document(compare(tmp_path / "a", tmp_path / "b")))


def test_few_steps_tell_nothing_and_the_command_writes_where_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [str(noisy(tmp_path / "a", SOME(1))), str(noisy(tmp_path / "b", SOME(2), steps=18))]
    assert main(["diff", *sides, "--json"]) == 0
    # Nineteen steps have no blocks: what their own scatter tells is not known, and is no number.
    assert json.loads(capsys.readouterr().out)["speedup"]["of_these_runs"]["low"] is None
    assert main(["diff", *sides, "-o", str(tmp_path / "diff.txt")]) == 0
    said = " ".join((tmp_path / "diff.txt").read_text().split())
    assert "Nothing can be told: B was " in said
    assert "of which one has 18 steps after the warm-up. At least" in said
    assert main(["diff", *sides, "-o", str(tmp_path / "no" / "diff.txt")]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "two runs are needed"),
        (["a", "a"], " a is on both sides"),
        (["a", "b", "--a", "a"], "name either two runs"),
        (["--a", "a"], "two runs are needed"),
        (["a", "b", "--noise", "0"], "--noise 0"),
    ],
)
def test_a_mistake_is_one_message(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate("ab"):
        noisy(tmp_path / name, SOME(number), steps=40)
    monkeypatch.chdir(tmp_path)
    assert main(["diff", *words]) == 2
    assert said in capsys.readouterr().err
