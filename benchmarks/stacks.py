"""What looks at stacks cost, and whether they see the shares that a program itself measures: `python -m
benchmarks.stacks [both|cost|truth] [SECONDS]`.

Targets: at most 2 % of a CPU for all looks, py-spy's and the sampler's, at trainings with 0, 4 and 16 workers and with
128 native threads; shares within 3 points of the program's own clock, with stacks 5 and 200 deep, with one and eight
threads, on every Python that is found.
"""

from __future__ import annotations

import os
import platform
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import numpy as np

from whyidle.analyse.statistics import wilson
from whyidle.capture.sampler.stack_looks import StackLooks
from whyidle.capture.sampler.start import StackOptions
from whyidle.capture.sampler.tree import ProcessTree
from whyidle.record.reader import RecordFile, Records
from whyidle.record.schema import NOT_MEASURED
from whyidle.record.stacks import read_stacks

MOST_PCT, MOST_POINTS = 2.0, 3.0
CASES = ((0, 1), (4, 1), (16, 1), (0, 128))
"""Workers, and threads that torch computes with."""
TRAINING = """
import sys, time, zlib
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, index):
        zlib.compress(bytes(20_000), 6)
        time.sleep(0.02)
        return torch.rand(64, 64), index % 10

torch.set_num_threads(int(sys.argv[2]))
torch.rand(1 << 20).sum()
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Flatten(), nn.Linear(4096, 10))
optimizer = torch.optim.AdamW(model.parameters())
for number, (images, labels) in enumerate(DataLoader(Samples(), batch_size=8, num_workers=int(sys.argv[1]))):
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number == 5:
        print("ready", flush=True)
"""
SHARES = """
import sys, threading, time
share, depth, threads = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
PERIOD = 0.037 * threads

def computes(until):
    while time.perf_counter() < until:
        pass

def waits(seconds):
    time.sleep(seconds)

def deep(calls):
    if calls:
        return deep(calls - 1)
    begin = time.perf_counter()
    computes(begin + share * PERIOD)
    middle = time.perf_counter()
    waits((1 - share) * PERIOD)
    return middle - begin, time.perf_counter() - middle

for _ in range(threads - 1):
    threading.Thread(target=lambda: [deep(5) for _ in range(1 << 40)], daemon=True).start()
print("ready", flush=True)
until = time.perf_counter() + float(sys.argv[4])
computed = waited = 0.0
while time.perf_counter() < until:
    one, other = deep(depth - 2)
    computed, waited = computed + one, waited + other
print(computed / (computed + waited), flush=True)
"""


@contextmanager
def started(python: str, program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready."""
    command = [python, "-c", program, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


class Watched:
    """A tree of processes, looked at as the sampler does."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder, self.tree = pid, folder, ProcessTree(pid)
        self.looks = StackLooks(folder, pid, StackOptions(within=False), print, lambda: {pid: pid})

    def records(self) -> Records:
        return np.concatenate([RecordFile(path).all() for path in self.folder.glob("stack-*.rec")])


def watch(watched: Sequence[Watched], seconds: float) -> None:
    until, scanned = time.monotonic() + seconds, 0.0
    while (now := time.monotonic()) < until:
        if now - scanned > 1:
            scanned = now
            for each in watched:
                each.tree.look()
                each.tree.scan()
        for each in watched:
            each.looks.look(time.monotonic_ns(), each.tree.alive)
        select.select([spy for each in watched for spy in each.looks.inputs], [], [], 0.1)
    for each in watched:
        each.looks.close()


def cost(seconds: float) -> bool:
    """Print a table; whether the target is met."""
    print("| workers | threads of torch | looks a second | failed | % of a CPU: py-spy | the sampler's part |")
    print("|---|---|---|---|---|---|")
    most = 0.0
    for workers, threads in CASES:
        with started(sys.executable, TRAINING, workers, threads) as process, tempfile.TemporaryDirectory() as folder:
            watched = Watched(process.pid, Path(folder))
            own, children = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
            watch([watched], seconds)
            own, after = time.process_time() - own, resource.getrusage(resource.RUSAGE_CHILDREN)
            theirs = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
            failed = 100 * (watched.records()["stack"] == NOT_MEASURED).mean()
            parts = f"{100 * theirs / seconds:.2f} | {100 * own / seconds:.2f}"
            print(
                f"| {workers} | {threads} | {watched.looks.made / seconds:.1f} | {failed:.1f} % | {parts} |", flush=True
            )
            most = max(most, 100 * (theirs + own) / seconds)
    print(f"target of {MOST_PCT:g} %: {'met' if most <= MOST_PCT else 'missed'} ({most:.2f} %)")
    return most <= MOST_PCT


def truth(seconds: float) -> bool:
    """Print a table; whether no share is off by more than the target beyond its interval."""
    found = {platform.python_version(): sys.executable}
    for place in Path.home().glob(".pyenv/versions/3.1[1-4].*/bin/python"):
        found.setdefault(place.parents[1].name, str(place))
    print("| share of computing | calls deep | threads | Python | by its own clock | seen | looks |")
    print("|---|---|---|---|---|---|---|")
    good = True
    for share, depth, threads in product((0.2, 0.5, 0.8), (5, 200), (1, 8)):
        with ExitStack() as stack:
            given = (share, depth, threads, seconds - 2)
            running = [stack.enter_context(started(each, SHARES, *given)) for each in found.values()]
            folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in running]
            watched = [Watched(one.pid, folder) for one, folder in zip(running, folders, strict=True)]
            watch(watched, seconds)
            for version, process, each in zip(found, running, watched, strict=True):
                assert process.stdout is not None
                own = float(process.stdout.readline())
                records, table = each.records(), read_stacks(each.folder)
                mine = records[(records["thread"] == each.pid) & (records["stack"] != NOT_MEASURED)]
                seen = Counter(table.stack(number)[-1].function for number in mine["stack"].tolist())
                looks = seen["computes"] + seen["waits"]
                saw = wilson(seen["computes"] / looks, looks)
                good &= 100 * max(saw.low - own, own - saw.high) <= MOST_POINTS
                told = f"{100 * own:.1f} % | {100 * saw.value:.1f} % ({100 * saw.low:.0f} to {100 * saw.high:.0f})"
                print(f"| {share:.0%} | {depth} | {threads} | {version} | {told} | {looks} |", flush=True)
    print(f"target of {MOST_POINTS:g} points beyond the 95 % interval: {'met' if good else 'missed'}")
    return good


def main() -> None:
    what, seconds = [*sys.argv[1:], *("both", "60")[len(sys.argv) - 1 :]]
    print(f"{platform.python_version()} on {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {seconds} s each")
    sys.exit(not min([each(float(seconds)) for each in (cost, truth) if what in ("both", each.__name__)]))


if __name__ == "__main__":
    main()
