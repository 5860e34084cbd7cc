"""The error table in small: planted delays on the real clock, and what cached batches make of the same training.

`benchmarks/truth.py` measures it in full. The bounds here are twice the targets: the machine may be shared.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import truth

MARGIN = 2


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As `benchmarks/truth.py`: several would wait for one another, on CPUs that others use too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_planted_delays_are_found_to_the_point(tmp_path: Path) -> None:
    errors = truth.emulated(tmp_path, random.Random(7), runs=6)
    assert float(np.median(errors)) < MARGIN * 0.3
    assert max(errors) < MARGIN * 1.0


def test_plain_loops_are_found_to_the_point(tmp_path: Path) -> None:
    errors = truth.plain(tmp_path, random.Random(7), runs=6)
    assert float(np.median(errors)) < MARGIN * 0.3
    assert max(errors) < MARGIN * 1.0


@pytest.mark.parametrize("batch_ms", [5, 30])
def test_exposed_input_is_what_the_training_loses_against_cached_batches(tmp_path: Path, batch_ms: float) -> None:
    rounds = truth.differential(tmp_path, batch_ms, emulated=True, rounds=3)
    apart = [abs(r.lost_pct - r.real.input_pct) for r in rounds]
    assert float(np.median(apart)) < MARGIN * 2
    assert (float(np.median([r.real.input_pct for r in rounds])) > 20) == (batch_ms == 30)
