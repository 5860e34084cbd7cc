"""Commands that train on the GPU for minutes: `pytest tests/gpu`, whyidle's own comparisons and tuning, and DALI."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from typing import Any

from ..checks import REPORTS, NotMeasured, Seen, Stage
from ..rig import ROOT, Rig

tests = Stage("tests", "pytest tests/gpu -m gpu", 300)
compare = Stage("compare", "`whyidle compare ssd --device cuda`", 240)
tune = Stage("tune", "`whyidle tune`", 240)
dali = Stage("dali", "NVIDIA DALI", 260)
LOADERS = "naive,workers,prefetch"
BUDGET_S = 150


@tests.check("it passes")
def tests_on_a_GPU(rig: Rig) -> Iterator[Seen]:  # noqa: N802
    reports = rig.place("reports")
    rig.environment[REPORTS] = str(reports)
    late = ""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "gpu")]
    try:
        done = rig.command(command, tests.limit_s - 30)
        ended = f"pytest ended with exit code {done.code}: {done.last}"
    except TimeoutError as error:
        late = ended = str(error)
    rows = [json.loads(line) for line in reports.read_text().splitlines()] if reports.exists() else []
    for row in rows:
        yield Seen(row["right"], row["seen"], check=row["test"])
    if not rows or late:
        yield Seen(False, ended)


@compare.check("each of three loaders trains at batch 8 and 16, with parts of its time and a verdict")
def compare_ssd(rig: Rig) -> Seen:
    rig.needs("commands that start trainings of their own")
    return judged_cells(*compared(rig, LOADERS, "8,16"), 6)


def compared(rig: Rig, loaders: str, sizes: str) -> tuple[int, dict[str, Any]]:
    """(exit code, result) of a comparison."""
    file = rig.place("compare.json")
    command = [sys.executable, "-m", "whyidle", "compare", "ssd", "--device", "cuda", "--pipelines", loaders]
    command += ["--batch-sizes", sizes, "--limit", "192", "--epochs", "4", "--repeats", "1"]
    command += ["--budget", str(BUDGET_S), "--no-live"]
    done = rig.command([*command, "--json", str(file), "--out", str(rig.place("runs"))], compare.limit_s - 10)
    return done.code, json.loads(file.read_text()) if file.exists() else {"cells": []}


def judged_cells(code: int, result: dict[str, Any], cells: int) -> Seen:
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
    text = "; ".join(told) or f"exit code {code}, no cells"
    return Seen(code == 0 and len(well) == cells, text, {"cells": result["cells"]})


@tune.check("settings that are faster than one worker, and memory in use of at least three batch sizes")
def tune_a_program(rig: Rig) -> Seen:
    rig.needs("commands that start trainings of their own")
    file = rig.place("tune.json")
    command = [sys.executable, "-m", "whyidle", "tune", "--budget", str(BUDGET_S), "--batch-sizes", "auto", "--no-live"]
    command += ["--json", str(file), "--out", str(rig.place("runs")), "--", *rig.program("tuned")]
    done = rig.command(command, tune.limit_s - 10)
    if not file.exists():
        return Seen(False, f"exit code {done.code}: {done.last}")
    return judged_tuning(done.code, json.loads(file.read_text()))


def judged_tuning(code: int, result: dict[str, Any]) -> Seen:
    batch = result["batch"]
    memory = batch.get("memory_bytes") or {}
    ladder = ", ".join(f"{size}: {used / 2**20:.0f} MB" for size, used in memory.items())
    text = f"{result['speedup']:.2f} times as fast by {result['best']['settings']}; {result['because']}; "
    text += f"batch sizes {ladder or 'none'}; not fitting {batch.get('failed') or 'none'}; largest {batch['b_max']}"
    return Seen(code == 0 and result["speedup"] > 1.1 and len(memory) >= 3, text, {"result": result})


@dali.check("what it decodes and augments on the GPU is what others make on the processor")
def dali_makes_the_same_batches(rig: Rig) -> Seen:
    _needs_dali(rig)
    test = str(ROOT / "tests" / "unit" / "pipelines" / "test_loaders_dali.py")
    done = rig.command([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", test])
    return Seen(done.code == 0, done.out.strip().splitlines()[-1] if done.out.strip() else done.last)


@dali.check("dali-gpu trains at batch 8 and 16, with parts of its time and a verdict")
def compare_ssd_with_dali(rig: Rig) -> Seen:
    _needs_dali(rig)
    return judged_cells(*compared(rig, "dali-gpu", "8,16"), 2)


def _needs_dali(rig: Rig) -> None:
    rig.needs("DALI")
    try:
        there = importlib.util.find_spec("nvidia.dali") is not None
    except ModuleNotFoundError:  # nothing of NVIDIA's is
        there = False
    if not there:
        raise NotMeasured("DALI is not installed: no wheel of it was given")
