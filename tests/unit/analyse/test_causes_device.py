"""Steps that compute longer for new shapes or want of memory: each at several sizes, and where neither is why."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add_events, amend, evidence, facts_of_run, found, steps_of, train_on_cpu
from support.device_runs import COMPUTE, ODD, SEVERITIES, STEPS, clocked, computing, shares
from support.planted_runs import looked
from whyidle.record.reader import Records
from whyidle.record.schema import NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, Step, train


def each_odd(share: float) -> int:
    """What every tenth step takes longer, for so much of the time."""
    return round(10 * COMPUTE * share / (1 - share))


def shapes(folder: Path, new: Iterable[int] = ODD, looked_at: bool = True) -> None:
    """The batches of some steps are the first of their shape."""
    first = set(new)

    def change(steps: Records) -> None:
        for step in steps if looked_at else ():
            step["flags"] |= StepFlag.SHAPE_KNOWN | (StepFlag.NEW_SHAPE if int(step["step"]) in first else 0)
            step["flags"] |= 1000 << StepFlag.ELEMENTS_SHIFT

    amend(folder, change)


def retries(folder: Path, steps: Iterable[int] = ODD) -> None:
    """The allocator tried again in some steps, and was asked right after each."""
    ends = steps_of(folder)["step_end_ns"]
    add_events(
        folder,
        [(int(ends[n]), EventKind.ALLOCATOR_RETRIES, count, NOT_MEASURED) for count, n in enumerate(steps, 1)],
    )


@pytest.mark.parametrize("share", SEVERITIES)
def test_new_shapes_that_take_longer_have_their_share(tmp_path: Path, share: float) -> None:
    folder = computing(tmp_path / "run", each_odd(share))
    shapes(folder)
    finding = found(folder)["device.shape_churn"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert f"at {len(ODD)} of 195 steps, the longest" in finding.title
    # The same steps, and nobody looked at the shapes: slow steps, of which nothing is known.
    unknown = computing(tmp_path / "unknown", each_odd(share))
    assert facts_of_run(unknown).shape_churn is None
    assert shares(unknown) == {}


def test_shapes_that_are_new_and_no_slower_are_no_finding(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    shapes(folder)
    assert shares(folder) == {}
    # A third longer may be a third larger.
    larger = computing(tmp_path / "larger", COMPUTE // 3, range(10, STEPS, 2))
    shapes(larger, range(10, STEPS, 2))
    assert shares(larger) == {}


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


@pytest.mark.parametrize("share", SEVERITIES)
def test_compiling_anew_is_named_where_every_step_has_a_new_shape(tmp_path: Path, share: float) -> None:
    folder = train_on_cpu(tmp_path / "run", [{"flags": StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE}] * 60)
    begins = steps_of(folder)["forward_begin_ns"].tolist()
    add_events(folder, [(begin, EventKind.COMPILE, 0, begin + round(share * 100 * MS)) for begin in begins])
    finding = found(folder)["device.shape_churn"]
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "compiler" in finding.title
    assert "dynamic=True" in finding.next[0].change


@pytest.mark.parametrize("share", SEVERITIES)
def test_compiling_before_a_step_can_compute_counts_too(tmp_path: Path, share: float) -> None:
    """The device idles meanwhile: the time is the host's, and its cause the shapes."""
    wait = each_odd(share)
    plan = [Step(fetch_ns=0, sync=True, before_ns=wait if n in ODD else 0) for n in range(STEPS)]
    train(tmp_path / "run", [plan])
    shapes(tmp_path / "run")
    begins = steps_of(tmp_path / "run")["fetch_end_ns"]
    add_events(tmp_path / "run", [(int(begins[n]), EventKind.COMPILE, 0, int(begins[n]) + wait) for n in ODD])
    assert shares(tmp_path / "run") == {"device.shape_churn": pytest.approx(share, abs=0.02)}


@pytest.mark.parametrize("share", SEVERITIES)
def test_retries_of_the_allocator_have_their_share(tmp_path: Path, share: float) -> None:
    folder = computing(tmp_path / "run", each_odd(share), range(60, 180, 10))
    assert shares(folder) == {}
    retries(folder, range(60, 180, 10))
    true = 12 * each_odd(share) / (12 * each_odd(share) + 195 * COMPUTE)
    finding = found(folder)["device.memory_pressure"]
    assert finding.share == pytest.approx(true, abs=0.02)
    assert evidence(finding)["retries of the allocator"] == 12
    assert "expandable_segments" in finding.next[0].change


@pytest.mark.parametrize(("each_ns", "every"), [(8 * MS, 4), (10 * MS, 2)])
def test_retries_all_the_time_are_the_slowest_steps(tmp_path: Path, each_ns: int, every: int) -> None:
    odd = range(7, STEPS, every)
    folder = computing(tmp_path / "run", each_ns, odd)
    retries(folder, odd)
    true = each_ns / every / (each_ns / every + COMPUTE)
    assert shares(folder) == {"device.memory_pressure": pytest.approx(true, abs=0.02)}
    # All steps alike: what they would take without retries is not known.
    same = computing(tmp_path / "same")
    retries(same, odd)
    assert shares(same) == {}


def test_retries_that_cost_nothing_are_no_finding(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run")
    retries(folder)
    assert shares(folder) == {}


def test_retries_before_the_window_are_the_warm_ups(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run", 500 * MS, range(4))
    retries(folder, range(4))
    assert facts_of_run(folder).memory_pressure is None


def test_a_few_very_slow_steps_are_the_shapes_and_the_rest_the_clocks(tmp_path: Path) -> None:
    folder = computing(tmp_path / "run", each_odd(0.5))
    shapes(folder)
    looked(folder, clocked(1050, 0x20))
    seen = shares(folder)
    assert seen["device.shape_churn"] == pytest.approx(0.5, abs=0.02)
    assert seen["device.throttled"] == pytest.approx(0.5 * 0.3, abs=0.02)
    assert sum(share for cause, share in seen.items()) <= facts_of_run(folder).parts.share("compute") + 1e-9
