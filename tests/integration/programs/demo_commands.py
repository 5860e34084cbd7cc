"""Stands in for `whyidle` in the demo: parses each command as whyidle does, and records trainings that never ran.

`run` and `compare` leave recordings of virtual trainings; all else is whyidle itself. What `DEMO_STOPS_AT` names ends
as after Ctrl-C. Each command is noted in the file that `DEMO_LOG` names.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from support.jobs import Rank, record
from whyidle.analyse.cells.comparison import load
from whyidle.terminal.console import write_json
from whyidle.commands.main import main, parser
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import update_run
from whyidle.report.contract import comparison as compare_json
from whyidle.scenarios.planted import MS, Step, train

SAMPLES = 640
DEVICE = {"kind": "emulated", "name": "emulated:v100", "title": "emulated V100", "count": 1}
FETCH_MS = {"caffe": 3, "prefetch": 0}
"""A sample, by loader; computing one takes 2 ms."""


def run(out: Path, workers: str) -> None:
    record(out, [Rank(fetch_ns=(2 if int(workers) else 40) * MS, workers=int(workers))], world_size=None)


def compare(arguments: object) -> None:
    out, loaders = Path(vars(arguments)["out"]), vars(arguments)["first"] or ["caffe"]
    cells = []
    for loader in loaders:
        for size in vars(arguments)["batch_sizes"]:
            rounds = vars(arguments)["repeats"] if vars(arguments)["budget"] else 1
            names = tuple(f"{loader}-b{size}-r{number}" for number in range(rounds))
            for name in names:
                step = Step(fetch_ns=FETCH_MS[loader] * size * MS, compute_ns=2 * size * MS)
                train(out / name, [[step] * (SAMPLES // size)], samples=size)
                update_run(out / name, {"ended": {"status": "ok"}})
            cells.append(CellRecord(loader, size, "ok", None, names))
    setting = {
        "scenario": "ssd",
        "net": "ssd300",
        "device": DEVICE,
        "cpu_budget": 2.0,
        "dataset": {},
        "repeats": vars(arguments)["repeats"],
    }
    write_comparison(out, setting, cells)
    if vars(arguments)["json"]:
        write_json(compare_json.comparison(*load(out)), vars(arguments)["json"])
    if vars(arguments)["html"]:
        Path(vars(arguments)["html"]).touch()


def stand_in(words: list[str]) -> int:
    with Path(os.environ["DEMO_LOG"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps(words) + "\n")
    arguments = parser().parse_args(words)
    if words[0] == os.environ.get("DEMO_STOPS_AT"):
        return 130
    if words[0] == "run":
        run(Path(words[words.index("--out") + 1]), words[-1])
    elif words[0] == "compare":
        compare(arguments)
    elif words[0] == "data":
        Path(arguments.out).mkdir(parents=True)
    else:
        return main(words)
    return 0


if __name__ == "__main__":
    sys.exit(stand_in(sys.argv[1:]))
