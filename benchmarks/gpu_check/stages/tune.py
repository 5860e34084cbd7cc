"""Tuning a program on the GPU: settings in turns, and the ladder of batch sizes until memory is full."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..checks import Seen, Stage
from ..rig import Rig

stage = Stage("tune", "`whyidle tune`", 240)
BUDGET_S = 150


@stage.check("settings that are faster than one worker, and memory in use of at least three batch sizes")
def tune_a_program(rig: Rig) -> Seen:
    rig.needs("commands that start trainings of their own")
    file = rig.place("tune.json")
    command = [sys.executable, "-m", "whyidle", "tune", "--budget", str(BUDGET_S), "--batch-sizes", "auto", "--no-live"]
    command += ["--json", str(file), "--out", str(rig.place("runs")), "--", *rig.program("tuned")]
    done = rig.command(command, stage.limit_s - 10)
    return (
        judged(done.code, json.loads(file.read_text()))
        if file.exists()
        else Seen(False, f"exit code {done.code}: {done.last}")
    )


def judged(code: int, result: dict[str, Any]) -> Seen:
    batch = result["batch"]
    memory = batch.get("memory_bytes") or {}
    ladder = ", ".join(f"{size}: {used / 2**20:.0f} MB" for size, used in memory.items())
    text = f"{result['speedup']:.2f} times as fast by {result['best']['settings']}; {result['because']}; "
    text += f"batch sizes {ladder or 'none'}; not fitting {batch.get('failed') or 'none'}; largest {batch['b_max']}"
    return Seen(code == 0 and result["speedup"] > 1.1 and len(memory) >= 3, text, {"result": result})
