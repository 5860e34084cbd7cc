"""Runs stages, each in processes of their own: `python -m benchmarks.gpu_check --out FOLDER [--seconds S] [STAGE…]`.

A process that fails a check, or dies of it, is followed by a new one that goes on with the next: an error of a device
spoils whatever the same process asks of it later.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .checks import FAIL, Results, Stage, machine_facts, run_checks
from .rig import ROOT, Rig
from .stages import STAGES

ENDS_S = 5.0
"""What a process may take to end when asked to."""
LEAST_S = 15.0
"""With less time left a stage is not begun."""
Worker = Callable[[Stage, Sequence[str], Path], Sequence[str]]
"""The command that runs these checks of a stage and writes into this folder."""


def worker_command(stage: Stage, names: Sequence[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpu_check", "--out", str(out), "--worker", *names, "--", stage.name]


def run_stage(stage: Stage, results: Results, until: float, worker: Worker = worker_command) -> None:
    """All checks of a stage, as far as there is time until then, by the monotonic clock."""
    until = min(until, time.monotonic() + stage.limit_s)
    results.forget(stage.name)
    left = list(stage.checks)
    while left:
        if until - time.monotonic() < min(LEAST_S, stage.limit_s):
            return results.leave_out(stage.name, left, "no time was left for it")
        code = _run_worker(worker(stage, [check.name for check in left], results.folder), until)
        results.load()
        said = "it was stopped: its stage took too long" if code is None else f"its process ended with code {code}"
        results.stopped(said)
        done = results.done(stage.name)
        after = [check for check in left if check.name not in done]
        if len(after) == len(left):
            return results.leave_out(stage.name, left, f"no check began: {said}")
        left = after
    return None


def _run_worker(command: Sequence[str], until: float) -> int | None:
    """Its exit code; `None`: it was stopped at its limit."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {"PYTHONPATH": paths}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Asked first: it ends the commands that it has started.
        for push in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, push)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)


def work(stage: Stage, names: Sequence[str], out: Path) -> None:
    """What a worker does."""
    import torch

    results = Results(out)
    results.describe(machine_facts())
    if not torch.cuda.is_available():
        chosen = [check for check in stage.checks if check.name in names]
        return results.leave_out(stage.name, chosen, f"torch {torch.__version__} sees no CUDA device here")
    with tempfile.TemporaryDirectory() as folder:
        run_checks(stage, Rig(Path(folder)), results, names, stop_at_failure=True)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_check", description="What has to be known from a GPU.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"{', '.join(STAGES)} (default: all)")
    told = "results; those that lie there are kept"
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help=told)
    parser.add_argument("--seconds", type=float, default=1320.0, help="that all of it may take (default: 1320)")
    parser.add_argument("--worker", nargs="+", metavar="CHECK", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # What was started ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    until = time.monotonic() + options.seconds
    unknown = [name for name in options.stages if name not in STAGES]
    if unknown:
        parser.error(f"no stage {', '.join(unknown)}: there are {', '.join(STAGES)}")
    if options.worker:
        work(STAGES[options.stages[0]], options.worker, options.out)
        return 0
    results = Results(options.out)
    for name in options.stages or STAGES:
        print(f"== {STAGES[name].title}", flush=True)
        run_stage(STAGES[name], results, until)
    print(f"{results.summary()}: {results.folder / 'results.md'}")
    return 1 if results.count(FAIL) else 0


if __name__ == "__main__":
    sys.exit(main())
