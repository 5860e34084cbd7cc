"""What ran, where, and how it was set: read off `run.json` and off what the loader said of itself."""

from __future__ import annotations

import shlex
from typing import Any

from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...record.code import Code
from .overview import duration

_ELSEWHERE = {"format", "version", "fields", "clock", "notices", "command", "id", "whyidle", "python", "torch"}
_ELSEWHERE |= {"started_at", "host", "device", "ended", "plan", "code"}
"""Keys of run.json that have a line of their own, or say nothing of the run's settings."""
MOST_CHARACTERS = 300

Rows = list[tuple[str, str]]


def environment_of(analysis: Analysis) -> Rows:
    """(what, value) of what ran on what."""
    info = analysis.info
    host, device = info.get("host") or {}, info.get("device") or {}
    rows = [
        ("command", command_of(info)),
        ("started", info.get("started_at")),
        ("lasted", None if analysis.duration_s is None else duration(analysis.duration_s)),
        ("device", _device(device)),
        ("driver", device.get("driver")),
        ("host", ", ".join(str(host[k]) for k in ("name", "machine") if host.get(k))),
        ("CPUs of the machine", host.get("cpus")),
        ("Python", info.get("python")),
        ("torch", info.get("torch")),
        ("code", _code(info)),
        ("whyidle", info.get("whyidle")),
        ("run", info.get("id")),
    ]
    return [(what, _short(value)) for what, value in rows if value not in (None, "")]


def settings_of(analysis: Analysis) -> Rows:
    """(what, value): the loader's settings as they were seen, then whatever else run.json says."""
    rows = _loader(analysis.facts) if analysis.facts is not None else []
    for key, value in analysis.info.items():
        # That `--headroom` was not asked for is no setting.
        if key not in _ELSEWHERE and value not in (None, {}, []) and (key, value) != ("headroom", False):
            rows += _flat(key, value)
    return [(what, _short(value)) for what, value in rows]


def command_of(info: dict[str, Any]) -> str:
    """As it would be typed."""
    command = info.get("command")
    return shlex.join(str(word) for word in command) if isinstance(command, list) else ""


def _code(info: dict[str, Any]) -> str | None:
    code = Code.of(info)
    if code is None:
        return None
    return f"{code}, branch {code.branch}" if code.branch else str(code)


def _device(device: dict[str, Any]) -> str:
    title = str(device.get("title") or device.get("name") or "")
    count = device.get("count")
    words = f"{count} × {title}" if isinstance(count, int) and count > 1 else title
    if device.get("kind") == "emulated" and "emulated" not in words:
        return f"{words} (emulated)"
    return words


def _loader(facts: Facts) -> list[tuple[str, Any]]:
    told = (
        ("batch size", facts.batch_size),
        ("num_workers", facts.set_workers),
        ("prefetch_factor", facts.set_prefetch),
        ("persistent_workers", facts.persistent_workers),
        ("pin_memory", facts.pin_memory),
        ("iterable dataset", facts.iterable),
        ("batches handed over as they come", facts.out_of_order),
        ("workers are new Python processes", facts.starts_python),
    )
    return [(name, value) for name, value in told if value is not None]


def _flat(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [row for key, inner in value.items() if inner is not None for row in _flat(f"{name}.{key}", inner)]
    return [(name, value)]


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    words = ", ".join(str(each) for each in value) if isinstance(value, list) else str(value)
    return words if len(words) <= MOST_CHARACTERS else f"{words[: MOST_CHARACTERS - 1]}…"
