"""Differences between runs whose true times are known: their reasons, what was advised and followed, what two runs
differ by anyway, and lines of code that took more or less of the time."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.crafted import add, amend, facts_of_run
from support.jobs import Rank, record
from support.pairs import SOME, ahead, compare, crowded, noisy, true_ms
from support.planted_runs import until
from support.planted_stacks import DECODING, FETCHING, FORWARD, MAIN, OPENING, WAITING, WORKER, look
from support.rendered import rendered
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.diff.difference import MOST_LINES, Difference, MovedLine
from whyidle.analyse.diff.sides import Side, assumed_noise, scatter_of, side_of
from whyidle.analyse.run.stall_breakdown import PARTS, TOTAL
from whyidle.analyse.statistics import RUN_NOISE, Speedup
from whyidle.errors import WhyidleError
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.reader import Records
from whyidle.record.run import SampledDevice, create_run, note_devices, open_run, sampled_devices, update_run
from whyidle.record.schema import BATCH, NOT_MEASURED, StepFlag
from whyidle.record.stacks import Call, CallStack
from whyidle.report.contract import run as run_json
from whyidle.report.contract.encode import builtins
from whyidle.report.documents.diff import diff_document, headline, moved
from whyidle.scenarios.planted import MS, START, Step, train

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
CHANGED = ["[code: 1111111111 → 2222222222]", "`git diff 1111111111 2"]
CHANGED += ["the changed code 1111111111 → 2222222222 may explain (no recorded"]
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
        (HERE, SLOWER | THERE, "code", "code", CHANGED),
        (FEW | HERE, MORE | THERE, "setting", "num_workers", ["because num_workers 1 → 4.", "The code differs too (1"]),
        (HERE, SLOWER | THERE | ran("--width", "64"), "command", "--width code", ["(word --width not given → 64 and"]),
        (HERE, SLOWER | HERE | ran("--width", "64"), "command", "--width", ["the command may explain (word"]),
        (HERE, SLOWER | code(ONE, True), "code", "code", [SAME_BUT[0], "1 + changes]"]),
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


def test_two_runs_of_one_setting_are_rarely_called_different(tmp_path: Path) -> None:
    """40 pairs whose speeds differ by 2 % (standard deviation) for no reason, as on an ordinary machine."""
    rng = SOME(7)
    runs = [noisy(tmp_path / str(n), rng, steps=120, run_noise=0.02, step_noise=0.3) for n in range(80)]
    sides = [side_of("A", [run]) for run in runs]
    found = [Difference(a, b) for a, b in zip(sides[::2], sides[1::2], strict=True)]
    wrong = sum(each.times.significant for each in found)
    wrong_parts = sum(any(each.times.terms[part].significant for part in PARTS) for each in found)
    assert wrong <= 0.1 * len(found)
    assert wrong_parts <= 0.1 * len(found)


def test_steps_that_follow_each_other_widen_the_interval(tmp_path: Path) -> None:
    """What blocks say a run scatters by is what runs do scatter by; steps taken one by one would say a third."""
    rng = SOME(3)
    totals, told = [], []
    for number in range(40):
        folder = noisy(tmp_path / str(number), rng, steps=320, run_noise=0.0, step_noise=0.2, follow=0.9)
        facts = facts_of_run(folder)
        totals.append(facts.parts.wall_ns / facts.samples)
        told.append(scatter_of(facts)["sample"][TOTAL])
    true = float(np.std(totals, ddof=1) / np.mean(totals))
    said = float(np.sqrt(np.mean(told)))
    by_step = 0.2 / np.sqrt(320)
    assert by_step < 0.5 * true
    assert true / 1.6 < said < true * 1.6


def scatter(folder: Path) -> float:
    """What its own steps say a run's time may be off by, as a share; NaN where they say nothing."""
    (run,) = side_of("A", [folder]).runs
    return float(np.sqrt(run.scatter["sample"][TOTAL])) if run.scatter else float("nan")


@pytest.mark.parametrize(("read_every", "pause_ms"), [(1, 0), (10, 0), (1000, 0), (1000, 200)])
def test_a_host_that_runs_ahead_is_no_scatter(tmp_path: Path, read_every: int, pause_ms: float) -> None:
    """Every step takes as long; the host is up to ten, or sixty, of them ahead of the device."""
    for name, compute_ms in (("a", 10), ("b", 13)):
        how = {"compute_ms": compute_ms, "read_every": read_every, "pause_ms": pause_ms}
        ahead(tmp_path / name, SOME(1), run_noise=0, step_noise=0, **how)
        assert scatter(tmp_path / name) < 0.002
    assert compare(tmp_path / "a", tmp_path / "b").times.significant


def test_blocks_are_cut_where_the_device_told_when_it_was_done(tmp_path: Path) -> None:
    run = ahead(tmp_path / "a", SOME(1), run_noise=0, step_noise=0, read_every=1000)

    def forget(steps: Records) -> None:
        most = (steps["step"] % 20 > 4) & (steps["step"] % 60 < 59)
        for name in ("device_begin_ns", "device_end_ns"):
            steps[name][most] = NOT_MEASURED
        steps["flags"][most] |= StepFlag.MARKS_DROPPED

    amend(run, forget)
    assert scatter(run) < 0.01


def test_steps_that_were_let_pass_count_in_the_block_that_holds_their_time(tmp_path: Path) -> None:
    run = noisy(tmp_path / "a", SOME(1), run_noise=0, step_noise=0)

    def thin(steps: Records) -> None:
        """Three more before each, in the time of three."""
        lasted = int(steps["step_end_ns"][0] - steps["fetch_begin_ns"][0])
        for name in ("fetch_begin_ns", "fetch_end_ns", "forward_begin_ns", "optimizer_end_ns", "step_end_ns"):
            steps[name] += 3 * lasted * np.arange(len(steps))
        steps["skipped"][1:], steps["skipped_samples"][1:] = 3, 24

    amend(run, thin)
    assert scatter(run) < 1e-6


def test_of_runs_of_a_few_steps_nothing_is_claimed(tmp_path: Path) -> None:
    a = noisy(tmp_path / "a", SOME(1), workers=1, fetch_ms=60, steps=20)
    b = noisy(tmp_path / "b", SOME(2), workers=4, fetch_ms=2)
    found = compare(a, b)
    assert found.times.speedup.low > 1
    assert not found.times.significant
    assert not any(term.significant for term in found.times.terms.values())
    assert (found.because.kind, found.because.by) == ("none", ())
    assert headline(found).startswith("Too short to judge: B was 3")
    assert "but one has only 19 steps after the warm-up" in headline(found)


def test_runs_that_agree_narrow_the_interval_and_runs_that_do_not_widen_it(tmp_path: Path) -> None:
    quiet = [noisy(tmp_path / f"q{n}", SOME(n), run_noise=0.002, step_noise=0.02) for n in range(6)]
    loud = [noisy(tmp_path / f"l{n}", SOME(n), run_noise=0.15, step_noise=0.02) for n in range(6)]

    def reach(found: Difference) -> float:
        return found.times.speedup.high / found.times.speedup.low

    one = reach(compare(quiet[0], quiet[1]))
    assert reach(compare(quiet[:3], quiet[3:])) < 0.97 * one
    assert reach(compare(loud[:3], loud[3:])) > 1.1 * one
    assert reach(compare(quiet[0], quiet[1], noise=0.005)) < 0.97 * one
    assert not any("One run of each side" in note for note in compare(quiet[:3], quiet[3:]).notes)


@pytest.mark.parametrize(("busy_pct", "crowded_"), [(20.0, False), (100.0, True)])
def test_programs_that_filled_the_cpus_widen_the_interval(tmp_path: Path, busy_pct: float, crowded_: bool) -> None:
    """Others use 2 of 2 CPUs meanwhile: what two runs differ by then proves little."""
    a, b = (
        crowded(tmp_path / name, SOME(number), busy_pct=busy_pct, compute_ms=20 + 10 * number)
        for number, name in enumerate("ab")
    )
    found = compare(a, b)
    assert found.times.significant != crowded_
    assert bool(found.crowded) == crowded_
    assert any("CPUs were full" in note for note in found.notes) == crowded_


def test_programs_on_the_cpus_hold_up_only_what_needs_a_cpu(tmp_path: Path) -> None:
    """A training that sleeps is as fast beside them; makers that sleep are too, and makers that compute are not."""

    def noise(name: str, running: float | None, **makers: float) -> float:
        run = crowded(tmp_path / name, SOME(1), running=running, workers=1 if makers else 0, fetch_ms=25)
        if makers:
            cost = {what: round(share * 45 * MS) for what, share in makers.items()}
            begins = [START + number * 50 * MS for number in range(200)]
            rows = [{"step": n, "worker": 0, "samples": 8, "begin_ns": t} for n, t in enumerate(begins)]
            add(run, BATCH, [row | {"end_ns": row["begin_ns"] + 45 * MS} | cost for row in rows])
        (side,) = side_of("A", [run]).runs
        return assumed_noise(side)

    full = noise("unknown", None)
    assert full > 0.4
    assert noise("busy", 1.0) == pytest.approx(full)
    assert noise("half", 0.5) == pytest.approx(full / 2, rel=0.1)
    assert noise("asleep", 0.02) == RUN_NOISE
    asleep = noise("makers asleep", 0.02, cpu_ns=0.05, run_queue_ns=0.05)
    assert noise("makers computing", 0.02, cpu_ns=0.5, run_queue_ns=0.4) > 3 * asleep
    assert noise("makers queued, or not", 0.02, cpu_ns=0.05) > 3 * asleep


LOG = Call("log", "/home/me/logs.py", 8, "writer.write(json.dumps(history))")
LOGGING: CallStack = (MAIN, LOG)
EVERY = 10 * MS
"""Between two looks: a step of 35 ms is seen three or four times."""


def looked(run: Path, seed: int, shares: Sequence[tuple[CallStack, float]], process: int | None = None) -> Path:
    """Each look saw one of these stacks, by chance."""
    random = SOME(seed)
    which = random.choice(len(shares), 10_000, p=np.array([share for _, share in shares]))
    return look(run, range(START, until(run), EVERY), lambda number, _: shares[which[number]][0], process)


def trained(tmp_path: Path, name: str, seed: int, shares: Sequence[tuple[CallStack, float]], **how: float) -> Path:
    return looked(noisy(tmp_path / name, SOME(seed), run_noise=0.0, **how), seed, shares)


def moved_lines(a: Path | list[Path], b: Path | list[Path]) -> tuple[MovedLine, ...]:
    lines = compare(a, b).lines
    assert lines is not None
    return lines


def test_a_line_that_got_slower_is_named_with_its_time(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FETCHING, 0.3), (FORWARD, 0.6), (LOGGING, 0.1)])
    b = trained(tmp_path, "b", 2, [(FETCHING, 0.3), (FORWARD, 0.3), (LOGGING, 0.4)], compute_ms=20.0)
    named = {line.call.text: line for line in moved_lines(a, b)}
    slower = named["writer.write(json.dumps(history))"]
    # 8 samples in 35 ms: 4375 µs a sample, of which it took a tenth, then four.
    assert slower.whose == "training"
    assert slower.a.low < 437.5 < slower.a.high
    assert slower.b.low < 1750 < slower.b.high
    assert slower.change.value == pytest.approx(slower.b.value - slower.a.value)
    assert slower.change.low > 0
    assert named["loss = model(images, labels)"].change.high < 0
    assert "for images, labels in loader:" not in named


def test_lines_of_workers_count_for_all_workers_together(tmp_path: Path) -> None:
    sides = []
    for name, seed, opening in (("a", 1, 0.2), ("b", 2, 0.7)):
        run = trained(tmp_path, name, seed, [(FETCHING, 1.0)], workers=2)
        for worker in range(2):
            stacks = [(OPENING, opening), (DECODING, 0.8 - opening), (WAITING, 0.2)]
            looked(run, 10 * seed + worker, stacks, WORKER + worker)
        sides.append(run)
    named = {line.call.line: line for line in moved_lines(sides[0], sides[1])}
    assert set(named) == {27, 29}
    assert {line.whose for line in named.values()} == {"workers"}
    assert named[27].a.low < 2 * 4375 * 0.2 < named[27].a.high
    assert named[27].b.low < 2 * 4375 * 0.7 < named[27].b.high


def test_a_line_is_the_same_where_its_number_and_its_folder_moved(tmp_path: Path) -> None:
    elsewhere = replace(LOG, file="/tmp/copy/logs.py", line=31)
    a = trained(tmp_path, "a", 1, [(FORWARD, 0.9), (LOGGING, 0.1)])
    b = trained(tmp_path, "b", 2, [(FORWARD, 0.6), ((MAIN, elsewhere), 0.4)])
    lines = {line.call: line for line in moved_lines(a, b)}
    assert lines[elsewhere].a.value > 0
    assert LOG not in lines


def test_one_long_call_that_many_looks_saw_and_a_change_too_small_for_a_word_are_no_proof(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FORWARD, 0.995), (LOGGING, 0.005)])
    assert moved_lines(a, trained(tmp_path, "b", 2, [(FORWARD, 0.997), (LOGGING, 0.003)])) == ()
    once = noisy(tmp_path / "once", SOME(2), run_noise=0.0)
    stop = range(START + 2000 * MS, START + 2500 * MS)
    look(once, range(START, until(once), EVERY), lambda _, at: LOGGING if at in stop else FORWARD)
    assert moved_lines(trained(tmp_path, "c", 1, [(FORWARD, 1.0)]), once) == ()


def test_at_most_five_are_named_the_most_first(tmp_path: Path) -> None:
    calls = [(MAIN, Call(f"f{n}", "/home/me/many.py", n, f"step_{n}()")) for n in range(8)]
    a = trained(tmp_path, "a", 1, [(call, 1 / 8) for call in calls])
    b = trained(tmp_path, "b", 2, [(FORWARD, 1.0)])
    lines = moved_lines(a, b)
    assert len(lines) == MOST_LINES
    sizes = [abs(line.change.value) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert lines[0].call.text == "loss = model(images, labels)"


def test_repeats_that_differ_among_themselves_prove_less(tmp_path: Path) -> None:
    def side(name: str, *shares: float) -> list[Path]:
        return [trained(tmp_path, f"{name}{n}", n, [(FORWARD, 1 - s), (LOGGING, s)]) for n, s in enumerate(shares)]

    assert moved_lines(side("a", 0.1, 0.12, 0.11), side("b", 0.3, 0.32, 0.31))
    assert moved_lines(side("c", 0.05, 0.5, 0.05), side("d", 0.1, 0.6, 0.3)) == ()


def test_without_looks_on_one_side_nothing_is_known(tmp_path: Path) -> None:
    a = trained(tmp_path, "a", 1, [(FORWARD, 1.0)])
    assert compare(a, noisy(tmp_path / "b", SOME(2))).lines is None
