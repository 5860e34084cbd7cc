"""Attribution against ground truth: random trainings on the emulated device and a virtual clock.

The truth (`VirtualRun.truth`) is told by the engines and the training loop themselves, and summed instant by instant;
it shares nothing with the analysis but the order in which causes are blamed.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from support.trainings import Training, trainings
from whyidle.analyse.run.facts import facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.run import open_run
from whyidle.scenarios.planted import VirtualRun, train

MOST_ERROR = 0.001
"""Of wall time, for each part."""


@settings(suppress_health_check=[HealthCheck.data_too_large])
@given(training=trainings())
def test_every_part_is_what_the_engines_and_the_loop_really_did(
    tmp_path_factory: pytest.TempPathFactory, training: Training
) -> None:
    epochs, workers, spec = training
    run = train(tmp_path_factory.mktemp("truth") / "run", epochs, workers=workers, spec=spec)
    assert_true(run)


def assert_true(run: VirtualRun) -> None:
    facts = facts_of(open_run(run.folder))
    assert facts is not None
    parts, window = facts.parts, facts.window
    assert parts.unresolved_steps == 0
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns == window.wall_ns
    truth = run.truth(window.begin_ns, window.end_ns)
    assert sum(truth.values()) == window.wall_ns
    for part in PARTS:
        found = getattr(parts, f"{part}_ns")
        assert found == pytest.approx(truth[part], abs=MOST_ERROR * window.wall_ns), (part, parts, truth)
