"""Which GPUs a process tree computes on, as the driver tells."""

from __future__ import annotations

from typing import Any


def uuids_of(pids: set[int]) -> list[str]:
    """UUIDs of the GPUs on which one of these processes has a context; none where the driver does not tell.

    In a container the driver may give the host's process ids, which match none: then nothing is known.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []
    found = []
    for index in range(_or(0, pynvml.nvmlDeviceGetCount)):
        handle = _or(None, pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        if any(process.pid in pids for process in _or([], pynvml.nvmlDeviceGetComputeRunningProcesses, handle)):
            uuid = _or(None, pynvml.nvmlDeviceGetUUID, handle)
            if uuid is not None:
                found.append(uuid.decode() if isinstance(uuid, bytes) else str(uuid))
    return found


def _or(otherwise: Any, call: Any, *arguments: Any) -> Any:
    """What the driver answers, or something else where it refuses."""
    try:
        return call(*arguments)
    except Exception:
        return otherwise
