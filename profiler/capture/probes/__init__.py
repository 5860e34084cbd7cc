"""What can be measured on this machine. No check changes anything, and none needs a right that the user lacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...record.check import Check
from . import accelerator, machine, python


def look(runs: Path, root: Path = Path("/")) -> list[Check]:
    """Check everything, in the order it is told; takes as long as importing torch, and a second.

    A check that fails itself says so and leaves the others alone.

    Args:
        runs: where recordings are to lie.
    """
    begin, before = time.monotonic(), machine.machine_cpu(root)
    found: list[Check] = []
    probes: tuple[tuple[str, str, Callable[[], list[Check]]], ...] = (
        (accelerator.GROUP, accelerator.DRIVER, lambda: [accelerator.driver(root)]),
        (accelerator.GROUP, "GPUs", lambda: accelerator.gpus()),
        (python.GROUP, "Python", lambda: python.python(found[0].values.get("gpus"))),
        (machine.CPUS, "CPUs", lambda: machine.cpus(root)),
        (machine.STORAGE, "Storage", lambda: machine.storage(runs, root)),
        (machine.STACKS, "Stacks", lambda: machine.stacks(root)),
        ("Libraries", "Libraries", python.libraries),
    )
    for group, name, probe in probes:
        try:
            found += probe()
        except Exception as error:
            says = f"The check failed: {type(error).__name__}: {error}"
            found.append(Check(group, name, "missing", says, "The result of this check."))
    # The longer between its two looks the surer: so it is the last, told with the other checks of the CPUs.
    stolen = machine.steal(before, machine.machine_cpu(root), time.monotonic() - begin)
    place = next(n for n, check in enumerate(found) if check.group == machine.CPUS)
    return [*found[: place + 1], stolen, *found[place + 1 :]]
