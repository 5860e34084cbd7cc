"""Libraries that more of whyidle needs, or that it hooks into."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from ...record.check import Check

GROUP = "Libraries"


@dataclass(frozen=True)
class Library:
    name: str
    package: str
    """As installed; where it ends in `*` the begin of it."""
    lost: str
    """Without it."""
    extra: str
    """What of ours brings it."""


LIBRARIES = (
    Library("torchvision", "torchvision", "The studies: compare, data, and tune SCENARIO.", "studies"),
    Library("Pillow", "pillow", "The studies: compare, data, and tune SCENARIO.", "studies"),
    Library("SPDL", "spdl-core", "The `threads` loader of `compare`.", "studies"),
    Library("simplejpeg", "simplejpeg", "The `fused` loaders of `compare`; rooflines use Pillow's decoding.", "fused"),
    Library("OpenCV", "opencv-python*", "The `fused` loaders of `compare`; rooflines use Pillow's resizing.", "fused"),
    Library("DALI", "nvidia-dali-cuda*", "The `dali-cpu` and `dali-gpu` loaders of `compare`.", "dali"),
    Library("pyarrow", "pyarrow", "`report --format parquet`.", "parquet"),
    Library("matplotlib", "matplotlib", "Pictures (`--plot`).", "plot"),
    Library("lmdb", "lmdb", "Scenarios that store samples in LMDB.", "studies"),
)


def libraries() -> list[Check]:
    return [_look(library) for library in LIBRARIES]


def _look(library: Library) -> Check:
    version = _version(library.package)
    values: dict[str, float | str | None] = {"version": version}
    if version is not None:
        return Check(GROUP, library.name, "ok", f"{version}.", values=values)
    fix = f"pip install 'whyidle[{library.extra}]'"
    return Check(GROUP, library.name, "missing", "Not installed.", library.lost, fix, values)


def _version(package: str) -> str | None:
    if package.endswith("*"):
        for found in importlib.metadata.distributions():
            if (found.name or "").lower().startswith(package[:-1]):
                return found.version
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
