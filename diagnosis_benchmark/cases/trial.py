"""One recorded training with a planted fault, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Never

import numpy as np
import torch
import torch._dynamo  # An optimizer imports it, which takes a second: processes forked from a warm one need not.

from whyidle.record.run import update_run
from whyidle.scenarios.output import redirect_output
from whyidle.scenarios.recorded import recorded_on

from .case import Case
from .loop import PlantedLoop, device_of
from .machine import confine, foreign_load, quota
from .ranks import train_ranks
from .registry import CASES
from .samples import Samples
from .sizes import fitted
from .truth import write_truth

EXIT_CODES = {"ok": 0, "stopped": 130}


@dataclass(frozen=True)
class FaultSpec:
    """Everything a trial is."""

    case: str
    folder: str
    """The run folder; it exists."""
    seed: int = 0
    repetition: int = 0
    foreign: int = 0
    """Busy processes of others beside it, in addition to the case's own."""


def run_fault(spec: FaultSpec) -> None:
    """Train and say in run.json how it ended. Ends the process; its output goes to the run folder."""
    folder = Path(spec.folder)
    end_with(folder, partial(train, CASES[spec.case], folder, 1000 * spec.seed + spec.repetition, spec.foreign))


def end_with(folder: Path, training: Callable[[], None]) -> Never:
    """Run a training as the last thing that this process does, and say in run.json how it ended."""
    redirect_output(folder)
    status, error = "ok", None
    try:
        training()
    except KeyboardInterrupt:
        status, error = "stopped", "stopped by Ctrl-C"
    except Exception as problem:
        traceback.print_exc()
        status, error = "failed", f"{type(problem).__name__}: {problem}".splitlines()[0]
    code = EXIT_CODES.get(status, 1)
    update_run(folder, {"ended": {"status": status, "error": error, "exit_code": code}})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def train(case: Case, folder: Path, seed: int, foreign: int = 0) -> None:
    """Run the case's training, recorded into the folder, beside so many busy processes of others on top of its own."""
    plan = case.plan
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    if plan.ranks > 1:
        with foreign_load(plan.machine.foreign + foreign, plan.machine.foreign_rests):
            train_ranks(case, folder, seed)
        return
    device = device_of(plan)
    update_run(folder, {"device": device.describe(), "torch": torch.__version__})
    if plan.machine.memory_mb is not None:
        update_run(folder, {"emulated_memory_bytes": plan.machine.memory_mb * 2**20})
    confine(plan.machine.cpus)
    plan = fitted(plan, folder)
    samples = Samples(plan, seed, folder)
    with contextlib.ExitStack() as stack:
        stack.callback(samples.remove)
        stack.enter_context(quota(plan.machine.quota))
        stack.enter_context(foreign_load(plan.machine.foreign + foreign, plan.machine.foreign_rests))
        stack.enter_context(recorded_on(device, folder))
        loop = PlantedLoop(plan, device, samples)
        stack.callback(lambda: write_truth(folder, case, loop.stamps))
        stack.callback(loop.close)
        loop.run()
