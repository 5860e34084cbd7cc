"""How far `whyidle attach` is from the truth: a row a part of each training, whose own clock tells its share.

The trainings (`program.py`) are the same on any machine but for what others take of it, which their clocks see.
They run two or three at a time. Exit code 1 where a share is more than ten points off, or another cause is named than
was planted: what 300 looks leave open is 6 points in 95 of 100.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks import machine
from whyidle.record.run import open_run
from whyidle.record.schema import HOST

PROGRAM = Path(__file__).with_name("program.py")
OBSERVED_S = 30.0
RATE = 10
POINTS = 10.0
TOGETHER = (("workers", "compute", "serial"), ("python", "checkpoint"))
CAUSES = {
    "workers": "input.too_few_workers",
    "serial": "input.serial",
    "compute": "none",
    "checkpoint": "host.boundary",
    "python": "host.step_gap",
}
BEGIN_S = 120.0


def observed(modes: Sequence[str], folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """(mode, its own figures, what was said of it), all of them trained and observed side by side.

    Raises:
        SystemExit: one of them did not begin to train, or could not be observed.
    """
    results = {mode: folder / f"{mode}.json" for mode in modes}
    with ExitStack() as stack:
        programs = {m: subprocess.Popen([sys.executable, str(PROGRAM), m, str(r)]) for m, r in results.items()}
        for program in programs.values():
            stack.callback(program.wait)
            stack.callback(program.terminate)
        until = time.monotonic() + BEGIN_S
        while not all(result.exists() for result in results.values()):
            if time.monotonic() > until or any(program.poll() is not None for program in programs.values()):
                raise SystemExit(f"not all of {', '.join(modes)} began to train")
            time.sleep(0.05)
        command = [sys.executable, "-m", "whyidle", "attach", "--json", "--duration", str(OBSERVED_S)]
        command += ["--rate", str(RATE)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        observers = {
            m: subprocess.Popen([*command, "--out", str(folder / m), str(p.pid)], text=True, **pipes)
            for m, p in programs.items()
        }
        said = {mode: observer.communicate()[0] for mode, observer in observers.items()}
    for mode, result in results.items():
        if not said[mode]:
            raise SystemExit(f"the training {mode} could not be observed")
        yield mode, result, json.loads(said[mode])


def truth_of(result: Path, folder: Path) -> dict[str, float]:
    """Shares between the first and the last look of the sampler, 0..1, by the program's own clock.

    Raises:
        SystemExit: there were fewer than two steps between them.
    """
    stamps = open_run(folder).records(HOST)["t_ns"]
    steps = [s for s in json.loads(result.read_text()) if stamps.min() <= s[0] <= stamps.max()]
    if len(steps) < 2:
        raise SystemExit(f"the training {folder.name} ended {len(steps)} steps while it was observed: too few to judge")
    (begin, before), (end, after) = steps[0], steps[-1]
    return {name: (after[name] - before.get(name, 0)) / (end - begin) for name in after}


def seen_of(trainer: dict[str, Any], name: str) -> float:
    """The same as attach has it."""
    names = ("data wait", "data making") if name == "data" else (name,)
    return float(sum(trainer["shares"][n]["share"] for n in names if n in trainer["shares"]))


def main() -> int:
    """Prints the table; the exit code."""
    print(
        f"{machine()}, torch {torch.__version__}; {OBSERVED_S:g} s at {RATE} Hz, load {os.getloadavg()[0]:.1f} before\n"
    )
    print("| training | part | own clock % | attach % | points off |")
    print("|---|---|---|---|---|")
    worst, wrong, verdicts = 0.0, 0, []
    with tempfile.TemporaryDirectory() as name:
        for modes in TOGETHER:
            for mode, result, told in observed(modes, Path(name)):
                for part, share in truth_of(result, Path(name) / mode).items():
                    seen = seen_of(told["trainers"][0], part)
                    off = 100 * abs(seen - share)
                    worst = max(worst, off)
                    print(f"| {mode} | {part} | {100 * share:.1f} | {100 * seen:.1f} | {off:.1f} |", flush=True)
                cause = told["verdict"]["cause"]
                wrong += cause != CAUSES[mode]
                verdicts.append(f"| {mode} | {CAUSES[mode]} | {cause} |")
    print("\n| training | planted | named |\n|---|---|---|", *verdicts, sep="\n")
    print(f"\nWorst: {worst:.1f} points of wall time; {len(CAUSES) - wrong} of {len(CAUSES)} causes named as planted.")
    return int(worst > POINTS or wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
