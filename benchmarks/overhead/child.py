"""One process of the benchmark of overhead that trains blocks on request, watched by TraceML, by whyidle or by nothing.

It is told what to do over the socket named in `OVERHEAD_SOCKET`, a line of JSON each way: `traceml run` passes neither
standard input nor arguments on unchanged.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

SOCKET, OBSERVER, DEVICE = "OVERHEAD_SOCKET", "OVERHEAD_OBSERVER", "OVERHEAD_DEVICE"
TRACEML = "TraceML"


def main() -> None:
    import torch

    from benchmarks.overhead.loop import Length, Training
    from benchmarks.overhead.observers import NONE, Observers, traceml_around

    torch.set_num_threads(1)
    name, device = os.environ[OBSERVER], os.environ[DEVICE]
    around = traceml_around() if name == TRACEML else None
    observers = Observers(device)
    trainings: dict[int, Training] = {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        stream = connection.makefile("rw")
        for line in stream:
            asked = json.loads(line)
            workers = asked["workers"]
            if workers not in trainings:
                trainings[workers] = Training(workers, device)
            train = trainings[workers].block
            length = Length(asked["target_ms"], asked["products"])
            with observers.watching(NONE if name == TRACEML else name) as watch:
                block = train(length, asked["steps"], asked["discard"], around or watch.around, watch.after)
            print(json.dumps(vars(block)), file=stream, flush=True)
    observers.close()


if __name__ == "__main__":
    main()
