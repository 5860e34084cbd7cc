"""Which tests may share the machine's CPUs with other tests: `make test` runs those side by side, the rest alone."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOGETHER = (
    "unit",
    "integration/test_benchmarks_tuning.py",
    "integration/test_faults.py",
    "integration/test_kill.py",
    "integration/test_package.py",
    "integration/test_programs.py",
    "integration/test_run.py",
    "integration/test_run_terminal.py",
    "integration/test_tuning_batch.py",
)
"""Files and folders whose tests judge what happened, not how long it took."""

ALONE = ("unit/capture/test_attach_spy.py",)
"""Of these, what has to see a process in its first milliseconds."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(HERE)
        if str(path) not in ALONE and any(path.is_relative_to(each) for each in TOGETHER):
            item.add_marker(pytest.mark.together)
