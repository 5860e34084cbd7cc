"""A training of several ranks that average their gradients over gloo, one of which the others wait for."""

from __future__ import annotations

import multiprocessing
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from whyidle.capture.active import recorded
from whyidle.devices.cpu import CpuDevice
from whyidle.errors import WhyidleError
from whyidle.record.run import update_run

from .case import Case, Data, Plan, PlannedStep
from .loop import PlantedLoop
from .samples import Samples
from .truth import write_truth

LATE = 1
"""The rank that does what the plan says; the others do neither its waiting for data nor its work between the steps."""


def train_ranks(case: Case, folder: Path, seed: int) -> None:
    """Run all ranks to their end.

    Raises:
        WhyidleError: one of them failed; its output says why.
    """
    update_run(folder, {"device": CpuDevice().describe(), "torch": torch.__version__})
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_train, args=(rank, case, folder, seed)) for rank in range(case.plan.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    failed = [number for number, process in enumerate(ranks) if process.exitcode]
    if failed:
        raise WhyidleError(f"rank {failed[0]} ended with exit code {ranks[failed[0]].exitcode}")


def _train(rank: int, case: Case, folder: Path, seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    plan = case.plan if rank == LATE else _on_time(case.plan)
    # What a launcher tells each rank.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(plan.ranks)}
    meeting = f"file://{folder.resolve() / 'ranks'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.ranks)
    device = CpuDevice()
    with recorded(folder, device):
        loop = PlantedLoop(plan, device, Samples(plan, seed, folder), DistributedDataParallel)
        try:
            loop.run()
        finally:
            loop.close()
    if rank == LATE:
        write_truth(folder, case, loop.stamps)
    dist.destroy_process_group()


def _on_time(plan: Plan) -> Plan:
    step: PlannedStep = replace(plan.step, host_ms=0.0, host_burn_ms=0.0)
    return replace(plan, data=Data(), step=step)
