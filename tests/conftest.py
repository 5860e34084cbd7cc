"""Which tests need the machine for themselves: `make test` runs all others side by side, and then these."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("whyidle", deadline=None)
settings.load_profile("whyidle")

# Importing torch and 4000 tests makes little garbage and much to look through for it (pytest_collection_finish).
gc.disable()

# Threads of torch that have nothing to do wait without turning: side by side, they take the CPUs from those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Tests start Python by the hundred: what is compiled once is kept, even where the environment says otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
ALONE = (
    "gpu",
    # To be told how busy others keep the machine would be right here.
    "integration/test_attach.py::test_shares_are_within_ten_points_of_the_programs_own_clocks",
    "integration/test_attach.py::test_the_verdict_names_what_was_planted_and_the_report_says_the_same",
    "integration/test_attach.py::test_without_the_right_the_rest_is_reported_with_the_ways_to_get_it",
    "integration/test_planted.py",
    # These compare lengths of time more closely than a machine that is shared allows.
    "integration/test_benchmarks.py",
    "integration/test_benchmarks_rivals.py::test_the_plain_training_waits_as_planned_and_says_so",
    "integration/test_headroom.py::test_headroom_is_what_the_computation_alone_would_give",
    "integration/test_plain_loop.py",
    "integration/test_programs.py",
    "integration/test_sweeps.py",
    "integration/test_tune.py::test_a_training_that_does_not_wait_for_its_loader_is_left_as_it_is",
    "integration/test_tuning_batch.py::test_the_gradient_noise_of_a_training_under_way_is_estimated_from_its_blocks",
    "integration/test_tuning_child.py::test_blocks_of_several_settings_are_measured_in_one_training",
    "integration/test_tuning_child.py::test_validation_keeps_its_loader_and_is_no_part_of_a_block",
    "integration/test_tuning_child.py::test_iterable_datasets_begin_anew_and_pass_their_ends",
    "integration/test_tuning_child.py::test_a_training_that_changes_its_batches_is_held_with_copies_of_them",
    "integration/test_tuning_child.py::test_loaders_that_libraries_wrap_are_taken_over",
    "integration/test_workers.py::test_planted_costs_are_found_where_they_are",
    # Has to see a process in its first milliseconds.
    "unit/capture/test_attach_spy.py",
)
"""Folders, files and tests. All others judge what happened, not how long it took, or have room for a busy machine."""

CHOSEN = {"together": True, "not together": False}
"""What `make test` asks for with `-m`."""


FIRST = (
    "integration/test_run.py",
    "integration/test_compare.py",
    "integration/test_tune.py",
    "integration/test_tuning_child.py",
    "integration/test_ranks.py",
    "integration/test_faults.py",
    "integration/test_workers.py",
    "integration",
)
"""The order in which files begin side by side: the longest first, so that none of them is left to run alone at the end,
and then those that wait for other processes. What fills the rest are many short ones."""


def is_together(path: Path, test: str = "") -> bool:
    return _is_together(path) and f"{path.relative_to(HERE)}::{test}" not in ALONE


@cache
def _is_together(path: Path) -> bool:
    """For thousands of tests in some two hundred files."""
    relative = path.relative_to(HERE)
    return not any(relative.is_relative_to(each) for each in ALONE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test was chosen are not even imported."""
    chosen = CHOSEN.get(config.option.markexpr)
    if chosen is None or collection_path.is_dir() or is_together(collection_path) == chosen:
        return None
    mixed = any(each.startswith(f"{collection_path.relative_to(HERE)}::") for each in ALONE)
    return None if mixed else True


@cache
def turn(path: Path) -> int:
    """Of a file that runs beside others: its place in `FIRST`."""
    relative = path.relative_to(HERE)
    return next((place for place, first in enumerate(FIRST) if relative.is_relative_to(first)), len(FIRST))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_together(item.path, getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.together)
    if CHOSEN.get(config.option.markexpr):
        items.sort(key=lambda item: turn(item.path))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    # What is frozen at the interpreter's end some libraries take for leaks, and print it.
    gc.unfreeze()
