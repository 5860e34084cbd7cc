"""What `whyidle diff` prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.pairs import SOME, compare, crowded, noisy
from support.rendered import rendered
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.commands.main import main
from whyidle.record.run import update_run
from whyidle.report.contract import diff as diff_json
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.diff import diff_document, headline, moved
from whyidle.scenarios.planted import MS, Step, train


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory) -> Difference:
    folder = tmp_path_factory.mktemp("diff")
    a = noisy(folder / "a", SOME(1), workers=2, fetch_ms=15, run_noise=0)
    b = noisy(folder / "b", SOME(2), workers=6, fetch_ms=2, run_noise=0)
    return compare(a, b)


def shown(found: Difference, width: int = 100, encoding: str = "utf-8") -> str:
    return rendered(diff_document(found), width, encoding)


def test_the_first_line_says_how_much_by_what_and_why(faster: Difference) -> None:
    said = headline(faster)
    assert said.startswith("B is faster by ")
    assert ": waiting for data 1.8" in said
    assert " ms a sample (input stall 37" in said
    assert said.endswith("because num_workers 2 → 6.")
    assert "95 % interval" in said


def test_a_share_that_rose_though_the_time_fell_is_not_shown(tmp_path: Path) -> None:
    """Waiting and computing both fell, computing more: 15 of 95 ms a step to 12 of 27."""
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, compute_ms=75, run_noise=0)
    b = noisy(tmp_path / "b", SOME(2), workers=2, fetch_ms=12, compute_ms=10, run_noise=0)
    found = compare(a, b)
    assert moved(found, "input").startswith("waiting for data 1.")
    assert "%" not in moved(found, "input")
    assert "computing 9" in headline(found)
    assert " ms a sample" in headline(found)


def test_what_a_busy_machine_leaves_open_is_said_with_the_way_out(tmp_path: Path) -> None:
    a, b = crowded(tmp_path / "a", SOME(1), fetch_ms=60), crowded(tmp_path / "b", SOME(2), fetch_ms=2)
    said = headline(compare(a, b))
    assert said.startswith("Not proven: B was 3.")
    assert "times as fast in these two runs" in said
    assert "other programs filled the machine. Repeat on a quiet machine, repeat runs on each side, or give" in said
    assert "because" not in said
    assert headline(compare(a, b, noise=0.02)).startswith("B is 3.")


def test_no_difference_is_called_none(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1)), noisy(tmp_path / "b", SOME(2)))
    said = headline(found)
    assert said.startswith("No difference in speed shown")
    assert "because" not in said


def test_a_part_that_changed_is_said_where_the_whole_does_not_show_it(tmp_path: Path) -> None:
    a, b = noisy(tmp_path / "a", SOME(1), fetch_ms=2), noisy(tmp_path / "b", SOME(2), fetch_ms=0.1)
    said = headline(compare(a, b))
    assert said.startswith("No difference in speed shown")
    assert "What did change: waiting for data 246 → 12.5 µs a sample (input stall 7" in said


def test_twice_as_fast_is_said_so(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), compute_ms=90), noisy(tmp_path / "b", SOME(2)))
    assert "times as fast" in headline(found)


def test_slower_and_unexplained_is_said_so(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1)), noisy(tmp_path / "b", SOME(2), compute_ms=40))
    said = headline(found)
    assert said.startswith("B is slower by ")
    assert said.endswith("which no recorded setting explains.")


def test_parts_settings_and_doubts_are_shown_within_80_columns(faster: Difference) -> None:
    text = shown(faster, width=80)
    for word in ("compute", "input", "host", "total", "num_workers", "One run of each side", "significant"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_ascii_terminals_get_ascii(faster: Difference) -> None:
    text = shown(faster, encoding="ascii")
    assert "Time a sample, us" in text
    assert "num_workers 2 -> 6" in text
    assert "+-" in text


def test_emulated_devices_and_stand_in_data_are_called_so(tmp_path: Path) -> None:
    for name in "ab":
        train(tmp_path / name, [[Step(fetch_ns=MS)] * 40])
        update_run(tmp_path / name, {"dataset": {"stand_in": "photographs"}})
    text = shown(compare(tmp_path / "a", tmp_path / "b"))
    assert "EMULATED" in text
    assert "STAND-IN DATA on both sides" in text
    update_run(tmp_path / "a", {"dataset": {"stand_in": None}})
    assert "STAND-IN DATA on side B" in shown(compare(tmp_path / "a", tmp_path / "b"))


def test_the_json_holds_what_the_text_says(faster: Difference) -> None:
    found = builtins(diff_json.difference(faster))
    assert (found["format"], found["version"], found["unit"]) == ("whyidle-diff", 1, "sample")
    assert set(found) == {
        *("format", "version", "a", "b", "emulated", "unit", "speedup", "total", "parts", "settings", "environment"),
        *("figures", "findings", "because", "promise", "notes"),
    }
    assert [part["part"] for part in found["parts"]] == list(PARTS)
    for side in ("a", "b", "change"):
        parts = sum(part[side]["value"] for part in found["parts"])
        assert parts == pytest.approx(found["total"][side]["value"], rel=1e-6)
    assert found["speedup"]["low"] < found["speedup"]["value"] < found["speedup"]["high"]
    assert found["because"]["kind"] == "setting"
    (by,) = found["because"]["by"]
    assert (by["name"], by["a"], by["b"]) == ("num_workers", 2, 6)
    assert {"appeared", "vanished", "stayed"} == set(found["findings"])


def test_the_command_writes_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = noisy(tmp_path / "a", SOME(1)), noisy(tmp_path / "b", SOME(2), steps=18)
    assert main(["diff", str(a), str(b), "--json"]) == 0
    # Nineteen steps have no blocks: what their own scatter tells is not known, and is no number.
    assert json.loads(capsys.readouterr().out)["speedup"]["of_these_runs"]["low"] is None
    assert main(["diff", str(a), str(b), "-o", str(tmp_path / "diff.txt")]) == 0
    assert "Time a sample" in (tmp_path / "diff.txt").read_text()
    assert main(["diff", str(a), str(b), "-o", str(tmp_path / "no" / "diff.txt")]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "two runs are needed"),
        (["a"], "1 run named, two are needed"),
        (["a", "a"], " a is on both sides"),
        (["a", "gone"], "gone does not exist"),
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
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_several_runs_a_side_are_named_with_a_and_b(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(noisy(tmp_path / str(n), SOME(n), steps=60)) for n in range(4)]
    assert main(["diff", "--a", *runs[:2], "--b", runs[2], "--b", runs[3], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["a"]["runs"], found["b"]["runs"]) == (runs[:2], runs[2:])
