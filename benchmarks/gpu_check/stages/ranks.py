"""Several ranks, or one where there is one GPU: DDP and FSDP2 with NCCL."""

from __future__ import annotations

import sys

import torch

from whyidle.record.notices import read_notices
from whyidle.record.run import processes

from ..checks import Seen, Stage
from ..rig import Done, Recording, Rig

stage = Stage("ranks", "DDP and FSDP2", 150)
MOST_HOST_PERCENT = 10.0


@stage.check("each rank is recorded on its own GPU and holds the contexts that it holds without us; no hook is off")
def ddp_without_a_current_device(rig: Rig) -> Seen:
    return _ranks(rig, "ddp")


@stage.check(
    f"the same, and waits for gathered weights are not the host's: host and sync below {MOST_HOST_PERCENT:.0f} %"
)
def fsdp2(rig: Rig) -> Seen:
    return _ranks(rig, "fsdp")


def _ranks(rig: Rig, how: str) -> Seen:
    rig.needs("NCCL")
    count = min(2, torch.cuda.device_count())
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    launch += rig.program("ranks", how)[len(rig.python) :]
    alone = rig.command(launch, limit_s=45)
    if alone.code:
        return Seen(None, f"it does not run here without us either: {alone.last}")
    return judged(alone, rig.run(launch, limit_s=60), count)


def judged(alone: Done, recording: Recording, count: int) -> Seen:
    """`alone`: the same job without us."""
    if recording.done.code:
        return Seen(False, f"exit code {recording.done.code}: {recording.done.last}")
    found = {process.rank: process.device.get("name") for process in processes(recording.folder)}
    own = {rank: "cuda" if rank == 0 else f"cuda:{rank}" for rank in range(count)}
    shares, notices = recording.shares, read_notices(recording.folder)
    contexts = _contexts(recording.done)
    right = found == own and contexts == _contexts(alone) and shares["host"] + shares["sync"] < MOST_HOST_PERCENT
    parts = ", ".join(f"{name} {share:.1f}" for name, share in shares.items())
    return Seen(
        right and not any("hook" in notice for notice in notices),
        f"{count} ranks: {found}; {parts} %; contexts {contexts}; {'; '.join(notices) or 'no notices'}",
    )


def _contexts(done: Done) -> list[str]:
    """What each rank said of the GPUs that it has touched."""
    return sorted(line for line in done.out.splitlines() if "holds a context" in line)
