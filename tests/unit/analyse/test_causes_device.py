"""What the device loses to new shapes, want of memory, slow clocks, others and copies: and where nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden import singles
from support.crafted import add, add_events, amend, evidence, facts_of_run, found, steps_of, train_on_cpu
from support.judged_waits import rates
from support.planted_runs import (
    COMPUTE,
    ODD,
    SEVERITIES,
    STEPS,
    clocked,
    computing,
    looked,
    retries,
    shapes,
    shares,
    until,
)
from whyidle.analyse.causes.claim import Piece
from whyidle.analyse.causes.pieces import pieces_of
from whyidle.analyse.intervals import covered
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.statistics import SCATTER_SD
from whyidle.record.reader import Records
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import DEVICE, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, Step, train


def each_odd(share: float) -> int:
    """What every tenth step takes longer, for so much of the time."""
    return round(10 * COMPUTE * share / (1 - share))


def compiled(folder: Path, share: float) -> None:
    """Steps with new shapes, compiled for before they can compute."""
    wait = each_odd(share)
    train(folder, [[Step(fetch_ns=0, sync=True, before_ns=wait if n in ODD else 0) for n in range(STEPS)]])
    begins = steps_of(shapes(folder))["fetch_end_ns"]
    add_events(folder, [(int(begins[n]), EventKind.COMPILE, 0, int(begins[n]) + wait) for n in ODD])


def lengths(folder: Path, drawn: list[int], power: float = 1.0, first_ms: float = 0.0, sized: bool = True) -> Path:
    """Batches of these lengths, 20 ms for a hundred; the first of each length takes so much longer."""
    steps, seen = [], set()
    for length in drawn:
        new = length not in seen
        seen.add(length)
        flags = StepFlag.SHAPE_KNOWN | (StepFlag.NEW_SHAPE if new else 0)
        flags |= 8 * length << StepFlag.ELEMENTS_SHIFT if sized else 0
        end = 1 + 20 * (length / 100) ** power + (first_ms if new else 0)
        steps.append({"fetch": 0.5, "gap": 0.1, "end": end, "flags": flags})
    return train_on_cpu(folder, steps)


def drawn(kind: str, count: int = 300) -> list[int]:
    source = np.random.default_rng(0)
    of = {
        "lognormal": lambda: np.exp(source.normal(4.5, 0.8, count)).clip(5, 1024),
        "pareto": lambda: (64 * (1 + source.pareto(1.2, count))).clip(64, 2048),
        "mostly 128": lambda: np.where(source.random(count) < 0.8, 128, source.integers(200, 512, count)),
    }[kind]
    return [int(length) for length in of()]


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("kind", ["lognormal", "pareto", "mostly 128"])
def test_batches_of_unusual_lengths_are_new_and_long_and_no_finding(tmp_path: Path, kind: str, power: float) -> None:
    folder = lengths(tmp_path / "run", drawn(kind), power)
    flags = steps_of(folder)["flags"]
    assert np.mean((flags & StepFlag.NEW_SHAPE) != 0) > 0.15
    assert facts_of_run(folder).shape_churn is None
    assert shares(folder) == {}


def test_what_new_shapes_take_beyond_their_size_is_found_among_lengths_that_vary(tmp_path: Path) -> None:
    many = drawn("mostly 128")
    folder = lengths(tmp_path / "run", many, first_ms=600)
    steps = steps_of(folder)[5:]
    true = int(((steps["flags"] & StepFlag.NEW_SHAPE) != 0).sum()) * 600 * MS
    true_share = true / float((steps["step_end_ns"] - steps["fetch_begin_ns"]).sum())
    # Of the longest ones size might explain a part: less is found than there is, never more.
    assert 0.6 * true_share < shares(folder)["device.shape_churn"] <= true_share
    # Where nobody told the sizes, new shapes are not told from large ones; the compiler's own time is.
    unsized = lengths(tmp_path / "unsized", many, first_ms=600, sized=False)
    assert shares(unsized) == {}
    begins = steps_of(unsized)["forward_begin_ns"][10:60:5].tolist()
    add_events(unsized, [(begin, EventKind.COMPILE, 0, begin + 15 * MS) for begin in begins])
    compiled = facts_of_run(unsized).shape_churn
    assert compiled is not None
    assert (compiled.hit, compiled.total_ns) == (10, pytest.approx(150 * MS, rel=0.01))


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        # Shapes that are new and no slower; a third longer may be a third larger.
        (lambda folder: shapes(computing(folder, 0, ODD), ODD), {}),
        (lambda folder: shapes(computing(folder, COMPUTE // 3, range(10, STEPS, 2)), range(10, STEPS, 2)), {}),
        # The device idles while its host compiles: the time is the host's, and its cause the shapes.
        *((lambda folder, share=share: compiled(folder, share), {"device.shape_churn": share}) for share in SEVERITIES),
        # Heat that the driver only counts.
        (
            lambda folder: heated(folder, {"sm_clock_mhz": 900, "sm_clock_max_mhz": 1500}),
            {"device.throttled": 0.4},
        ),
        # Utilisation far below what the steps span is slow launching; not of a busy device, an idle host, unmeasured.
        *(
            (lambda folder, share=share: launching(folder, 100 * (1 - share)), {"host.launch": share})
            for share in (0.2, 0.3, 0.6)
        ),
        (lambda folder: launching(folder, 90), {}),
        (lambda folder: launching(folder, 50, thread=0.3), {}),
        (lambda folder: launching(folder, None), {}),
        # Slow launching leaves the clocks their part.
        (
            lambda folder: launching(folder, 60, **clocked(1050, 0x20)),
            {"host.launch": 0.4, "device.throttled": 0.6 * 0.3},
        ),
        # Copies beside the computation.
        (lambda folder: linked(copying(folder, 0.3, ahead=True), (4, 16)), {}),
    ],
)
def test_what_is_planted_has_its_share_and_what_costs_nothing_is_none(
    tmp_path: Path, plant: Callable[[Path], object], expected: dict[str, float]
) -> None:
    plant(tmp_path / "run")
    seen = found(tmp_path / "run")
    assert {cause: each.share for cause, each in seen.items()} == pytest.approx(expected, abs=0.02)
    assert all(each.confidence <= 0.5 for cause, each in seen.items() if cause == "host.launch")


@pytest.mark.parametrize(
    ("each_ms", "odd"),
    [
        *((each_odd(share) / MS, range(60, 180, 10)) for share in SEVERITIES),
        # Retries all the time are the slowest steps, and where none is slower nothing.
        (8, range(7, STEPS, 4)),
        (10, range(7, STEPS, 2)),
        (0, range(7, STEPS, 4)),
        (0, range(7, STEPS, 10)),
    ],
)
def test_retries_of_the_allocator_have_the_share_of_what_their_steps_take_longer(
    tmp_path: Path, each_ms: float, odd: range
) -> None:
    folder = computing(tmp_path / "run", round(each_ms * MS), odd)
    assert shares(folder) == {}
    retries(folder, odd)
    lost = len([n for n in odd if n >= 5]) * each_ms * MS
    seen = found(folder)
    assert set(seen) == ({"device.memory_pressure"} if each_ms else set())
    if each_ms:
        finding = seen["device.memory_pressure"]
        assert finding.share == pytest.approx(lost / (lost + 195 * COMPUTE), abs=0.02)
        assert evidence(finding)["Allocator retries"] == len(odd)
        assert "expandable_segments" in finding.next[0].change


@pytest.mark.parametrize(
    ("states", "share", "words"),
    [
        *(
            ([clocked(1500 * (1 - share), reason)], share, f"{1500 * (1 - share):.0f} instead of 1500 MHz")
            for share in SEVERITIES
            for reason in (0x20, 0x40, 0x8)  # heat, and the hardware's own protection
        ),
        ([clocked(1300, 0), clocked(650, 0x20)], 0.25, "650 instead of 1300 MHz for 49 %"),
        # Full clocks; slow without a reason; idle; at the power cap all the time and near its highest clock; unknown.
        ([clocked(1500, 0)], None, ""),
        ([clocked(900, 0)], None, ""),
        ([clocked(300, 0x1)], None, ""),
        ([clocked(1350, 0x4)], None, ""),
        ([{"throttle_reasons": 0x20}], None, ""),
        # A power cap counts when it takes much, or comes and goes.
        ([clocked(1050, 0x4)], 0.3, "the power cap"),
        ([clocked(1500, 0), clocked(1500, 0), clocked(1230, 0x4)], 0.06, ""),
        # A card at its power cap under full load, and now and then at its highest clock under less.
        *(
            ([clocked(0.86 * most, 0x4, most)] * (40 - free) + [clocked(most, 0, most)] * free, None, "")
            for free in (1, 5, 15)
            for most in (1500, 1700)
        ),
        # Free most of the time, and hardly faster then.
        ([clocked(1395, 0x4)] * 10 + [clocked(1500, 0)] * 30, None, ""),
    ],
)
def test_clocks_held_down_have_their_share_and_others_none(
    tmp_path: Path, states: list[dict[str, float]], share: float | None, words: str
) -> None:
    looked(computing(tmp_path / "run"), *states)
    seen = found(tmp_path / "run")
    assert set(seen) == ({"device.throttled"} if share else set())
    if share:
        assert seen["device.throttled"].share == pytest.approx(share, abs=0.02 if share > 0.1 else 0.01)
        assert words in seen["device.throttled"].title


def heated(folder: Path, state: dict[str, float]) -> Path:
    """The driver only counts the time that heat takes, all of it."""
    computing(folder)
    looks = range(START, until(folder), 50 * MS)
    add(folder, DEVICE, [{"t_ns": t, "device": 0, "thermal_ns": t - START} | state for t in looks])
    return folder


def launching(folder: Path, utilisation: float | None, thread: float = 0.95, **state: float) -> None:
    """A training whose thread runs so much of its time outside fetches and calls."""
    train(folder, [[Step(fetch_ns=0)] * STEPS])

    def change(steps: Records) -> None:
        steps["cpu_ns"] = (thread * (steps["step_end_ns"] - steps["fetch_begin_ns"])).astype("i8")

    amend(folder, change)
    looked(folder, state, utilisation_pct=utilisation)


@pytest.mark.parametrize(("clock", "notes"), [(900, 0), (1499, 1)])
def test_notes_do_not_repeat_what_a_finding_says(tmp_path: Path, clock: float, notes: int) -> None:
    folder = heated(tmp_path / "run", clocked(clock, 0x20))
    update_run(folder, {"device": {"kind": "cuda", "title": "a GPU"}})
    assert len([n for n in analyse(open_run(folder)).notes if "clocks" in n]) == notes


def evaluating(folder: Path, boundary_ns: int, every: int, fetch_ns: int = 0) -> Path:
    """A training that validates on the device after every so many steps."""
    step = Step(fetch_ns=fetch_ns, compute_ns=COMPUTE, sync=True)
    train(folder, [[replace(step, boundary_ns=0 if n % every else boundary_ns) for n in range(1, 301)]])
    return folder


def busy_when(folder: Path, idle: float, window_ns: int) -> None:
    """Utilisation where kernels ran while steps computed, outside them, and for a share of the rest."""
    parts = facts_of_run(folder).parts
    ends = np.arange(START + window_ns, until(folder), window_ns)
    own, beside = (
        covered(part, ends - window_ns, ends) / window_ns for part in (parts.when["compute"], parts.when["boundary"])
    )
    ran = 100 * (own + beside + idle * (1 - own - beside))
    told = zip(ends.tolist(), ran.tolist(), strict=True)
    rows = [{"t_ns": t, "device": 0, "window_ns": window_ns, "utilisation_pct": part} for t, part in told]
    add(folder, DEVICE, [*rows, {"t_ns": START + 200 * MS, "device": 0, "processes": 2}])


@pytest.mark.parametrize(
    ("boundary_ms", "every", "fetch_ms", "window_ms", "others"),
    [
        # Validation on the device is nobody else's kernels.
        *(
            (boundary_ms, every, fetch_ms, 50, 0.0)
            for boundary_ms, every in ((150, 30), (50, 40))
            for fetch_ms in (0, 5)
        ),
        (400, 40, 5, 50, 0.0),
        (400, 40, 8, 50, 0.2),
        (400, 40, 8, 50, 0.7),
        (50, 4, 8, 100, 0.6),  # windows that all touch validation say nothing
    ],
)
def test_others_beside_a_training_that_validates_keep_their_share(
    tmp_path: Path, boundary_ms: int, every: int, fetch_ms: int, window_ms: int, others: float
) -> None:
    folder = evaluating(tmp_path / "run", boundary_ms * MS, every, fetch_ms * MS)
    busy_when(folder, others, window_ms * MS)
    assert facts_of_run(folder).sampled.gpu_processes == 2
    seen = found(folder).get("device.contended")
    assert (seen is not None) == (others > 0 and window_ms == 50)
    if seen is not None:
        assert seen.share == pytest.approx(facts_of_run(folder).parts.share("compute") * others, abs=0.02)


def test_windows_of_unknown_length_cannot_be_placed_and_full_ones_are_nobody_elses(tmp_path: Path) -> None:
    looked(computing(tmp_path / "run", fetch_ns=10 * MS), {"processes": 2, "utilisation_pct": 90.0})
    looked(evaluating(tmp_path / "steady", 150 * MS, 30), {"processes": 2}, utilisation_pct=98.0)
    for folder in ("run", "steady"):
        assert "device.contended" not in found(tmp_path / folder)


@pytest.mark.parametrize(
    ("known", "contended"),
    [
        ({}, True),
        ({"other_processes": 1}, False),
        ({"set_workers": 4, "starts_python": True}, False),
        ({"set_workers": 4, "starts_python": False}, True),
        # A loader that is not torch's may use the GPU.
        ({"device_kind": "cuda", "set_workers": None}, False),
        ({"device_kind": "cuda", "set_workers": 0}, True),
    ],
)
def test_kernels_of_this_jobs_own_processes_and_loaders_are_not_others(
    tmp_path: Path, known: dict[str, Any], contended: bool
) -> None:
    singles.BUILDERS["contended"](tmp_path)
    facts = replace(facts_of_run(tmp_path / "run"), **known)
    assert (pieces_of(facts)[Piece.CONTENDED] > 0) is contended


PINNED_BYTES_PER_MS = 10_000_000


def copying(folder: Path, share: float, **how: Any) -> Path:
    """Copies that make up so much of the step, pinned or not."""
    ms = 10 * share / (1 - share)
    speed = PINNED_BYTES_PER_MS if how.get("pinned", True) else PINNED_BYTES_PER_MS // 2
    train(folder, [[Step(fetch_ns=0, compute_ns=COMPUTE, copy_bytes=round(ms * speed), **how)] * 150])
    return folder


def linked(folder: Path, *looks: tuple[int, int], most: tuple[int, int] = (4, 16), device: int = 0) -> None:
    """Looks at the link, (generation, width) in turns, every 50 ms."""
    rows = [
        {"t_ns": START + n * 50 * MS, "device": device, "pcie_generation": generation, "pcie_width": width}
        for n, (generation, width) in enumerate(islice(cycle(looks), 200))
    ]
    add(folder, DEVICE, [row | {"pcie_max_generation": most[0], "pcie_max_width": most[1]} for row in rows])


def test_copies_that_take_longer_than_the_computation_beside_them_are_not_serial(tmp_path: Path) -> None:
    folder = copying(tmp_path / "run", 0.6, ahead=True)
    assert "copy.serial" not in found(folder)
    assert facts_of_run(folder).parts.share("copy") > 0.1


def test_a_link_that_turns_itself_down_is_judged_at_its_best_and_an_unknown_one_not(tmp_path: Path) -> None:
    linked(copying(tmp_path / "saving", 0.3), (1, 16), (1, 16), (4, 16))
    linked(copying(tmp_path / "unknown", 0.3), (0, 0), most=(0, 0))
    for name, linked_too in (("saving", False), ("unknown", True)):
        assert set(found(tmp_path / name)) == {"copy.serial"}
        # Which of several devices this training copies to is not known.
        linked(tmp_path / name, (4, 4), device=1)
        assert ("copy.link" in found(tmp_path / name)) is linked_too


@pytest.mark.parametrize(("used", "share"), [(None, None), (8.0, None), (95.0, 0.1 * 0.875)])
def test_only_looks_while_the_device_is_in_use_judge_its_link(
    tmp_path: Path, used: float | None, share: float | None
) -> None:
    """Copies of 10 % of the time in a training that mostly waits for data, and another phase of the same run."""
    step = Step(fetch_ns=40 * MS, compute_ns=3 * MS, copy_bytes=40_000_000, pinned=True)
    train(tmp_path / "run", [[step] * 150])
    linked(tmp_path / "run", (1, 16))
    if used is not None:
        looks = range(START + 5000 * MS, START + 7500 * MS, 50 * MS) if share else range(START, START + 10**10, 50 * MS)
        rows = [{"t_ns": t, "device": 0, "window_ns": 50 * MS, "utilisation_pct": used} for t in looks]
        add(tmp_path / "run", DEVICE, rows)
    assert shares(tmp_path / "run").get("copy.link") == (share and pytest.approx(share, abs=0.01))


@pytest.mark.parametrize("share", SEVERITIES)
@pytest.mark.parametrize("width", [12, 8, 1])
def test_no_change_for_a_slow_link_removes_more_than_it_costs(tmp_path: Path, share: float, width: int) -> None:
    folder = copying(tmp_path / "run", share)
    linked(folder, (4, width))
    facts, seen = facts_of_run(folder), found(folder).get("copy.link")
    assert (seen is None) == (share * (1 - width / 16) < 0.05)
    most = facts.samples_per_s_without(seen.share * facts.parts.wall_ns if seen else 0)
    assert most is not None
    for _, rate, high in map(rates, seen.next if seen else ()):
        assert rate <= most * 1.001
        assert high <= most * math.exp(1.645 * SCATTER_SD) * 1.001
