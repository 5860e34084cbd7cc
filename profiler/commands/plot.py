"""`--plot FILE`: the picture of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..analyse.compare import Comparison
from ..errors import StallscopeError
from ..report import batch_plot, compare_text


def plot(result: Comparison, setting: dict[str, Any], file: Path) -> None:
    """Draw what the batch size did.

    Raises:
        StallscopeError: there is nothing to draw, or it cannot be written.
    """
    if not result.batch_verdicts:
        raise StallscopeError("--plot: no loader ran with two batch sizes, so no picture was drawn.")
    batch_plot.write(result.batch_verdicts, compare_text.title(result, setting), file)
