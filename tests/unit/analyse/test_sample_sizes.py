"""Whether batches differ in size, as their steps' elements tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from whyidle.analyse.run.sample_sizes import SampleSizes, sample_sizes
from whyidle.analyse.run.worker_records import SlowSample
from whyidle.record.schema import STEP, StepFlag


def facts(elements: list[int], samples: list[int], known: bool = True) -> Any:
    steps = np.zeros(len(elements), dtype=STEP.dtype)
    flags = [(StepFlag.SHAPE_KNOWN if known else 0) | each << StepFlag.ELEMENTS_SHIFT for each in elements]
    steps["flags"], steps["samples"] = flags, samples
    slowest = (SlowSample(9.0, 71, None), SlowSample(8.0, None, None), SlowSample(7.0, 3, None))
    return SimpleNamespace(window=SimpleNamespace(steps=steps), loader=SimpleNamespace(slowest=slowest))


def test_batches_of_padded_sequences_differ_and_name_their_slowest_samples() -> None:
    assert sample_sizes(facts([800, 800, 1600, 880], [8] * 4)) == SampleSizes(True, (71, 3))


def test_images_of_one_size_do_not_differ_though_a_last_batch_is_smaller() -> None:
    assert sample_sizes(facts([800, 800, 300], [8, 8, 3])) == SampleSizes(False, ())


def test_nothing_is_said_where_shapes_are_not_known() -> None:
    assert sample_sizes(facts([800, 1600], [8, 8], known=False)) == SampleSizes(False, ())
    assert sample_sizes(None) == SampleSizes(False, ())
