"""Differences between runs whose true times are known."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.jobs import Rank, record
from support.pairs import SOME, compare, noisy, true_ms
from whyidle.analyse.diff import because
from whyidle.analyse.diff.blocks import TOTAL
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import side_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.errors import WhyidleError
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import update_run
from whyidle.record.schema import LoaderFlag
from whyidle.scenarios.planted import MS, Step, train


def setting(found: Difference, name: str) -> tuple[object, object]:
    return next((each.a, each.b) for each in found.settings if each.name == name)


def test_more_workers_are_named_where_the_wait_for_data_fell(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2)
    found = compare(a, b)
    true = true_ms(15) / true_ms(2)
    assert found.times.speedup.low <= true <= found.times.speedup.high
    assert found.times.significant
    assert found.because.kind == because.SETTING
    assert found.because.part == "input"
    assert [(each.name, each.a, each.b) for each in found.because.by] == [("num_workers", 1, 4)]
    saved = found.times.terms["input"].change
    assert saved.low <= 1e3 * (2 - 15) / 8 <= saved.high
    assert not found.times.terms["compute"].significant


def test_workers_are_not_named_where_computing_got_slower(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1)
    b = noisy(tmp_path / "b", SOME(2), workers=4, compute_ms=40)
    found = compare(a, b)
    assert found.times.significant
    assert found.because.part == "compute"
    assert found.because.kind == because.UNEXPLAINED
    assert found.because.by == ()
    assert any("code of the model" in look for look in found.because.look_at)


def test_words_of_the_command_are_possible_reasons_and_no_more(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), command=["python", "train.py", "--width", "8", "--fast"])
    b = noisy(tmp_path / "b", SOME(2), compute_ms=40, command=["python", "train.py", "--width=64", "--fast"])
    found = compare(a, b)
    assert found.because.kind == because.COMMAND
    assert [(each.name, each.a, each.b) for each in found.because.by] == [("word --width", "8", "64")]


def test_of_two_settings_that_can_explain_it_neither_is_claimed_alone(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=15, flags=0)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2, flags=LoaderFlag.PERSISTENT_WORKERS)
    found = compare(a, b)
    assert {each.name for each in found.because.by} == {"num_workers", "persistent_workers"}
    assert any("only one of them changed" in look for look in found.because.look_at)


def test_a_changed_machine_may_explain_it_where_no_setting_does(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), torch="2.6.0")
    b = noisy(tmp_path / "b", SOME(2), compute_ms=40, torch="2.7.0")
    found = compare(a, b)
    assert found.because.kind == because.ENVIRONMENT
    assert [each.name for each in found.because.by] == ["torch"]


def test_a_changed_setting_is_no_sole_reason_on_another_machine(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), fetch_ms=40, workers=1, host={"name": "one"})
    b = noisy(tmp_path / "b", SOME(2), fetch_ms=5, workers=4, host={"name": "other"})
    found = compare(a, b)
    assert [each.name for each in found.because.by] == ["num_workers", "host"]
    assert any("only one of them changed" in look for look in found.because.look_at)


def test_words_of_the_command_that_no_setting_tells_are_a_doubt(tmp_path: Path) -> None:
    def command(workers: int, size: int) -> list[str]:
        return ["python", "train.py", "--workers", str(workers), "--size", str(size)]

    a = noisy(tmp_path / "a", SOME(1), fetch_ms=40, workers=1, command=command(1, 512))
    same = noisy(tmp_path / "same", SOME(2), fetch_ms=5, workers=4, command=command(4, 512))
    less = noisy(tmp_path / "less", SOME(2), fetch_ms=5, workers=4, command=command(4, 64))
    doubts = [[note for note in compare(a, b).notes if "may be part of the reason" in note] for b in (same, less)]
    assert doubts[0] == []
    assert "--size 512 → 64" in doubts[1][0]


def test_page_locked_memory_is_named_where_copies_got_shorter(tmp_path: Path) -> None:
    for name, pinned in (("a", False), ("b", True)):
        step = Step(fetch_ns=MS // 2, compute_ns=5 * MS, copy_bytes=40_000_000, pinned=pinned)
        train(tmp_path / name, [[step] * 60])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.because.part == "copy"
    assert [each.name for each in found.because.by] == ["copies from"]
    assert found.emulated


def test_different_batch_sizes_are_compared_by_sample_and_that_is_said(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), samples=8)
    b = noisy(tmp_path / "b", SOME(2), samples=16)
    found = compare(a, b)
    assert found.times.unit == "sample"
    assert found.times.speedup.value == pytest.approx(2.0, rel=0.1)
    assert any("batch sizes differ (8, 16)" in note for note in found.notes)
    assert "batch_size" in {each.name for each in found.because.by}


def test_without_samples_steps_are_compared(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), samples=None), noisy(tmp_path / "b", SOME(2), fetch_ms=30))
    assert found.times.unit == "step"
    assert found.times.terms[TOTAL].a.value == pytest.approx(1e3 * true_ms(), rel=0.1)
    assert any("times are per step" in note for note in found.notes)


def test_emulated_and_real_devices_are_never_compared(tmp_path: Path) -> None:
    real = noisy(tmp_path / "a", SOME(1))
    train(tmp_path / "b", [[Step()] * 40])
    with pytest.raises(WhyidleError, match="emulated and measured times are not compared"):
        compare(real, tmp_path / "b")


def test_runs_of_different_scenarios_are_refused(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), trial={"scenario": "ssd"})
    b = noisy(tmp_path / "b", SOME(2), trial={"scenario": "cost"})
    with pytest.raises(WhyidleError, match="scenario ssd, B cost"):
        compare(a, b)


def test_another_program_is_another_training(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1))
    b = noisy(tmp_path / "b", SOME(2), command=["python", "other.py"])
    assert any("do not train the same thing" in note for note in compare(a, b).notes)


def test_runs_of_one_side_that_differ_are_said_and_explain_nothing(tmp_path: Path) -> None:
    a = [noisy(tmp_path / f"a{n}", SOME(n), workers=n, fetch_ms=15) for n in (1, 2)]
    b = noisy(tmp_path / "b", SOME(5), workers=4, fetch_ms=2)
    found = compare(a, b)
    assert setting(found, "num_workers") == ("varies", 4)
    assert any("differ in num_workers" in note for note in found.notes)
    assert found.because.kind == because.UNEXPLAINED


def test_a_setting_that_one_side_does_not_tell_is_no_change(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), fetch_ms=15), noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2))
    assert setting(found, "num_workers") == (None, 4)
    assert found.because.kind == because.UNEXPLAINED


def test_causes_that_went_and_came_are_told(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=0, fetch_ms=30)
    b = noisy(tmp_path / "b", SOME(2), workers=0, fetch_ms=0.1)
    assert "input.serial" in {f.cause for f in compare(a, b).findings.vanished}
    assert "input.serial" in {f.cause for f in compare(b, a).findings.appeared}


def test_a_cell_of_a_comparison_stands_for_its_rounds(tmp_path: Path) -> None:
    names = [f"workers-b8-r{n}" for n in range(3)]
    for n, name in enumerate(names):
        noisy(tmp_path / name, SOME(n))
    noisy(tmp_path / "workers-b80-r0", SOME(9))
    write_comparison(tmp_path, {}, [CellRecord("workers", 8, "ok", None, tuple(names))])
    assert [Path(folder).name for folder in side_of("A", [tmp_path / "workers-b8"]).folders] == names
    with pytest.raises(WhyidleError, match="comparison of 2 cells"):
        side_of("A", [tmp_path])


def test_a_run_named_twice_is_no_repeat(tmp_path: Path) -> None:
    run = noisy(tmp_path / "a", SOME(1))
    with pytest.raises(WhyidleError, match="named twice"):
        side_of("A", [run, run])


def test_a_rank_that_was_killed_and_one_that_is_missing_are_said(tmp_path: Path) -> None:
    record(tmp_path / "whole", [Rank(), Rank()], steps=60)
    record(tmp_path / "part", {0: Rank(), 1: Rank(steps=40)}, steps=60, world_size=3)
    (said,) = [note for note in compare(tmp_path / "whole", tmp_path / "part").notes if "/part: " in note]
    assert "rank 1 did not end the recording" in said
    assert "nothing of rank 2 was recorded" in said


def test_a_run_that_did_not_end_well_counts_and_is_said(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1))
    update_run(a, {"ended": {"status": "failed"}})
    assert any("did not end well" in note for note in compare(a, noisy(tmp_path / "b", SOME(2))).notes)


@settings(max_examples=10)
@given(fetches=st.tuples(st.floats(0.5, 40), st.floats(0.5, 40)), seed=st.integers(0, 1000))
def test_swapping_the_sides_turns_everything_round(fetches: tuple[float, float], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        a, b = (
            noisy(Path(folder) / name, SOME([seed, n]), fetch_ms=fetch, steps=60)
            for n, (name, fetch) in enumerate(zip("ab", fetches, strict=True))
        )
        one, other = compare(a, b).times, compare(b, a).times
    assert one.speedup.value * other.speedup.value == pytest.approx(1)
    assert one.speedup.low * other.speedup.high == pytest.approx(1)
    for term, times in one.terms.items():
        assert times.change.value == pytest.approx(-other.terms[term].change.value)
        assert times.significant == other.terms[term].significant
    for side in ("a", "b"):
        parts = sum(getattr(one.terms[part], side).value for part in PARTS)
        assert parts == pytest.approx(getattr(one.terms[TOTAL], side).value, rel=1e-6)


def test_a_job_counts_all_its_ranks_and_threads_of_torch_compute_on_the_processor_alone(tmp_path: Path) -> None:
    for name, ranks in (("a", 1), ("b", 2)):
        record(tmp_path / name, [Rank()] * ranks, steps=60)
        update_run(tmp_path / name, {"environment": {"threads": ranks}})
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.times.speedup.value == pytest.approx(2.0, rel=0.05)
    assert {each.name for each in found.because.by} == {"ranks", "threads of torch"}
    assert any("all ranks together" in note for note in found.notes)
    for name in "ab":
        train(tmp_path / f"emulated-{name}", [[Step(compute_ns=(10 if name == "a" else 30) * MS)] * 60])
        update_run(tmp_path / f"emulated-{name}", {"environment": {"threads": 1 if name == "a" else 2}})
    assert compare(tmp_path / "emulated-a", tmp_path / "emulated-b").because.by == ()
