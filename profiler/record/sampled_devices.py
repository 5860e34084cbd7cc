"""What the sampler's devices are called: `devices.json` in the run folder, for who shows figures by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import RecordError
from .files import read_json, write_json

DEVICES = "devices.json"


@dataclass(frozen=True)
class SampledDevice:
    number: int
    """As DEVICE records have it."""
    name: str | None = None
    """What its driver calls it; `None`: it does not say."""
    power_limit_mw: int | None = None
    """The cap that the driver holds it to."""


def note_devices(folder: Path, devices: Sequence[SampledDevice]) -> None:
    """Say which devices are sampled from now on; none is said too.

    Raises:
        OSError: the folder cannot be written.
    """
    write_json(folder / DEVICES, {"devices": [asdict(device) for device in devices]})


def sampled_devices(folder: Path) -> tuple[SampledDevice, ...] | None:
    """Those that were noted; `None` where nothing was, or what was cannot be read."""
    try:
        content = read_json(folder / DEVICES)
    except RecordError:
        return None
    listed = content.get("devices") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        return None
    known = [each for each in listed if isinstance(each, dict) and isinstance(each.get("number"), int)]
    return tuple(SampledDevice(each["number"], _name(each), _power_limit(each)) for each in known)


def _name(told: dict[str, object]) -> str | None:
    name = told.get("name")
    return name if isinstance(name, str) and name else None


def _power_limit(told: dict[str, object]) -> int | None:
    limit = told.get("power_limit_mw")
    return limit if isinstance(limit, int) and limit > 0 else None
