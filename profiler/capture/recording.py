"""Records an ordinary PyTorch loop from within its own program: `with recording("runs/mine"): train()`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from ..devices.choose import choose
from ..record.run import create_run, update_run
from . import active
from .sampler.stack_options import StackOptions
from .sampler.start import start_sampler
from .session import Session
from .stacks.permit import permit, tracer


@contextlib.contextmanager
def recording(
    folder: str | Path,
    device: str = "auto",
    *,
    sampler: bool = True,
) -> Iterator[Session]:
    """Record what this thread trains within the block into a new run folder.

    Where the process is recorded already, as under `whyidle run`, that recording goes on, and no other is made.

    Args:
        folder: the run folder; made here, must not hold a run yet.
        device: what the loop trains on: `cpu`, `cuda` or `cuda:N`; `auto`: as its steps show.
        sampler: start the process that samples accelerator and host.

    Raises:
        RecordError: the folder cannot be written or already holds a run.
    """
    if (running := active.current()) is not None:
        running.session.notice(
            f"The program asked for its own recording in {folder}. A process is recorded once, so its records are here."
        )
        yield running.session
        return
    facts = {"torch": torch.__version__}
    # Which device the program will compute on is seen from its steps: CUDA is not initialised here for that.
    chosen = None if device == "auto" else choose(device)
    path = create_run(Path(folder), facts if chosen is None else facts | {"device": chosen.describe()})
    with contextlib.ExitStack() as stack:
        if sampler:
            # First: it takes what the recording says.
            permit(tracer())
            stack.enter_context(start_sampler(path, os.getpid(), stacks=StackOptions(within=False)))
        begun = stack.enter_context(active.recorded(path, chosen))
        status = "failed"
        try:
            yield begun.session
            status = "ok"
        except KeyboardInterrupt:
            status = "stopped"
            raise
        finally:
            active.end()
            update_run(path, {"ended": {"status": status, "error": None, "exit_code": None}})
