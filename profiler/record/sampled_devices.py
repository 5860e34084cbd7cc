"""What the sampler's devices are called, and what drives them: `devices.json` in the run folder."""

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


def note_devices(folder: Path, devices: Sequence[SampledDevice], driver: str | None = None) -> None:
    """Say which devices are sampled from now on; none is said too. `driver`: its version; `None`: it does not say.

    Raises:
        OSError: the folder cannot be written.
    """
    write_json(folder / DEVICES, {"driver": driver, "devices": [asdict(device) for device in devices]})


def sampled_devices(folder: Path) -> tuple[SampledDevice, ...] | None:
    """Those that were noted; `None` where nothing was, or what was cannot be read."""
    listed = _content(folder).get("devices")
    if not isinstance(listed, list):
        return None
    known = [each for each in listed if isinstance(each, dict) and isinstance(each.get("number"), int)]
    return tuple(SampledDevice(each["number"], _name(each), _power_limit(each)) for each in known)


def sampled_driver(folder: Path) -> str | None:
    """The version of the driver of the sampled devices; `None` where it was not noted."""
    version = _content(folder).get("driver")
    return version if isinstance(version, str) and version else None


def _content(folder: Path) -> dict[str, object]:
    """Nothing where there is none, or it cannot be read."""
    try:
        content = read_json(folder / DEVICES)
    except RecordError:
        return {}
    return content if isinstance(content, dict) else {}


def _name(told: dict[str, object]) -> str | None:
    name = told.get("name")
    return name if isinstance(name, str) and name else None


def _power_limit(told: dict[str, object]) -> int | None:
    limit = told.get("power_limit_mw")
    return limit if isinstance(limit, int) and limit > 0 else None
