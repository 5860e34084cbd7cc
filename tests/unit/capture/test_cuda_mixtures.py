"""Random trainings on the stand-in for torch.cuda: the parts of the report are those of the engines."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from support.cuda import Machine, installed
from support.cuda.mixtures import Mixture, mixtures, train
from support.cuda.programs import compute
from support.cuda.recorded import assert_true, record


def assert_told(mixture: Mixture) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        machine = installed(Machine(*[mixture.spec] * (1 + mixture.teaches)), patch)
        machine.durations = compute(mixture.step_ns)
        assert_true(record(machine, patch, Path(folder) / "run", lambda: train(machine, mixture)), *machine.gpus)


@given(mixtures())
@settings(max_examples=40, derandomize=True)
def test_any_mixture_is_told_as_it_was(mixture: Mixture) -> None:
    assert_told(mixture)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@given(mixture=mixtures())
@settings(max_examples=200)
def test_a_great_many_of_them_are(part: int, mixture: Mixture) -> None:
    """In parts, as a test that takes minutes counts as one that hangs where the machine is busy."""
    assert_told(mixture)
