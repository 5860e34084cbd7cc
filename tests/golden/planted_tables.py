"""Planted faults and sweeps as `compare faults` and `compare batch-sizes` leave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from support.crafted import amend
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import update_run
from whyidle.scenarios.planted import MS, Step, train

FAULTS: dict[str, Step] = {
    "input.serial-mild": Step(fetch_ns=3 * MS, compute_ns=22 * MS, sync=True),
    "input.serial-middle": Step(fetch_ns=10 * MS, compute_ns=15 * MS, sync=True),
    "input.serial-severe": Step(fetch_ns=20 * MS, compute_ns=10 * MS, sync=True),
    "copy.pageable-middle": Step(fetch_ns=0, copy_bytes=20_000_000, pinned=False),
    "copy.serial-middle": Step(fetch_ns=0, copy_bytes=20_000_000, pinned=False),
    "host.sync-middle": Step(fetch_ns=0, sync_within=True, within_ns=5 * MS),
    "host.step_gap-middle": Step(fetch_ns=0, sync=True, host_ns=5 * MS),
    "compound.sync+step_gap": Step(fetch_ns=0, sync_within=True, within_ns=4 * MS, sync=True, host_ns=4 * MS),
    "control.compute": Step(fetch_ns=0, compute_ns=20 * MS),
    "control.in-memory": Step(fetch_ns=8 * MS, compute_ns=20 * MS, sync=True),
}
"""What stands for the training of a planted case; two of them are no such case, so that something is named wrongly."""
PLANTED = {
    "compound.sync+step_gap": ["host.sync", "host.step_gap"],
    "control.compute": [],
    "control.in-memory": [],
}


def faults(at: Path) -> None:
    folder, cells, cases = at / "table", [], []
    for case, step in FAULTS.items():
        planted = PLANTED.get(case, [case.rpartition("-")[0]])
        names = []
        for number in range(2):
            names.append(f"{case}-r{number}")
            run = folder / names[-1]
            happened = train(run, [[step] * 60])
            amend(run, lambda steps: steps["cpu_ns"].fill(MS))
            trial = {"scenario": "faults", "case": case, "planted": planted, "repetition": number}
            update_run(run, {"trial": trial})
            stamps = [[what, begin, end, ""] for what, begin, end in happened.host]
            (run / "truth.json").write_text(json.dumps({"case": case, "causes": planted, "stamps": stamps}))
        cases.append({"case": case, "planted": planted})
        cells.append(CellRecord("naive", 8, "ok", None, tuple(names)))
    for case, status, error in (
        ("input.cpu_quota-mild", "skipped", "no control group here"),
        ("host.gc-severe", "failed", "MemoryError"),
        ("control.text", "stopped", "stopped by Ctrl-C"),
    ):
        cases.append({"case": case, "planted": PLANTED.get(case, [case.rpartition("-")[0]])})
        cells.append(CellRecord("workers", 8, status, error, ()))
    setting = {
        "scenario": "faults",
        "device": {"kind": "emulated", "name": "as each case says", "title": "as each case says", "count": 1},
        "cpu_budget": 2.0,
        "dataset": {},
        "repeats": 2,
        "foreign_load": False,
        "machine": {"cpus": 4, "load": 0.25, "steal_pct": 0.5},
        "cases": cases,
    }
    write_comparison(folder, setting, cells)


def batch_sizes(at: Path) -> None:
    """Planted sweeps: one found as planted, one that is not, one with a size that failed."""
    folder, cells = at / "table", []
    plans: dict[str, tuple[tuple[int, ...], Callable[[int], float]]] = {
        "compute_growth": ((4, 16), lambda size: size * (3.0 if size == 16 else 2.0)),
        "saturated": ((4, 8, 16), lambda size: 2.0 * size),
        "memory": ((4, 16), lambda size: 2.0 * size),
        "none": ((4, 16), lambda size: 10 + 1.0 * size),
    }
    for sweep, (own, compute) in plans.items():
        for size in own:
            names = []
            for number in range(3):
                names.append(f"{sweep}-b{size}-r{number}")
                run = folder / names[-1]
                step = Step(fetch_ns=0, compute_ns=round(compute(size) * MS))
                happened = train(run, [[step] * (800 // size)], samples=size)
                amend(run, lambda steps: steps["cpu_ns"].fill(MS))
                trial = {"scenario": "batch-sizes", "case": f"{sweep} at batch {size}", "repetition": number}
                update_run(run, {"trial": trial})
                stamps = [[what, begin, end, ""] for what, begin, end in happened.host]
                (run / "truth.json").write_text(json.dumps({"case": sweep, "causes": [], "stamps": stamps}))
            cells.append(CellRecord(sweep, size, "ok", None, tuple(names)))
    cells.append(CellRecord("padding", 4, "failed", "no fork", ()))
    cells.append(CellRecord("padding", 16, "skipped", "not run: stopped by Ctrl-C", ()))
    truth = {"compute_growth": "compute", "memory": "compute", "padding": "compute"}
    setting = {
        "scenario": "batch-sizes",
        "device": {"kind": "emulated", "name": "emulated:accelerator", "title": "emulated Accelerator", "count": 1},
        "cpu_budget": 2.0,
        "load": 0.2,
        "dataset": {},
        "repeats": 3,
        "sweeps": [{"name": name, "cause": name, "grew": truth.get(name)} for name in (*plans, "padding")],
    }
    write_comparison(folder, setting, cells)


PLANTED_TABLES: dict[str, Callable[[Path], None]] = {"planted-faults": faults, "planted-batch-sizes": batch_sizes}
