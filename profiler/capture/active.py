"""The recording of this process, of which there is at most one."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import util as multiprocessing_util
from pathlib import Path
from threading import get_native_id
from typing import Any

import torch

from ..devices.choose import choose
from ..devices.protocol import Device
from ..errors import RecordError
from ..record.notices import TRAINING_NOTICES, Notices
from ..record.run import describe_process, writer_number
from .hooks.install import Hooks, install
from .hooks.switch import hand_on, ours
from .session import Session

RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Where launchers tell a process its rank and how many there are, the surest first."""


@dataclass
class Recording:
    """What records this process."""

    session: Session
    hooks: Hooks
    pid: int


_current: Recording | None = None
_beginning_in = 0
"""Process in which a recording is being begun: of several threads the first does it."""
_failed_in = 0
"""Process in which a recording could not be begun: it is not tried again."""


def current() -> Recording | None:
    """The recording of this process. A forked child has none: what it inherited is its parent's."""
    return _current if _current is not None and _current.pid == os.getpid() else None


def begin(
    folder: Path, device: Device | None = None, options: dict[str, Any] | None = None, gpu: int | None = None
) -> Recording | None:
    """Record what the calling thread trains into an existing run folder; the recording there is already, if any.

    `None` where that cannot be done, which is said in the folder's notices. Never raises.

    Args:
        device: what is trained on; default: found out, from the first step that is learnt from on.
        options: `tune`: see `tuning.takeover`.
        gpu: what is known of the device so far: the GPU of an optimizer's parameters.
    """
    global _beginning_in, _current, _failed_in
    if (running := current()) is not None:
        return running
    if os.getpid() in (_failed_in, _beginning_in):
        return None
    _beginning_in = os.getpid()
    inherited, _current = _current, None
    try:
        folder = folder.resolve()
        if inherited is not None:
            # A forked child: the hooks point to the parent's recording.
            inherited.hooks.discard()
        _current = _begin(folder, device, first_guess() if gpu is None else gpu, options or {})
    except Exception as error:
        hand_on(error)
        _failed_in = os.getpid()
        with ours():
            why = f"{type(error).__name__}: {error}"
            Notices(folder / TRAINING_NOTICES)(f"A training process could not be recorded ({why}).")
    finally:
        _beginning_in = 0
    return _current


def end() -> None:
    """End the recording of this process, if there is one. Safe to call twice; never raises."""
    global _current
    running, _current = current(), None
    if running is None:
        return
    with ours():
        running.hooks.remove()
    with ours():
        running.session.finish()


@contextlib.contextmanager
def recorded(folder: Path, device: Device | None = None) -> Iterator[Recording]:
    """Record what the calling thread trains within the block into an existing run folder, as `begin` does.

    Raises:
        RecordError: it cannot be recorded.
    """
    begun = begin(folder, device)
    if begun is None:
        raise RecordError(f"no recording into {folder} was possible; the notices there say why.")
    try:
        yield begun
    finally:
        end()


def first_guess() -> int | None:
    """The GPU that this process holds a context on, the current one of several; `None`: none, or none that stands out.

    The current device does not tell by itself: `model.to("cuda:1")` and DDP without `set_device` leave it at GPU 0,
    where to look at anything makes a context of half a gigabyte. So only devices are taken that the program itself has
    used. CUDA is not initialised for that, which would break the program's own fork of workers.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    current = torch.cuda.current_device()
    if has_context is None or has_context(current):
        return int(current)
    held = [index for index in range(torch.cuda.device_count()) if has_context(index)]
    return held[0] if len(held) == 1 else None


def rank_and_size() -> tuple[int, int | None]:
    """This process's rank in its job, and the number of ranks where that is known."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for rank, size in RANK_VARIABLES:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, None


def _begin(folder: Path, device: Device | None, gpu: int | None, options: dict[str, Any]) -> Recording:
    chosen = device or choose("cpu" if gpu is None else f"cuda:{gpu}")
    rank, size = rank_and_size()
    local = os.environ.get("LOCAL_RANK", "")
    facts = {
        "world_size": size,
        "local_rank": int(local) if local.isdigit() else None,
        "torch": torch.__version__,
        "thread": get_native_id(),
        "began_ns": chosen.now(),
    }
    hooks = None
    session = Session(folder, chosen, rank, writer=writer_number(folder, rank))

    def computes_on(device: Device) -> None:
        describe_process(folder, rank, session.writer, facts | {"device": device.describe()})

    try:
        computes_on(chosen)
        hooks = install(session, options.get("tune"), computes_on if device is None else None)
        # At the end of this process, also of one that multiprocessing forked, which skips Python's own ending.
        atexit.register(end)
        multiprocessing_util.Finalize(None, end, exitpriority=0)
        return Recording(session, hooks, os.getpid())
    except BaseException:
        if hooks is not None:
            hooks.discard()
        session.finish()
        raise
