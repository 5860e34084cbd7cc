"""What it takes to report on a job of many ranks: `make benchmarks`.

Each rank's process and each of its workers leaves a record file of its own. Target: time that rises with the number of
files and no faster, so that a job of 256 ranks with 8 workers each is opened and analysed within seconds. The records
are made up, and few: what is measured is the number of files. `--ranks N`, several times: other sizes than the default.
"""

from __future__ import annotations

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from benchmarks import machine
from whyidle.analyse.run.analysis import analyse
from whyidle.record.files import write_json
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import BATCH, DEVICE, EVENT, HOST, STEP, EventKind
from whyidle.record.segment import RecordWriter
from whyidle.report.contract import run as contract
from whyidle.report.documents.run import run_document
from whyidle.report.render import print_document
from whyidle.terminal.console import json_text

RANKS = (256, 1024)
WORKERS = 8
STEPS = 64
STEP_NS = 100_000_000
LOOKS = 64
DEVICES = 8
START = 10**12
CLOCK = {"time_ns": 1_700_000_000 * 10**9, "monotonic_ns": START}
Result = TypeVar("Result")


def generate(folder: Path, ranks: int) -> None:
    """A run folder of so many ranks, eight on a host; the first of them waits for its data."""
    device = {"kind": "cuda", "title": "synthetic GPU", "count": DEVICES}
    about = {"clock": CLOCK, "device": device, "host": {"name": "n0", "cpus": 64}}
    create_run(folder, {"ended": {"status": "ok", "exit_code": 0}} | about)
    for rank in range(ranks):
        _generate_rank(folder, rank, ranks, device)
    host, devices = RecordWriter(folder, HOST), RecordWriter(folder, DEVICE)
    for look in range(LOOKS):
        at = START + look * STEPS * STEP_NS // LOOKS
        _append(host, {"t_ns": at, "main_thread_queue_ns": 0})
        for number in range(DEVICES):
            _append(devices, {"t_ns": at, "device": number, "utilisation_pct": 80.0, "window_ns": STEP_NS})
    host.close()
    devices.close()


def _generate_rank(folder: Path, rank: int, ranks: int, device: dict[str, object]) -> None:
    pid = 1000 + rank
    told = {"rank": rank, "pid": pid, "host": f"n{rank // DEVICES}", "world_size": ranks, "local_rank": rank % DEVICES}
    write_json(folder / f"process-{rank}-{pid}.json", told | {"device": device, "clock": CLOCK})
    steps, events = RecordWriter(folder, STEP, rank, pid), RecordWriter(folder, EVENT, rank, pid)
    workers = [RecordWriter(folder, BATCH, rank, pid, slot=True) for _ in range(WORKERS)]
    _append(events, {"t_ns": START, "what": EventKind.TRAINING_BEGIN})
    _append(events, {"t_ns": START, "what": EventKind.LOADER_WORKERS, "value": WORKERS})
    fetch = STEP_NS // (2 if rank == 0 else 10)
    for step in range(STEPS):
        begin = START + step * STEP_NS
        fetched, end = begin + fetch, begin + STEP_NS
        made = {"step": step, "worker": step % WORKERS, "loader": 1, "batch": step, "samples": 32, "skipped": 0}
        _append(workers[step % WORKERS], made | {"begin_ns": fetched - STEP_NS * WORKERS // 2, "end_ns": fetched})
        stamps = {"fetch_begin_ns": begin, "fetch_end_ns": fetched, "forward_begin_ns": fetched, "step_end_ns": end}
        on_device = {"device_begin_ns": fetched, "device_end_ns": end - STEP_NS // 20}
        learnt = {"backward_begin_ns": fetched + STEP_NS // 10, "optimizer_begin_ns": end - 2000}
        counts = {"copy_bytes": 0, "sync_ns": 0, "gc_ns": 0, "cpu_ns": STEP_NS // 2, "overhead_ns": 20_000}
        place = {"step": step, "epoch": 0, "flags": 0, "samples": 32, "skipped": 0, "skipped_samples": 0}
        _append(steps, place | stamps | on_device | learnt | {"optimizer_end_ns": end - 1000} | counts)
    _append(events, {"t_ns": START + STEPS * STEP_NS, "what": EventKind.TRAINING_END})
    for writer in (steps, events, *workers):
        writer.close()


def _append(writer: RecordWriter, values: dict[str, float]) -> None:
    fields = zip(writer.kind.fields[1:], writer.kind.missing(), strict=True)
    writer.append(*(values.get(field.name, missing) for field, missing in fields))


def report(folder: Path) -> None:
    """What a report takes, in this process: its parts, files opened and memory, in a line."""
    opened = 0

    def count(event: str, _: object) -> None:
        nonlocal opened
        opened += event == "open"

    sys.addaudithook(count)
    run, open_s = _timed(lambda: open_run(folder))
    analysis, analyse_s = _timed(lambda: analyse(run))
    _, json_s = _timed(lambda: json_text(contract.report(analysis)))
    _, text_s = _timed(lambda: print_document(run_document(analysis), Console(file=io.StringIO(), width=100)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    files = sum(1 for _ in folder.iterdir())
    print(
        f"{len(analysis.ranks)} ranks, {files} files, s of CPU: opening {open_s:.2f}, analysing {analyse_s:.2f}, JSON "
        f"{json_s:.2f}, text {text_s:.2f}; {opened} times a file was opened, peak memory {peak:.2f} GB",
        flush=True,
    )


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def main() -> None:
    if sys.argv[1:2] == ["--report"]:
        report(Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, action="append", metavar="N")
    arguments = parser.parse_args()
    print(machine())
    for ranks in arguments.ranks or RANKS:
        with tempfile.TemporaryDirectory() as folder:
            generate(Path(folder) / "run", ranks)
            subprocess.run([sys.executable, "-m", __spec__.name, "--report", str(Path(folder) / "run")], check=True)


if __name__ == "__main__":
    main()
