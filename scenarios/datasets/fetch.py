"""Downloads of dataset files: whole and verified, or not there at all."""

from __future__ import annotations

import hashlib
import http.client
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from whyidle.errors import DataError

_CHUNK = 1 << 20
_TIMEOUT_S = 30
"""Without a byte from the server."""


def fetch(
    urls: Sequence[str],
    target: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    say: Callable[[str], None],
    instead: str = "Without a network, ",
) -> Path:
    """The file at `target`: the one that is there if it is the wanted one, else from the first of the mirrors that has
    it.

    It is written under another name, compared with its checksum (give one of the two), and renamed only then. A
    download that stops is begun anew the next time.

    Raises:
        DataError: another file is there; or no mirror gave the file, or it cannot be written. The message says where
            to put it by hand; `instead`, which may name another way, begins that sentence.
    """
    kind, wanted = ("md5", md5) if md5 else ("sha256", sha256)
    if not wanted:
        raise ValueError(f"{target.name} has no checksum to verify it with")
    if target.exists():
        _require(target, kind, wanted)
        return target
    failures = []
    for url in urls:
        say(f"Downloading {url}")
        try:
            got = _download(url, target, kind, wanted)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            failures.append(f"{url}: {getattr(problem, 'reason', None) or problem}")
            continue
        if got == wanted:
            return target
        failures.append(f"{url}: its {kind} is {got}")
    raise DataError(
        f"{target.name} could not be downloaded ({'; '.join(failures)}). {instead}put the file ({kind} {wanted}) "
        f"into {target.parent}, or name a folder that has it with --data."
    )


def _require(target: Path, kind: str, wanted: str) -> None:
    try:
        with target.open("rb") as file:
            there = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{target} cannot be read: {error.strerror}.") from error
    if there != wanted:
        raise DataError(
            f"{target} is cut off or another file: its {kind} is {there}, the published one's {wanted}. Remove it to "
            "download it again."
        )


def _download(url: str, target: Path, kind: str, wanted: str) -> str:
    """Leaves the file at `target` if its checksum is the wanted one, nothing otherwise. Returns the checksum."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with open(descriptor, "wb") as file:
            got = _copy(url, file, kind)
        if got == wanted:
            Path(name).chmod(0o644)
            Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
    return got


def _copy(url: str, file: BinaryIO, kind: str) -> str:
    """Writes what the server sends; its checksum."""
    hasher = hashlib.new(kind, usedforsecurity=False)
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        while chunk := answer.read(_CHUNK):
            hasher.update(chunk)
            file.write(chunk)
    return hasher.hexdigest()
