"""Starting and stopping the sampler from the process that runs or starts a training."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from ...record.notices import SAMPLER_NOTICES
from .receiver import listen

MODULE = "whyidle.capture.sampler"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""numpy would start a thread per CPU for algebra the sampler does not do."""


@dataclass(frozen=True)
class StackOptions:
    """Which stacks are looked at."""

    rate: float = 10.0
    """Looks at a training a second; 0: none at all."""
    source: bool = True
    """Whether lines of source are kept."""
    within: bool = True
    """Whether processes look at their own stacks where the sampler may not look into them."""


NO_STACKS = StackOptions(rate=0.0)


class Sampler:
    """A sampler process, or the reason why there is none."""

    def __init__(self, process: subprocess.Popen[bytes] | None, error: str | None = None) -> None:
        self._process = process
        self.error = error
        """One sentence if the sampler could not be started or did not end well; `None` otherwise."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def stop(self, timeout: float = 5.0) -> None:
        """End the sampler and wait for its last records; terminate it if it takes longer than `timeout` seconds.

        Safe to call twice; never raises.
        """
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for push in (None, process.terminate, process.kill):
            if push is not None:
                self.error = f"The sampler did not end within {timeout:g} s and was stopped."
                push()
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout)
                if code and self.error is None:
                    self.error = f"The sampler ended with exit code {code}; {SAMPLER_NOTICES} in the run folder "
                    self.error += "may say why."
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_sampler(folder: Path, pid: int, rate: float = 5.0, stacks: StackOptions = NO_STACKS) -> Sampler:
    """Start a sampler that records into `folder` about the process tree of `pid`, `rate` times a second.

    Never raises: without a sampler a run lacks host and accelerator figures, which is no reason not to train.
    """
    folder = folder.resolve()
    # Before the sampler runs: what a training delivers meanwhile waits for it.
    listener = listen(folder)
    listen_on = None if listener is None else listener.fileno()
    told = [str(folder), pid, rate, asdict(stacks), listen_on]
    try:
        process = subprocess.Popen(
            # -P: what lies in the user's working folder must not stand in for a module of ours.
            [sys.executable, "-P", "-m", MODULE, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | ONE_THREAD,
            pass_fds=() if listen_on is None else (listen_on,),
        )
    except (OSError, ValueError) as error:
        why = f"The sampler could not be started ({error}), so host and accelerator figures are missing."
        return Sampler(None, why)
    finally:
        if listener is not None:
            listener.close()
    return Sampler(process)
