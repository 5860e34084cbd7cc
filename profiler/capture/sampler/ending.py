"""When the sampler ends: told so, or left behind."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path


class Ending:
    """Ends on EOF of standard input, SIGTERM or SIGHUP, the death of the starter, or the run folder's removal.

    The death of the training is no reason: whoever started the sampler says when it is over. Standard input alone
    would not do for the starter's death: a process it has forked may hold the other end of the pipe open.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starter = os.getppid()
        self._wake, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Any handler will do: the signal's number arrives in the pipe.
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float) -> bool:
        """Wait, at most that long; true if it is time to end. May return earlier when input arrives."""
        if self.folder_gone() or os.getppid() != self._starter:
            return True
        try:
            inputs, _, _ = select.select([sys.stdin, self._wake], [], [], seconds)
            return self._wake in inputs or (bool(inputs) and os.read(sys.stdin.fileno(), 4096) == b"")
        except (OSError, ValueError, AttributeError, TypeError):
            # Standard input is closed, or was never there.
            return True

    def folder_gone(self) -> bool:
        return not self._folder.is_dir()
