"""The stages, in the order in which they are worth most when time is short."""

from __future__ import annotations

from ..checks import Stage
from . import clocks, compare, cost, dali, drift, errors, programs, ranks, tests, tools, tune, windows

STAGES: dict[str, Stage] = {
    module.stage.name: module.stage
    for module in (tools, clocks, tests, programs, windows, cost, errors, compare, tune, dali, drift, ranks)
}
