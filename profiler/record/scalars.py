"""Flat figures on their way from the command that records to the training that logs them: two files in the run folder.

The training says that it wants them; the command, which follows the recording anyway, writes them now and then; the
training reads the few bytes. Nothing is computed in the training.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path

from .files import read_object, write_json

WANTED = "scalars-wanted.json"
SCALARS = "scalars.json"
MOST_SECONDS = 1e9
"""Between two times, as long as anybody may ask for: in nanoseconds it is still a number of 64 bits."""
MOST_BYTES = 1 << 20
"""No file of ours is larger: with a thousand ranks it has 200 kB."""

PREFIX = "whyidle/"
"""What the names that a logger sees begin with."""

Values = dict[str, float]
"""By name, without a prefix; what was not measured is left out."""


@dataclass(frozen=True)
class Told:
    """What the command says."""

    step: int
    """How many steps had begun when the figures were taken."""
    values: Values
    ranks: dict[int, Values]
    """Each rank's own, in a job of several; else empty."""


def want(folder: Path, every_s: float) -> None:
    """Ask for figures, at least so often: somebody else may want them sooner.

    Raises:
        OSError: the folder cannot be written.
    """
    write_json(folder / WANTED, {"every_s": min(every_s, wanted(folder) or every_s)})


def wanted(folder: Path) -> float | None:
    """Tell how often figures are asked for, in seconds; `None`: nobody asks, or it cannot be read. Never raises."""
    every = read_object(folder / WANTED).get("every_s")
    return float(every) if isinstance(every, int | float) and 0 < every <= MOST_SECONDS else None


def tell(folder: Path, told: Told) -> None:
    """Write figures, atomically.

    Raises:
        OSError: they cannot be written.
    """
    ranks = {str(rank): values for rank, values in told.ranks.items()}
    write_json(folder / SCALARS, {"step": told.step, "values": told.values, "ranks": ranks})


def state(folder: Path) -> tuple[int, int] | None:
    """Give what changes whenever figures are written; `None` where there are none."""
    with contextlib.suppress(OSError):
        stat = (folder / SCALARS).stat()
        if stat.st_size <= MOST_BYTES:
            return stat.st_mtime_ns, stat.st_ino
    return None


def told(folder: Path) -> Told | None:
    """Read the newest figures; `None` where there are none that can be read."""
    try:
        content = read_object(folder / SCALARS)
        ranks = {int(rank): _values(values) for rank, values in content["ranks"].items()}
        return Told(int(content["step"]), _values(content["values"]), ranks)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None


def _values(content: dict[str, object]) -> Values:
    return {name: float(v) for name, v in content.items() if isinstance(v, int | float) and math.isfinite(v)}
