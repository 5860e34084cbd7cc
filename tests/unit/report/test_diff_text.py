"""What `whyidle diff` says where no kept output says it."""

from __future__ import annotations

from pathlib import Path

from support.pairs import SOME, compare, crowded, noisy
from support.rendered import rendered
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
    assert "× as fast in these two runs" in said
    assert "other programs loaded the machine. Repeat on a quiet one, or record several runs a side (--a A1 A2" in said
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
