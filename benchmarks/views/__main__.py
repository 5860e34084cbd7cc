"""What the views cost: `python -m benchmarks.views [PART …]`.

`live`: on a recording of 20 minutes that goes on growing by 50 steps a second, with 8 workers and 2 devices, the CPU
time of a frame (its snapshot, its rows, their bytes), and the share of a core that `whyidle live` takes on a
terminal, four frames a second. Target: under 3 %.

`exports`, `page`: see `reports.py`.
"""

from __future__ import annotations

import fcntl
import os
import platform
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median, quantiles

from whyidle.analyse.recent.reader import RecentReader
from whyidle.report import live as view
from whyidle.terminal.screen import Screen

from .reports import exports, pages

HERE = Path(__file__).parent
SIZES = ((80, 24), (120, 40), (200, 60))
FRAMES_A_SECOND = 4
FRAMES = 60
SHARE_SECONDS = 20.0
START_SECONDS = 5.0
"""Until Python and numpy are loaded; not counted."""


def live() -> None:
    with tempfile.TemporaryDirectory() as folder, growing(Path(folder) / "run") as run:
        print("live view, CPU ms a frame: median (mean, 95 % of frames below)")
        for size in SIZES:
            told = "  ".join(f"{name} {said(times)}" for name, times in frames(run, size).items())
            print(f"  {size[0]}x{size[1]}: {told}")
        for size in SIZES[:2]:
            print(f"  whyidle live at {size[0]}x{size[1]}: {100 * share(run, size):.2f} % of a core")


@contextmanager
def growing(folder: Path) -> Iterator[Path]:
    command = [sys.executable, HERE / "growing.py", folder, "600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield folder
    finally:
        process.kill()
        process.wait()


def frames(run: Path, size: tuple[int, int]) -> dict[str, list[float]]:
    """CPU ms of each part of each frame."""
    reader, screen = RecentReader(run), Silent()
    options = view.Options(keys=True)
    times: dict[str, list[float]] = {"snapshot": [], "rows": [], "write": [], "together": []}
    for _ in range(FRAMES):
        due = time.monotonic() + 1 / FRAMES_A_SECOND
        begin = time.process_time()
        snapshot = reader.snapshot()
        seen = time.process_time()
        rows = view.screen(snapshot, *size, options)
        built = time.process_time()
        screen.show(rows, size)
        end = time.process_time()
        for name, spent in zip(times, (seen - begin, built - seen, end - built, end - begin), strict=True):
            times[name].append(1e3 * spent)
        time.sleep(max(0.0, due - time.monotonic()))
    return {name: each[FRAMES_A_SECOND:] for name, each in times.items()}


class Silent(Screen):
    """Writes where nobody looks."""

    def __init__(self) -> None:
        super().__init__(colour=True, encoding="utf-8")
        self._out = os.open(os.devnull, os.O_WRONLY)


def said(times: list[float]) -> str:
    return f"{median(times):.2f} ({fmean(times):.2f}, {quantiles(times, n=20)[-1]:.2f})"


def share(run: Path, size: tuple[int, int]) -> float:
    """CPU time over wall time of the program on a terminal of that size."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    environment = dict(os.environ, TERM="xterm-256color")
    command = [sys.executable, "-m", "whyidle", "live", run]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)

    def read_for(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([main], [], [], left)[0]:
                os.read(main, 1 << 16)

    read_for(START_SECONDS)
    before, begin = cpu_seconds(process.pid), time.monotonic()
    read_for(SHARE_SECONDS)
    used = (cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
    os.write(main, b"q")
    process.wait(10)
    os.close(main)
    return used


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PARTS: dict[str, Callable[[], None]] = {"live": live, "exports": exports, "page": pages}


def main() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
