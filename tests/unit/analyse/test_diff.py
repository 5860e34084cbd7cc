"""Differences between runs whose true times are known, and what was advised and followed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.jobs import Rank, record
from support.pairs import SOME, compare, crowded, noisy, true_ms
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.speedup import Speedup
from whyidle.errors import WhyidleError
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import SampledDevice, create_run, note_devices, open_run, sampled_devices, update_run
from whyidle.report.contract import run as run_json
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.diff import diff_document, headline, moved
from whyidle.scenarios.planted import MS, Step, train

ONE, OTHER = "1" * 40, "2" * 40
FEW: dict[str, Any] = {"workers": 1, "fetch_ms": 15}
MORE: dict[str, Any] = {"workers": 4, "fetch_ms": 2}
SLOWER = {"compute_ms": 40}


def code(revision: str, changed: bool | None = False) -> dict[str, Any]:
    return {"code": {"revision": revision, "branch": "main", "changed": changed}}


HERE, THERE = code(ONE), code(OTHER)


def ran(*words: str) -> dict[str, Any]:
    return {"command": ["python", "train.py", *words]}


def told(found: Difference) -> str:
    """All that is said of why."""
    environment = [f"[{each.name}: {each.a} → {each.b}]" for each in found.environment]
    return " / ".join([headline(found), *found.because.look_at, *found.notes, *environment])


ONE_ONLY = ["only one of them changed"]
SAME_BUT = ["the code of the model 1111111111, and changes that are not recorded", "their code may differ"]
UNTOLD = ["[code: None → 1111111111]", "the code of the model, which is not recorded"]
OLD, NEW = ran("--workers", "1", "--size", "512"), ran("--workers", "4", "--size", "64")


@pytest.mark.parametrize(
    ("a", "b", "kind", "by", "said"),
    [
        (FEW, MORE, "setting", "num_workers", ["because num_workers 1 → 4."]),
        (FEW | {"flags": 0}, MORE | {"flags": 2}, "setting", "num_workers persistent_workers", ONE_ONLY),
        (FEW | {"host": {"name": "x"}}, MORE | {"host": {"name": "y"}}, "setting", "num_workers host", ONE_ONLY),
        ({"workers": 1}, SLOWER | {"workers": 4}, "unexplained", "", ["code of the model"]),
        ({"fetch_ms": 15}, MORE, "unexplained", "", []),
        ({}, {"samples": 16}, "setting", "batch_size", ["batch sizes differ (8, 16)"]),
        (ran("--width", "8", "--fast"), SLOWER | ran("--width=64", "--fast"), "command", "--width", ["8 → 64"]),
        (FEW | OLD, MORE | NEW, "setting", "num_workers", ["--size 512 → 64", "may be part of the reason"]),
        (FEW | ran("--workers", "1"), MORE | ran("--workers", "4"), "setting", "num_workers", ["not: may be part"]),
        ({"torch": "2.6"}, SLOWER | {"torch": "2.7"}, "environment", "torch", []),
        ({"torch": "2.6"} | HERE, SLOWER | {"torch": "2.7"} | THERE, "environment", "torch", ["The code differs too"]),
        (
            HERE,
            SLOWER | THERE,
            "code",
            "code",
            ["[code: 1111111111 → 2222222222]", "`git diff 1111111111 2"],
        ),
        (HERE, SLOWER | THERE, "code", "code", ["the changed code 1111111111 → 2222222222 may explain (no recorded"]),
        (FEW | HERE, MORE | THERE, "setting", "num_workers", ["because num_workers 1 → 4.", "The code differs too (1"]),
        (HERE, SLOWER | THERE | ran("--width", "64"), "command", "--width code", ["(word --width not given → 64 and"]),
        (HERE, SLOWER | HERE | ran("--width", "64"), "command", "--width", ["the command may explain (word"]),
        (
            HERE,
            SLOWER | code(ONE, True),
            "code",
            "code",
            ["the code of the model 1111111111, and changes", "1 + changes]"],
        ),
        (HERE, SLOWER | code(OTHER, True), "code", "code", ["2222222222`, and changes that are not recorded"]),
        (code(ONE, True), SLOWER | code(ONE, True), "unexplained", "", SAME_BUT),
        (code(ONE, None), SLOWER | code(ONE, None), "unexplained", "", SAME_BUT),
        (code(ONE, None), SLOWER | HERE, "unexplained", "", SAME_BUT),
        (code(ONE, True), SLOWER | code(ONE, None), "unexplained", "", [*SAME_BUT, "[code: "]),
        (HERE, SLOWER | HERE, "unexplained", "", ["not: code"]),
        ({"code": None}, SLOWER | HERE, "unexplained", "", UNTOLD),
        ({"code": "1" * 40}, SLOWER | HERE, "unexplained", "", UNTOLD),
        (code("; rm -rf /"), SLOWER | HERE, "unexplained", "", UNTOLD),
        ({"code": {"revision": None}}, SLOWER | HERE, "unexplained", "", UNTOLD),
        ({"code": None}, SLOWER | {"code": {}}, "unexplained", "", ["which is not recorded"]),
        ({"ended": {"status": "failed"}}, SLOWER, "unexplained", "", ["did not end well"]),
        ({}, SLOWER | {"command": ["python", "b.py"]}, "setting", "program", ["do not train the same thing"]),
    ],
)
def test_what_can_explain_a_difference_is_named_and_nothing_else(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any], kind: str, by: str, said: list[str]
) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), **a), noisy(tmp_path / "b", SOME(2), **b))
    assert found.times.significant
    assert (found.because.kind, [each.name.removeprefix("word ") for each in found.because.by]) == (kind, by.split())
    for words in said:
        assert (words.removeprefix("not: ") in told(found)) != words.startswith("not: "), words


def test_a_difference_is_as_large_as_it_truly_is_and_is_in_the_part_that_changed(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), **FEW), noisy(tmp_path / "b", SOME(2), **MORE))
    assert found.times.speedup.low <= true_ms(15) / true_ms(2) <= found.times.speedup.high
    assert found.because.part == "input"
    saved = found.times.terms["input"].change
    assert saved.low <= 1e3 * (2 - 15) / 8 <= saved.high
    assert not found.times.terms["compute"].significant
    assert found.times.unit == "sample"


def test_runs_of_one_side_that_differ_are_said_and_explain_nothing(tmp_path: Path) -> None:
    runs = [noisy(tmp_path / f"a{n}", SOME(n), workers=n, fetch_ms=15, **code(str(n) * 40)) for n in (1, 2)]
    found = compare(runs, noisy(tmp_path / "b", SOME(5), **MORE, **code(ONE)))
    assert found.because.kind == "unexplained"
    (note,) = [note for note in found.notes if note.startswith("Runs of one side differ in")]
    assert "num_workers" in note
    assert "code" in note
    assert "[code: varies → 1111111111]" in told(found)
    assert next((each.a, each.b) for each in found.settings if each.name == "num_workers") == ("varies", 4)


def test_another_driver_may_explain_what_the_device_takes(tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        train(tmp_path / name, [[Step(fetch_ns=MS, compute_ns=(20 + 20 * number) * MS)] * 60])
        update_run(tmp_path / name, {"device": {"kind": "cuda", "title": "NVIDIA H200"}})
        note_devices(tmp_path / name, [SampledDevice(0, "NVIDIA H200")], f"5{number}0.1")
        assert sampled_devices(tmp_path / name) == (SampledDevice(0, "NVIDIA H200"),)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.because.kind, found.because.part) == ("environment", "compute")
    assert [each.name for each in found.because.by] == ["driver"]
    assert "[driver: 500.1 → 510.1]" in told(found)
    note_devices(noisy(tmp_path / "cpu", SOME(1), device={"kind": "cpu"}), [], "500.1")
    assert open_run(tmp_path / "cpu").info["device"] == {"kind": "cpu"}, "a processor has no driver"


def test_page_locked_memory_is_named_where_copies_got_shorter(tmp_path: Path) -> None:
    for name, pinned in (("a", False), ("b", True)):
        step = Step(fetch_ns=MS // 2, compute_ns=5 * MS, copy_bytes=40_000_000, pinned=pinned)
        train(tmp_path / name, [[step] * 60])
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.because.part == "copy"
    assert [each.name for each in found.because.by] == ["copies from"]
    assert found.emulated


def test_without_samples_steps_are_compared(tmp_path: Path) -> None:
    found = compare(noisy(tmp_path / "a", SOME(1), samples=None), noisy(tmp_path / "b", SOME(2), fetch_ms=30))
    assert found.times.unit == "step"
    assert found.times.terms[TOTAL].a.value == pytest.approx(1e3 * true_ms(), rel=0.1)
    assert any("times are per step" in note for note in found.notes)


def test_beginnings_of_epochs_that_one_side_shows_less_of_are_weighed(tmp_path: Path) -> None:
    for name, epochs in (("a", 2), ("b", 6)):
        begin, step = Step(fetch_ns=200 * MS), Step(fetch_ns=MS)
        train(tmp_path / name, [[begin, *[step] * (120 // epochs - 1)]] * epochs)
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.times.starts_weighed
    assert any("different shares of epochs' beginnings" in note for note in found.notes)
    assert found.times.speedup.value < 1


def test_what_is_no_pair_of_one_training_is_refused(tmp_path: Path) -> None:
    real, ssd, cost = (noisy(tmp_path / name, SOME(1), trial={"scenario": name}) for name in ("real", "ssd", "cost"))
    train(tmp_path / "emulated", [[Step()] * 40])
    create_run(tmp_path / "empty", {})
    for a, b, words in (
        (real, tmp_path / "empty", "holds no step of a training"),
        (real, tmp_path / "emulated", "emulated and measured times are not compared"),
        (ssd, cost, "scenario ssd, B ran scenario cost"),
        ([real, real], ssd, "named twice"),
    ):
        with pytest.raises(WhyidleError, match=words):
            compare(a, b)


def test_causes_that_went_and_came_are_told(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=0, fetch_ms=30)
    b = noisy(tmp_path / "b", SOME(2), workers=0, fetch_ms=0.1)
    assert "gone: input.serial" in rendered(diff_document(compare(a, b)))
    assert "new: input.serial" in rendered(diff_document(compare(b, a)))


def test_a_cell_of_a_comparison_stands_for_its_rounds(tmp_path: Path) -> None:
    names = [f"workers-b8-r{n}" for n in range(3)]
    for n, name in enumerate(names):
        noisy(tmp_path / name, SOME(n))
    noisy(tmp_path / "workers-b80-r0", SOME(9))
    write_comparison(tmp_path, {}, [CellRecord("workers", 8, "ok", None, tuple(names))])
    assert [Path(folder).name for folder in side_of("A", [tmp_path / "workers-b8"]).folders] == names
    with pytest.raises(WhyidleError, match="comparison of 2 cells"):
        side_of("A", [tmp_path])


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


TRUTH = 40 / 27
"""How many times as fast B is: a step of 40 ms becomes one of 27."""
KEPT, BROKEN, NEARLY = Speedup(1.5, 1.4, 1.6), Speedup(3.0, 2.5, 3.5), Speedup(1.9, 1.55, 2.2)
WORKERS = Next("num_workers=4", speedup=KEPT, settings={"num_workers": 4}, kind="workers")
CODE = Next("train.py:3: keep what it gives", speedup=KEPT, kind="once")


def finding(cause: str, share: float, *changes: Next) -> Finding:
    return Finding(cause, "", share, 0.9, next=changes)


def said(side: Side, *findings: Finding) -> Side:
    (run,) = side.runs
    return replace(side, runs=(replace(run, analysis=replace(run.analysis, findings=findings)),))


def compared(
    folder: Path,
    of_a: Sequence[Finding],
    of_b: Sequence[Finding] = (),
    workers: tuple[int, int] = (1, 4),
    samples: tuple[int, int] = (8, 8),
    flags: tuple[int | None, int | None] = (None, None),
    steps: int = 200,
) -> Difference:
    a = noisy(folder / "a", SOME(1), workers=workers[0], fetch_ms=15, samples=samples[0], flags=flags[0], steps=steps)
    b = noisy(folder / "b", SOME(2), workers=workers[1], fetch_ms=2, samples=samples[1], flags=flags[1], steps=steps)
    return Difference(said(side_of("A", [a]), *of_a), said(side_of("B", [b]), *of_b))


def few(change: Next, share: float = 0.4) -> Finding:
    return finding("input.too_few_workers", share, change)


IN_CODE = finding("input.serial", 0.4, CODE)
BOTH = {"num_workers": 4, "persistent_workers": True}
SERIAL: dict[str, Any] = {"workers": (0, 0)}


@pytest.mark.parametrize(
    ("of_a", "of_b", "how", "followed", "said"),
    [
        ([few(WORKERS)], [], {}, (WORKERS.change, True, True), ": kept."),
        ([few(replace(WORKERS, speedup=BROKEN))], [], {}, (WORKERS.change, True, False), ": not kept."),
        (
            [few(replace(WORKERS, speedup=NEARLY))],
            [],
            {},
            (WORKERS.change, True, None),
            ": undecided, the two intervals overlap.",
        ),
        ([few(replace(WORKERS, settings={"num_workers": 8}))], [], {}, None, ""),
        ([few(replace(WORKERS, settings=BOTH))], [], {}, None, ""),
        ([few(replace(WORKERS, settings={"persistent_workers": True}))], [], {}, None, ""),
        ([few(replace(WORKERS, settings=BOTH))], [], {"flags": (0, 2)}, (WORKERS.change, True, True), ""),
        ([few(WORKERS)], [], {"workers": (4, 4)}, None, ""),
        ([IN_CODE], [], SERIAL, (CODE.change, False, True), "apparently: input.serial is gone"),
        ([IN_CODE], [finding("input.serial", 0.1)], SERIAL, (CODE.change, False, True), ""),
        ([IN_CODE], [finding("input.serial", 0.35)], SERIAL, None, ""),
        ([IN_CODE], [], {}, None, ""),
        ([finding("host.step_gap", 0.4, CODE), few(WORKERS, 0.2)], [], {}, (WORKERS.change, True, True), ""),
        ([few(replace(WORKERS, speedup=None))], [], {}, None, ""),
        ([few(WORKERS)], [], {"samples": (8, 16)}, None, ""),
        ([few(WORKERS)], [], {"steps": 10}, None, ""),
    ],
)
def test_advice_that_was_followed_is_held_against_its_promise(
    tmp_path: Path,
    of_a: list[Finding],
    of_b: list[Finding],
    how: dict[str, Any],
    followed: tuple[str, bool, bool | None] | None,
    said: str,
) -> None:
    found = compared(tmp_path, of_a, of_b, **how)
    shown = " ".join(rendered(diff_document(found)).split())
    assert ("Advice that was followed" in shown) == (followed is not None)
    assert said in shown
    kept = found.promise
    assert (kept and (kept.advice.change, kept.is_set, kept.kept)) == followed
    if kept is not None:
        assert kept.measured.low <= TRUTH <= kept.measured.high
        assert kept.cause in {each.cause for each in of_a}
    told = builtins(run_json.difference(found))["promise"]
    assert (told and (told["advice"]["change"], told["is_set"], told["kept"])) == followed


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
