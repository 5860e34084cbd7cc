"""How many samples a second each loader delivers when nothing else is done: `python -m benchmarks.loaders DATA`.

Every round runs each loader once, in a process of its own and in an order of its own, for a number of seconds after its
first batches; what is printed is the median over rounds, with the lowest and highest, and the ratio to the first loader
named, paired by round. DATA is what `whyidle data ssd --out DATA` makes.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

WARM = 4
"""Batches before the clock starts: workers are up, queues are full."""


def delivered(options: argparse.Namespace) -> dict[str, float]:
    """Of one loader, in this process: samples/s by the wall, and ms of CPU of this process a sample."""
    from whyidle.devices.cpu import CpuDevice
    from whyidle.pipelines import registry
    from whyidle.pipelines.protocol import Settings
    from whyidle.pipelines.stages import plain_stages, ssd_stages
    from whyidle.scenarios.copying import BatchCopier
    from whyidle.scenarios.voc.read import VocDataset

    stages = ssd_stages(options.size) if options.stages == "ssd" else plain_stages(options.size)
    data = VocDataset.open(options.data, "trainval", stages, options.limit)
    settings = Settings(batch_size=options.batch, workers=options.workers, prefetch=options.prefetch, seed=options.seed)
    loader = registry.factory(options.only)(data, settings, BatchCopier(CpuDevice()))
    samples, begin, epoch = 0, 0.0, 0
    seen = 0
    try:
        while True:
            for batch in loader.epoch(epoch):
                seen += 1
                if seen == WARM:
                    begin, cpu = time.perf_counter(), time.process_time()
                elif seen > WARM:
                    samples += batch.samples
                    took = time.perf_counter() - begin
                    if took >= options.seconds:
                        return {"rate": samples / took, "cpu_ms": (time.process_time() - cpu) / samples * 1e3}
            epoch += 1
    finally:
        loader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pipelines", default="workers,threads,dali-cpu")
    parser.add_argument("--stages", choices=("ssd", "plain"), default="ssd", help="augmentation of SSD, or none")
    parser.add_argument("--size", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(delivered(options)))
        return
    names = options.pipelines.split(",")
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in random.Random(number).sample(names, len(names)):
            command = [sys.executable, "-m", "benchmarks.loaders", *sys.argv[1:], "--only", name]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            seen[name].append(json.loads(ended.stdout.splitlines()[-1]))
    first = [each["rate"] for each in seen[names[0]]]
    print(f"{'loader':12} {'samples/s':>10} {'range':>15} {'of ' + names[0]:>16} {'CPU ms/sample':>14}")
    for name in names:
        rates = [each["rate"] for each in seen[name]]
        ratio = median(rate / other for rate, other in zip(rates, first, strict=True))
        cpu = median(each["cpu_ms"] for each in seen[name])
        print(f"{name:12} {median(rates):10.0f} {min(rates):7.0f}-{max(rates):<7.0f} {ratio:16.2f} {cpu:14.2f}")


if __name__ == "__main__":
    main()
