"""Takes out of recordings what they have from the machine, the moment and the process that made them."""

from __future__ import annotations

import json
import os
import platform
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from whyidle.record.schema import HEADER_BYTES, KINDS

PID = 4711
"""Of whatever this process recorded."""
AGAIN = 10_000_000
"""Above all process ids: what is added to one is added to the other."""
BEGAN_NS = 1_767_225_600 * 10**9
"""Unix time of the first run of a recording: 2026-01-01, 00:00 UTC. Each further one began a minute later."""
HOST = {"name": "alpha", "machine": "x86_64", "cpus": 8}
COMMAND = ["python", "train.py"]
PIDS = {"training", "process", "thread", "parent"}
"""Fields of records that hold a process id."""
_PID_AT = struct.calcsize("<8sIIII")
"""Of the process id in the first page of a record file: magic, version, sizes and rank lie before it, aligned."""
_LATELY_S = 86_400.0


def settle(folder: Path) -> None:
    """All run folders in it, as if another process had recorded them, on another machine, at another time."""
    for number, path in enumerate(sorted(folder.rglob("run.json"))):
        _settle_run(path, number)
        for told in sorted(path.parent.glob("process-*.json")):
            _settle_process(told, number)
        for records in sorted(path.parent.glob("*.rec")):
            _settle_records(records)


def mine(pid: int) -> bool:
    return pid % AGAIN == os.getpid()


def other(pid: int) -> int:
    return pid // AGAIN * AGAIN + PID


def _settle_run(path: Path, number: int) -> None:
    info = json.loads(path.read_text())
    began = BEGAN_NS + number * 60 * 10**9
    info["id"] = f"20260101-{number:06d}-abcdef"
    info["whyidle"] = "0.0.9"
    info["python"] = "3.12.1"
    info["started_at"] = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(began // 10**9))
    if info.get("command") == sys.argv:
        info["command"] = COMMAND
    _settle_shared(info, began)
    path.write_text(json.dumps(info, indent=1))


def _settle_process(path: Path, number: int) -> None:
    info = json.loads(path.read_text())
    for name, value in (("python", "3.12.1"), ("executable", "/usr/bin/python3"), ("command", COMMAND)):
        if name in info:
            info[name] = value
    if info.get("host") == socket.gethostname():
        info["host"] = HOST["name"]
    _settle_shared(info, BEGAN_NS + number * 60 * 10**9)
    if mine(info["pid"]):
        info["pid"] = other(info["pid"])
    path.unlink()
    path.with_name(_renamed(path.name)).write_text(json.dumps(info, indent=1))


def _settle_shared(info: dict[str, Any], began: int) -> None:
    """The host and the clock, where they are this machine's and this moment's."""
    host, clock = info.get("host"), info.get("clock")
    if isinstance(host, dict) and host.get("machine") == platform.machine():
        info["host"] = HOST
    if isinstance(clock, dict) and abs(clock["time_ns"] - time.time_ns()) < _LATELY_S * 1e9:
        info["clock"] = {"time_ns": began, "monotonic_ns": 10**9}


def _settle_records(path: Path) -> None:
    content = bytearray(path.read_bytes())
    (pid,) = struct.unpack_from("<q", content, _PID_AT)
    if mine(pid):
        struct.pack_into("<q", content, _PID_AT, other(pid))
    kind = KINDS[path.name.partition("-")[0]]
    count = (len(content) - HEADER_BYTES) // kind.record_bytes
    for name in {field.name for field in kind.fields} & PIDS:
        pids = np.frombuffer(content, kind.dtype, count, HEADER_BYTES)[name]
        pids[pids % AGAIN == os.getpid()] += PID - os.getpid()
    path.unlink()
    path.with_name(_renamed(path.name)).write_bytes(content)


def _renamed(name: str) -> str:
    """`KIND-RANK-PID.…` with another id in place of this process's."""
    head, _, rest = name.rpartition("-")
    pid, dot, ending = rest.partition(".")
    with suppress(ValueError):
        if mine(int(pid)):
            return f"{head}-{other(int(pid))}{dot}{ending}"
    return name
