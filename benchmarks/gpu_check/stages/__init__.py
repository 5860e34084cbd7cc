"""The stages, in the order in which they are worth most when time is short."""

from __future__ import annotations

from . import clocks, commands, cost, programs, tools, windows

STAGES = {
    stage.name: stage
    for stage in (
        *(tools.stage, clocks.stage, commands.tests, programs.stage, windows.stage, cost.stage, programs.errors),
        *(commands.compare, commands.tune, commands.dali, clocks.drift, programs.ranks),
    )
}
