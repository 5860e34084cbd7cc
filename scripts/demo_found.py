"""Reads what the demo's commands wrote as JSON: `demo_found.py workers REPORT` prints the number of workers that the
report advises, `demo_found.py lines REPORT DIFFERENCE PAGE` what came of the advice.

Nothing of it is known beforehand. What was not measured is said to be so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def workers_of(change: dict[str, Any]) -> int:
    return int(change.get("settings", {}).get("num_workers", 0))


def workers(report: dict[str, Any]) -> str:
    """`num_workers`, where the report advises it; empty where it advises something else or nothing."""
    return next((str(number) for each in report["verdict"]["next"] if (number := workers_of(each))), "")


def proof(report: dict[str, Any], difference: dict[str, Any]) -> str:
    speed = difference["speedup"]
    doubt = "" if speed["significant"] else "; within noise, so not proven"
    said = f"Measured: {_times(speed)} faster, 95 % interval{doubt}."
    promised = next(each.get("speedup") for each in report["verdict"]["next"] if workers_of(each))
    return said if promised is None else f"{said} The report promised {_times(promised)}."


def _times(speed: dict[str, float]) -> str:
    return f"{speed['value']:.2f}× ({speed['low']:.2f}–{speed['high']:.2f})"


def lines(report: str, difference: str, page: str) -> list[str]:
    changed = Path(difference)
    read, folder = (lambda file: json.loads(file.read_text(encoding="utf-8"))), Path(report).parent
    said = [proof(read(Path(report)), read(changed))] if changed.exists() else []
    return [*said, f"Recordings: {folder} (whyidle report {folder}/before --full). Page: {page}"]


def main() -> int:
    what, *files = sys.argv[1:]
    if what == "lines":
        print("\n".join(lines(*files)))
    else:
        print(workers(json.loads(Path(files[0]).read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
