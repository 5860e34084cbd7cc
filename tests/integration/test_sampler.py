"""The sampler as a process: beside a real process tree, and at each of its ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.fakes.driver import wait_for
from support.small_disk import small_disk
from support.terminals import alive
from whyidle.capture.limits import cpu_budget
from whyidle.capture.sampler.start import Sampler, start_sampler
from whyidle.record.notices import SAMPLER_NOTICES
from whyidle.record.reader import RecordFile, Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import HOST, NOT_MEASURED

RATE = 20.0
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
"""The kernel tells CPU time of a process in such."""

TREE = """
import os, sys, time
seconds = float(sys.argv[1])
children = 0
for _ in range(2):
    if os.fork() == 0:
        break
else:
    children = 2
while time.process_time() < seconds:
    sum(range(1000))
# What this process really used, with its start-up, for the test to compare with.
os.write(1, f"{time.process_time_ns()}\\n".encode())
# Until whoever started it lets it end.
sys.stdin.read()
for _ in range(children):
    os.wait()
"""
IDLE = "import time; time.sleep(600)"


def hosts(folder: Path) -> Records:
    return open_run(folder).records(HOST)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a sampler from its last look for longer than a training would wait for it."""
    monkeypatch.setattr(Sampler.stop, "__defaults__", (100.0,))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return create_run(tmp_path / "run", {"device": {"kind": "cpu"}})


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", IDLE])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def sampler(run: Path, idle: subprocess.Popen[bytes]) -> Iterator[Sampler]:
    """A sampler of an idle process, that has begun to record."""
    with start_sampler(run, idle.pid, RATE) as sampler:
        wait_for(lambda: any(run.glob("host-*.rec")) and len(hosts(run)))
        yield sampler


def test_a_busy_tree_is_measured_through_its_end(run: Path) -> None:
    def looks(more: int) -> Records:
        """What there is once the sampler has looked again, so many times."""
        seen = len(hosts(run))
        wait_for(lambda: len(hosts(run)) >= seen + more)
        return hosts(run)

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    tree = subprocess.Popen([sys.executable, "-c", TREE, "0.3"], **pipes)
    with start_sampler(run, tree.pid, RATE) as sampler:
        truth = sum(int(tree.stdout.readline()) for _ in range(3))
        wait_for(lambda: any(run.glob("host-*.rec")))
        # All have said what they used, and use next to nothing any longer. One look may have been under way.
        busy = looks(3)[-1]
        tree.stdin.close()
        tree.wait()
        # The end of the training is not the end of the sampler.
        looks(3)
    tree.stdout.close()
    assert sampler.error is None

    assert busy["tree_processes"] == 3
    assert 0.9 * truth < busy["tree_cpu_ns"] < 1.1 * truth + 10 * TICK_NS
    assert 0 < busy["main_cpu_ns"] < busy["tree_cpu_ns"]
    records = hosts(run)
    assert (np.diff(records["tree_cpu_ns"]) >= 0).all()
    assert records["tree_processes"][-1] == 0
    assert records["tree_rss_bytes"].max() > 3 * 2**20
    assert records["sampler_cpu_ns"][-1] > records["sampler_cpu_ns"][0] > 0
    waits = records["run_queue_ns"][records["run_queue_ns"] != NOT_MEASURED]
    assert (np.diff(waits) >= 0).all()
    own = records[records["main_thread_queue_ns"] != NOT_MEASURED]
    assert len(own) > 0
    assert (np.diff(own["main_thread_queue_ns"]) >= 0).all()
    assert (own["main_thread_queue_ns"] <= own["run_queue_ns"]).all()
    assert set(records["cpus"].tolist()) == {round(1000 * cpu_budget().budget)}
    assert all(RecordFile(path).closed for path in run.glob("*.rec"))


@pytest.mark.parametrize("end", ["stop", signal.SIGTERM, signal.SIGHUP, shutil.rmtree])
def test_each_way_to_end_it_ends_it_well(run: Path, sampler: Sampler, end: Any) -> None:
    pid, told = sampler.pid, time.monotonic_ns()
    if isinstance(end, signal.Signals):
        os.kill(pid, end)
    elif end is shutil.rmtree:
        shutil.rmtree(run)
    if end != "stop":
        wait_for(lambda: not alive(pid))
    sampler.stop()
    sampler.stop()
    assert sampler.error is None
    assert not alive(pid)
    if end is shutil.rmtree:
        assert not run.exists()
        return
    # With a last look.
    assert hosts(run)["t_ns"][-1] >= told
    assert hosts(run)["run_queue_ns"][-1] != NOT_MEASURED
    assert all(RecordFile(path).closed for path in run.glob("*.rec"))


def test_ctrl_c_does_not_end_it(run: Path, sampler: Sampler) -> None:
    os.kill(sampler.pid, signal.SIGINT)
    seen = len(hosts(run))
    wait_for(lambda: len(hosts(run)) > seen + 2)
    assert alive(sampler.pid)


def test_there_are_never_two_for_one_run(run: Path, sampler: Sampler) -> None:
    second = start_sampler(run, os.getpid(), RATE)
    wait_for(lambda: second.pid is None or not alive(second.pid))
    second.stop()
    assert second.error == f"The sampler ended with exit code 1; {SAMPLER_NOTICES} in the run folder may say why."
    # What the second has to say the first one writes.
    wait_for((run / SAMPLER_NOTICES).is_file)
    assert (run / SAMPLER_NOTICES).read_text() == (
        "Another sampler already records this run, so a second one ended at once.\n"
    )
    assert len(list(run.glob("host-*.rec"))) == 1
    seen = len(hosts(run))
    wait_for(lambda: len(hosts(run)) > seen)


def test_it_dies_with_its_starter_even_if_a_fork_holds_the_pipe(run: Path) -> None:
    """As a training that starts its own sampler, forks workers, and is killed."""
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from whyidle.capture.sampler.start import start_sampler\n"
        "sampler = start_sampler(Path(sys.argv[1]), os.getpid(), 20)\n"
        "fork = os.fork()\n"
        "if fork: os.write(1, f'{sampler.pid} {fork}\\n'.encode())\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", code, str(run)], stdout=subprocess.PIPE)
    sampler, fork = map(int, starter.stdout.readline().split())
    try:
        wait_for(lambda: any(run.glob("host-*.rec")) and len(hosts(run)))
        starter.kill()
        starter.wait()
        wait_for(lambda: not alive(sampler))
        assert alive(fork)
    finally:
        starter.stdout.close()
        os.kill(fork, signal.SIGKILL)
    assert all(RecordFile(path).closed for path in run.glob("*.rec"))


def test_one_that_does_not_end_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE)
    sampler = Sampler(process)
    sampler.stop(timeout=0.1)
    # Killed, should the end take it as long again.
    assert process.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    assert sampler.error == "The sampler did not end within 0.1 s and was stopped."


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small", 128) as disk:
        yield disk


def fill(folder: Path, leave_bytes: int) -> None:
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "fill").write_bytes(b"x" * (free - leave_bytes))


def test_a_disk_that_fills_up_loses_records_and_counts_them(disk: Path) -> None:
    run = create_run(disk / "run", {"device": {"kind": "cpu"}})
    # Three header pages, and one page of records.
    fill(disk, 4 * 4096)
    with start_sampler(run, os.getpid(), 50) as sampler:
        wait_for(lambda: sum(p.stat().st_size > 4096 for p in run.glob("*.rec")))
        wait_for(lambda: list(run.glob("host-*.rec")))
        time.sleep(0.1)
        assert alive(sampler.pid)
    assert sampler.error is None
    # The last look comes at the end, whatever came before it.
    assert sum(RecordFile(path).dropped for path in run.glob("*.rec")) > 0
    records = hosts(run)
    assert records["seq"].tolist() == list(range(1, len(records) + 1))
