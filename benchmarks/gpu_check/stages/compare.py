"""The SSD study on the GPU, in its quick form."""

from __future__ import annotations

import json
import sys
from typing import Any

from ..checks import Seen, Stage
from ..rig import Rig

stage = Stage("compare", "`whyidle compare ssd --device cuda`", 240)
LOADERS = "naive,workers,prefetch"
BUDGET_S = 150


@stage.check("each of three loaders trains at batch 8 and 16, with parts of its time and a verdict")
def compare_ssd(rig: Rig) -> Seen:
    rig.needs("commands that start trainings of their own")
    return judged(*compared(rig, LOADERS, "8,16"), 6)


def compared(rig: Rig, loaders: str, sizes: str) -> tuple[int, dict[str, Any]]:
    """(exit code, result) of a comparison."""
    file = rig.place("compare.json")
    command = [sys.executable, "-m", "whyidle", "compare", "ssd", "--device", "cuda", "--pipelines", loaders]
    command += [
        "--batch-sizes",
        sizes,
        "--limit",
        "192",
        "--epochs",
        "4",
        "--repeats",
        "1",
        "--budget",
        str(BUDGET_S),
        "--no-live",
    ]
    done = rig.command([*command, "--json", str(file), "--out", str(rig.place("runs"))], stage.limit_s - 10)
    return done.code, json.loads(file.read_text()) if file.exists() else {"cells": []}


def judged(code: int, result: dict[str, Any], cells: int) -> Seen:
    told = []
    for cell in result["cells"]:
        name = f"{cell['pipeline']} {cell['batch_size']}"
        if cell["status"] != "ok":
            told.append(f"{name}: {cell['status']} ({cell['error']})")
            continue
        shares = {part.removesuffix("_pct"): share for part, share in cell["breakdown"].items() if share}
        parts = ", ".join(f"{part} {share:.0f}" for part, share in shares.items())
        rate = (cell["samples_per_s"] or {}).get("median", 0.0)
        told.append(f"{name}: {rate:.0f}/s, {parts} %, {(cell['verdict'] or {}).get('cause')}")
    well = [cell for cell in result["cells"] if cell["status"] == "ok" and cell["verdict"]]
    return Seen(
        code == 0 and len(well) == cells, "; ".join(told) or f"exit code {code}, no cells", {"cells": result["cells"]}
    )
