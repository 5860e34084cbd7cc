"""Reads what the demo's commands wrote as JSON, and says it: `demo_found.py device|workers REPORT`, or
`demo_found.py lines REPORT COMPARISON DIFFERENCE PAGE`, which prints five lines.

Nothing of what it says is known beforehand. What was not measured is said to be so.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

FIRST = ("caffe", "prefetch")
"""Loaders that the demo compares before all others."""


def device(report: dict[str, Any]) -> str:
    """What the training ran on: `cpu` or `cuda`."""
    return str(report["run"]["device"]["kind"])


def workers(report: dict[str, Any]) -> str:
    """`num_workers=N`, where the report says so; empty where it advises something else or nothing."""
    advised = (re.match(r"num_workers=\d+", str(each["change"])) for each in report["verdict"]["next"])
    return next((each[0] for each in advised if each), "")


def of_training(report: dict[str, Any]) -> str:
    rate, verdict = report["window"]["samples_per_s"], report["verdict"]
    said = "too few steps to be judged" if rate is None else f"{rate:.0f} samples/s"
    if verdict["cause"] is None:
        return f"run: {said}; {verdict['title']}"
    return f"run: {said}; {verdict['cause']}, {verdict['share_pct']:.0f} % of the time."


def of_change(report: dict[str, Any], difference: dict[str, Any] | None) -> str:
    if difference is None:
        return "diff: the report advised no other number of workers, so nothing was changed."
    speed = difference["speedup"]
    mean, low, high = (100 * (speed[name] - 1) for name in ("value", "low", "high"))
    shown = "" if speed["significant"] else "; within noise, so not proven"
    return f"diff: with {workers(report)} {mean:+.0f} % samples/s ({low:+.0f} to {high:+.0f} %, 95 % interval){shown}."


def of_loader(name: str, comparison: dict[str, Any]) -> str:
    busy = {cell["batch_size"]: cell["busy_pct"] for cell in comparison["cells"] if cell["pipeline"] == name}
    told = ", ".join(f"{share:.0f} % at batch {size}" for size, share in busy.items() if share is not None)
    verdict = comparison["batch_verdicts"].get(name)
    if verdict is None:
        return f"compare, {name}: too few runs to say what the batch size does. Device busy: {told or 'not measured'}."
    text = verdict["text"].partition(". ")[0].rstrip(".")
    return f"compare, {name}: {text} [{verdict['cause']}]. Device busy: {told or 'not measured'}."


def lines(report: str, comparison: str, difference: str, page: str) -> list[str]:
    training, table = (json.loads(Path(file).read_text(encoding="utf-8")) for file in (report, comparison))
    changed = Path(difference)
    return [
        of_training(training),
        of_change(training, json.loads(changed.read_text(encoding="utf-8")) if changed.exists() else None),
        *(of_loader(name, table) for name in FIRST),
        f"page: {page}",
    ]


def main() -> int:
    what, *files = sys.argv[1:]
    if what == "lines":
        print("\n".join(lines(*files)))
    else:
        report = json.loads(Path(files[0]).read_text(encoding="utf-8"))
        print({"device": device, "workers": workers}[what](report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
