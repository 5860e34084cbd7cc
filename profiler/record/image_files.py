"""Image files that a recorded training reads, and how fast this machine decodes them: `image-files.json`, run.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Self

from ..errors import RecordError
from .delivery import put_text
from .files import read_json

IMAGE_FILES = "image-files.json"
"""In the run folder, written by the training: `files`, some of them."""
DECODING = "image_decoding"
"""The key of run.json, added when the command has ended."""


@dataclass(frozen=True)
class ImageDecoding:
    """How many of a training's images the machine decodes a second, and nothing else."""

    files: int
    """Of so many that were tried."""
    decoder: str
    """The library."""
    cores: int
    one_core: float
    """Images/s of one core, the others idle."""
    all_cores: float
    """Images/s of all of them at once."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self | None:
        """What run.json says; `None` where that is nothing, or nothing of the kind."""
        told = info.get(DECODING)
        if not isinstance(told, Mapping):
            return None
        files, decoder, cores, *rates = (told.get(name) for name in cls.__dataclass_fields__)
        if not (isinstance(files, int) and isinstance(decoder, str) and isinstance(cores, int) and cores > 0):
            return None
        known = [float(rate) for rate in rates if isinstance(rate, int | float) and isfinite(rate) and rate > 0]
        return cls(files, decoder, cores, *known) if len(known) == len(rates) else None

    def told(self) -> dict[str, Any]:
        """Keys to add to run.json."""
        return {DECODING: asdict(self)}


def write_image_files(folder: Path, files: Sequence[str]) -> None:
    """
    Raises:
        OSError: it could not be written.
    """
    put_text(folder, IMAGE_FILES, json.dumps({"files": list(files)}))


def read_image_files(folder: Path) -> list[str]:
    """Those that are there; none where the training wrote none, or something else."""
    try:
        told = read_json(folder / IMAGE_FILES)
    except RecordError:
        return []
    files = told.get("files") if isinstance(told, Mapping) else None
    # A pipe of that name would be waited for.
    return [name for name in files if isinstance(name, str) and Path(name).is_file()] if isinstance(files, list) else []
