"""All checks of a machine, in the order they are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...record.check import Check
from . import cpus, driver, gpus, libraries, python, stacks, storage


def look(runs: Path, root: Path = Path("/")) -> list[Check]:
    """Everything about measuring on this machine; takes as long as importing torch, and a second.

    A check that fails itself says so and leaves the others alone.

    Args:
        runs: where recordings are to lie.
    """
    begin, before = time.monotonic(), cpus.machine(root)
    found = [*_safely(driver.GROUP, driver.NAME, lambda: [driver.driver(root)])]
    shown = found[0].values.get("gpus")
    found += _safely(driver.GROUP, "GPUs", gpus.gpus)
    found += _safely(python.GROUP, "Python", lambda: python.python(shown))
    found += _safely(cpus.GROUP, "CPUs", lambda: cpus.cpus(root))
    found += _safely(storage.GROUP, "Storage", lambda: storage.storage(runs, root))
    found += _safely(stacks.GROUP, "Stacks", lambda: stacks.stacks(root))
    found += _safely(libraries.GROUP, "Libraries", libraries.libraries)
    # The longer between its two looks the surer: so it is the last, told with the other checks of the CPUs.
    stolen = cpus.steal(before, cpus.machine(root), time.monotonic() - begin)
    place = next((n for n, check in enumerate(found) if check.group == cpus.GROUP), len(found))
    return [*found[: place + 1], stolen, *found[place + 1 :]]


def _safely(group: str, name: str, probe: Callable[[], list[Check]]) -> list[Check]:
    try:
        return probe()
    except Exception as error:
        says = f"The check failed: {type(error).__name__}: {error}"
        return [Check(group, name, "missing", says, "The result of this check.")]
