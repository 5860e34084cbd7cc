"""Takes out of recordings what they have from the machine and the moment that made them."""

from __future__ import annotations

import json
import platform
import socket
import sys
import time
from pathlib import Path
from typing import Any

PID = 4711
"""Of this process while it makes recordings."""
BEGAN_NS = 1_767_225_600 * 10**9
"""Unix time of the first run of a recording: 2026-01-01, 00:00 UTC. Each further one began a minute later."""
HOST = {"name": "alpha", "machine": "x86_64", "cpus": 8}
COMMAND = ["python", "train.py"]
_LATELY_S = 86_400.0


def settle(folder: Path) -> None:
    """All run folders in it, as if they had been recorded on another machine, at another time."""
    for number, path in enumerate(sorted(folder.rglob("run.json"))):
        _settle_run(path, number)
        for told in sorted(path.parent.glob("process-*.json")):
            _settle_process(told, number)


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
    path.write_text(json.dumps(info, indent=1))


def _settle_shared(info: dict[str, Any], began: int) -> None:
    """The host and the clock, where they are this machine's and this moment's."""
    host, clock = info.get("host"), info.get("clock")
    if isinstance(host, dict) and host.get("machine") == platform.machine():
        info["host"] = HOST
    if isinstance(clock, dict) and abs(clock["time_ns"] - time.time_ns()) < _LATELY_S * 1e9:
        info["clock"] = {"time_ns": began, "monotonic_ns": 10**9}
