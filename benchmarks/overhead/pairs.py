"""What whyidle adds to whole trainings: processes that train one after the other, a bare one among them.

A process is faster than another for no reason but where its memory lies, so a difference takes many rounds. One at a
time runs, in an order that is drawn for each round.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .loop import Block, Length
from .observers import NONE
from .processes import Child, child_command
from .table import MedianInterval, median_interval

LENGTHS = (Length(0.26, 0), Length(1.0, 12), Length(10.0, 30))
"""The last filled with larger matrices. How long the steps are then, the bare processes tell."""
STEPS = (3000, 1500, 150)
DISCARD = 80
"""Steps at the begin that do not count: the first are looked at whatever that costs, and what is compiled or looked for
once is then over."""


def added(names: Sequence[str], pairs: int, device: str, traceml: Path | None, seed: int) -> list[str]:
    """Lines of a table: what each observer adds to a step, µs, with the 90 % interval of its median."""
    source = random.Random(seed)
    found: dict[str, list[list[tuple[dict[str, float], dict[str, float]]]]] = {name: [] for name in names}
    for _ in range(pairs):
        blocks = {each: _train(each, device, traceml) for each in source.sample([NONE, *names], 1 + len(names))}
        for name in names:
            found[name].append(
                [(w.per_step_us(), b.per_step_us()) for w, b in zip(blocks[name], blocks[NONE], strict=True)]
            )
    lines = [f"\nAdded by whole processes, µs a step around what fills it, {pairs} interleaved pairs"]
    for number, steps in enumerate(STEPS):
        bare = median_interval([each[number][1]["wall"] for rounds in found.values() for each in rounds])
        lines.append(f"steps of {bare.median / 1e3:.3g} ms, {steps} a process")
        for name, rounds in found.items():
            wall, cpu = (_difference(rounds, number, column) for column in ("wall_around", "cpu_around"))
            lines.append(
                f"  {name:<28}wall {wall!s:>22}   CPU {cpu!s:>22}   {100 * cpu.median / bare.median:.2f} % of the step"
            )
    return lines


def _difference(
    rounds: Sequence[Sequence[tuple[dict[str, float], dict[str, float]]]], number: int, column: str
) -> MedianInterval:
    return median_interval([each[number][0][column] - each[number][1][column] for each in rounds])


def _train(name: str, device: str, traceml: Path | None) -> list[Block]:
    """One process from its start to its end, a block of each length."""
    with tempfile.TemporaryDirectory() as place:
        child = Child(name, child_command(name, traceml, Path(place)), device, Path(place))
        try:
            return [child.block(0, length, steps, DISCARD) for length, steps in zip(LENGTHS, STEPS, strict=True)]
        finally:
            child.close()
