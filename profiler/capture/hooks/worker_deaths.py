"""Workers that died: torch tells the training by an error, which we look at as it passes.

Who it was stands in the error's text. How it ended the kernel tells without being asked for good (`WNOWAIT`), so that
torch and multiprocessing find it as they would have.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data._utils import signal_handling

from ...record.schema import NOT_MEASURED, EventKind
from ..hidden import forget_frame
from .loop import Loop
from .wrap import Hook

_DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)")
MOST = 64
"""Deaths that are kept: a job has no more to learn from further ones."""


class WorkerDeaths(Hook):
    """Records them. The error reaches the training by a fetch, or by the handler of a signal, wherever it is then."""

    name, without = "workers that die", "the cause is not recorded"

    def __init__(self, loop: Loop, iterator: Callable[[], Any | None]) -> None:
        """`iterator`: of a loader, that was asked for a batch last."""
        super().__init__(loop)
        self._iterator = iterator
        self._seen: set[int] = set()
        self._noted: deque[tuple[int, int, int, int]] = deque(maxlen=MOST)
        """(when, pid, number, exit code) of what is not recorded yet: a signal's handler must not write."""

    def install(self) -> None:
        # Torch's handler of SIGCHLD asks for it by this name.
        self.replace(signal_handling, "_error_if_any_worker_fails", self._wrap)

    def remove(self) -> None:
        self.put_back()
        # What a signal's handler raised has left no fetch since.
        self.record()

    def note(self, error: BaseException) -> None:
        """An error on its way to the training; most say nothing of workers."""
        if not (self.switch.on and isinstance(error, RuntimeError)):
            return
        with self.switch:
            for pid in _pids(str(error)):
                if pid not in self._seen and len(self._seen) < MOST:
                    self._seen.add(pid)
                    self._noted.append((self._now(), pid, *_looked_up(self._iterator(), pid)))

    def fetch_failed(self, error: BaseException) -> None:
        """A fetch raised this, in the thread that trains."""
        self.note(error)
        with self.switch:
            self.record()

    def record(self) -> None:
        """Of the thread that trains, and not within a signal's handler."""
        while self._noted:
            t_ns, pid, number, code = self._noted.popleft()
            self._session.event(EventKind.WORKER_DIED, code, t_ns=t_ns)
            self._session.event(EventKind.DIED_WORKER, (number << 32) + pid, t_ns=t_ns)

    def _wrap(self, original: Callable[[], None]) -> Callable[[], None]:
        def _error_if_any_worker_fails() -> None:
            try:
                original()
            except BaseException as error:
                self.note(error)
                forget_frame(error)
                raise

        return _error_if_any_worker_fails


def _pids(text: str) -> Iterator[int]:
    found = _DIED.search(text)
    for pid in found.group(1).split(",") if found is not None else ():
        yield int(pid)


def _looked_up(iterator: Any, pid: int) -> tuple[int, int]:
    """(its number in the loader from 1, 0: not known; its exit code)."""
    workers = list(getattr(iterator, "_workers", ()))
    at = next((at for at, worker in enumerate(workers) if worker.pid == pid), None)
    known = None if at is None else getattr(workers[at]._popen, "returncode", None)
    return 0 if at is None else at + 1, _exit_code(pid) if known is None else int(known)


def _exit_code(pid: int) -> int:
    """Of a child that nobody has waited for yet; it stays so."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return NOT_MEASURED  # a child of the fork server
    if ended is None:
        return NOT_MEASURED
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
