"""A folder whose file system stops to answer, and a program that trains beside it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HALF = """
import sys
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 8), torch.randn(128, 1))
    loader = DataLoader(data, batch_size=16, num_workers=int(sys.argv[1]), multiprocessing_context=sys.argv[2] or None)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(8):
        if epoch == 4:
            print("half", flush=True)
            sys.stdin.readline()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)
    print("all", loss.item(), flush=True)
    sys.exit(7)

if __name__ == "__main__":
    main()
"""
"""Says when it has trained for half its time, and waits for a line. Arguments: workers, how they start. Ends with 7."""
STEPS = 64


class Hanging:
    """The folder, and what makes it hang."""

    def __init__(self, folder: Path, server: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        self._server = server

    def hangs(self) -> None:
        os.kill(self._server.pid, signal.SIGSTOP)

    def answers(self) -> None:
        os.kill(self._server.pid, signal.SIGCONT)


@contextmanager
def hanging(folder: Path) -> Iterator[Hanging]:
    """A folder of a FUSE file system. Skips the test where there is none to be had: it needs bindfs."""
    behind, mount = folder / "behind", folder / "mount"
    behind.mkdir()
    mount.mkdir()
    if shutil.which("bindfs") is None:
        pytest.skip("a folder that hangs needs bindfs (Debian: apt install bindfs)")
    server = subprocess.Popen(["bindfs", "-f", str(behind), str(mount)], stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(mount):
            if server.poll() is not None:
                pytest.skip("bindfs cannot mount here")
        yield Hanging(mount, server)
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGCONT)
        subprocess.run(["umount", "-l", str(mount)], capture_output=True)
        server.kill()
        server.wait()
