"""Steps that cannot be: one computes hundreds of times as long as another with the same work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.crafted import add_events, analysis_of_run, facts_of_run, steps_of, train_on_cpu
from whyidle.record.schema import NOT_MEASURED, EventKind, StepFlag

KNOWN, NEW = StepFlag.SHAPE_KNOWN, StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE
ELEMENTS = 1000 << StepFlag.ELEMENTS_SHIFT


def fetches_only(short_ms: float = 0.1, learns: bool = False) -> dict[str, float]:
    """A "step" that fetches a batch for 10 ms and computes next to nothing."""
    flags = KNOWN | ELEMENTS | (StepFlag.OPTIMIZER if learns else 0)
    return {"end": 10 + short_ms, "gap": 0, "flags": flags}


def computes(ms: float = 500, new: bool = True) -> dict[str, float]:
    return {"end": 10 + ms, "gap": 0, "flags": (NEW if new else KNOWN) | ELEMENTS | StepFlag.OPTIMIZER}


@pytest.mark.parametrize("together", [2, 4, 16])
def test_steps_of_which_some_only_fetch_for_others_are_doubted_and_no_cause_is_made_of_them(
    tmp_path: Path, together: int
) -> None:
    folder = train_on_cpu(tmp_path / "run", ([fetches_only()] * (together - 1) + [computes()]) * (160 // together))
    analysis = analysis_of_run(folder)
    assert analysis.facts is not None
    doubtful = analysis.facts.doubtful
    assert doubtful is not None
    assert doubtful.times == pytest.approx(5000, rel=0.01)
    assert "device.shape_churn" not in {finding.cause for finding in analysis.findings}
    (said,) = [note for note in analysis.notes if "these cannot all be steps" in note]
    assert f"{doubtful.short} of {doubtful.of} steps compute a 5000th of what the others do" in said


def test_steps_that_learn_are_doubted_only_beyond_what_tuning_explains(tmp_path: Path) -> None:
    for short_ms, doubted in ((2.5, False), (0.1, True)):
        steps = [fetches_only(short_ms, learns=True), computes()] * 40
        facts = facts_of_run(train_on_cpu(tmp_path / f"run{short_ms}", steps))
        assert (facts.doubtful is not None) == doubted


def test_single_steps_may_be_anything(tmp_path: Path) -> None:
    steps = [computes(1, new=False)] * 99 + [computes(5000)]
    assert facts_of_run(train_on_cpu(tmp_path / "run", steps)).doubtful is None


def test_what_the_compiler_took_is_no_reason_to_doubt(tmp_path: Path) -> None:
    folder = train_on_cpu(tmp_path / "run", ([computes(1, new=False)] * 9 + [computes(5000)]) * 10)
    assert facts_of_run(folder).doubtful is not None
    spans = [(int(step["fetch_end_ns"]), int(step["step_end_ns"])) for step in steps_of(folder)[9::10]]
    add_events(folder, [(begin, EventKind.COMPILE, NOT_MEASURED, end) for begin, end in spans])
    facts = facts_of_run(folder)
    assert facts.doubtful is None
    assert facts.shape_churn is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(lengths=st.lists(st.floats(5, 400), min_size=30, max_size=60))
def test_steps_within_a_factor_of_a_hundred_are_never_doubted(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[float]
) -> None:
    folder = train_on_cpu(tmp_path_factory.mktemp("run") / "run", [computes(ms) for ms in lengths])
    assert facts_of_run(folder).doubtful is None
