"""Photographs decoded once and kept as raw pixels in LMDB, as Caffe's users kept ImageNet for the study of scaling.

256 × 256 × 3 levels are 196,608 bytes; LMDB puts each record on pages of its own, 200,704 bytes, which gives the
study's 240 GB for 1,281,167 photographs. Reading is then the disk and the page cache, and nothing is decoded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from platformdirs import user_cache_dir

from whyidle.errors import DataError, MissingExtra
from whyidle.pipelines.stages import Resize

from .image_folder import ImageFolder

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from whyidle.pipelines.protocol import Image, Stage, Targets

_PAGE = 4096
_HEADER = 16
"""Bytes LMDB puts before a value on pages of its own."""
_ABOUT = b"about"
_SHARE = 0.8
"""Of the free disk that a store may take at most."""
_CHUNK = 64
"""Photographs in the making at a time."""
_OPENING = threading.Lock()
_OPENED: dict[Path, tuple[int, Any]] = {}
"""Process and environment of each store. LMDB wants one for a file in a process, and none taken through a fork."""


@dataclass(frozen=True)
class About:
    """What a store holds, told in the store itself."""

    format: str
    samples: int
    side: int
    content: str
    """Digest of the files it was made from: names, sizes and times."""


class Records:
    """The photographs of an ImageFolder from their store."""

    def __init__(self, source: ImageFolder, file: Path, side: int, stages: Sequence[Stage]) -> None:
        self._source = source
        self._file = file
        self._side = side
        self.stages = stages

    @property
    def classes(self) -> int:
        return self._source.classes

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> bytes:
        with _environment(self._file).begin() as transaction:
            record: bytes | None = transaction.get(_key(index))
        if record is None or len(record) != self._side**2 * 3:
            raise DataError(f"Record {index} of {self._file} is missing or broken. Remove the file; it is made again.")
        return record

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        return np.frombuffer(data, np.uint8).reshape(self._side, self._side, 3)

    def targets(self, index: int) -> Targets:
        return self._source.targets(index)

    def notices(self) -> list[str]:
        return self._source.notices()

    def describe(self) -> dict[str, Any]:
        size = self._side**2 * 3
        return {**self._source.describe(), "mean_bytes": float(size), "record_bytes": size, "file": str(self._file)}


def open_records(
    source: ImageFolder,
    side: int,
    stages: Sequence[Stage],
    folder: Path | None = None,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> Records:
    """The store of these photographs, each warped to a square of `side` pixels; made where it is missing.

    It is kept in `folder`, the user's cache unless said. Of several processes one makes it and the others wait.

    Raises:
        DataError: the store is of something else, the disk is too small for it, or a photograph cannot be read.
        MissingExtra: LMDB is not installed.
    """
    _lmdb()
    content = hashlib.sha256(repr((source.file_bytes.tolist(), source.changed_ns.tolist())).encode())
    content.update("\n".join(source.names.tolist()).encode())
    wanted = About("whyidle-records", len(source), side, content.hexdigest())
    folder = folder or Path(user_cache_dir("whyidle")) / "records"
    whose = hashlib.sha256(os.fsencode(source.root.resolve())).hexdigest()[:16]
    # Of its content too: another choice of the same photographs has a store of its own.
    file = folder / f"{whose}-{len(source)}-{side}-{wanted.content[:16]}.lmdb"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                _make(source, file, wanted, say)
    except OSError as error:
        raise DataError(
            f"Cannot write the records to {folder}: {error.strerror}. Make room there, or use --store files."
        ) from error
    _require(file, wanted, source.root)
    return Records(source, file, side, stages)


def store_bytes(samples: int, side: int) -> int:
    """What a store takes on the disk: whole pages for each record, and a little for its tree."""
    pages = -(-(side**2 * 3 + _HEADER) // _PAGE)
    return samples * pages * _PAGE + samples * 64 + 64 * _PAGE


def _make(source: ImageFolder, file: Path, about: About, say: Callable[[str], None]) -> None:
    """Makes the store under another name; `file` is there when it is whole."""
    lmdb, size, free = _lmdb(), store_bytes(about.samples, about.side), shutil.disk_usage(file.parent).free
    if size > free * _SHARE:
        raise DataError(
            f"The records of {about.samples} photographs take {size / 1e9:.1f} GB, and {file.parent} has "
            f"{free / 1e9:.1f} GB left. Use --limit, or --store files."
        )
    say(f"Making {about.samples} records of {about.side} × {about.side} × 3 bytes, {size / 1e6:.0f} MB, in {file}")
    part, resize, random = file.with_suffix(".part"), Resize(about.side), np.random.default_rng(0)

    def pixels(index: int) -> bytes:
        image = source.decode(source.read(index), index)
        return resize(image, source.targets(index), random)[0].tobytes()

    part.unlink(missing_ok=True)
    try:
        with (
            lmdb.open(str(part), subdir=False, lock=False, map_size=size, sync=False) as environment,
            ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 16)) as pool,
        ):
            for start in range(0, about.samples, _CHUNK):
                chunk = range(start, min(start + _CHUNK, about.samples))
                with environment.begin(write=True) as transaction:
                    for index, record in zip(chunk, pool.map(pixels, chunk), strict=True):
                        transaction.put(_key(index), record, append=True)
            with environment.begin(write=True) as transaction:
                transaction.put(_ABOUT, json.dumps(asdict(about)).encode())
            environment.sync(True)
        part.replace(file)
    except lmdb.Error as error:
        raise DataError(f"{part} cannot be written: {error}. Use --store files.") from error
    finally:
        part.unlink(missing_ok=True)


def _require(file: Path, wanted: About, root: Path) -> None:
    lmdb = _lmdb()
    try:
        with _environment(file, anew=True).begin() as transaction:
            there = json.loads(transaction.get(_ABOUT) or b"null")
    except (lmdb.Error, ValueError):
        there = None
    if not isinstance(there, dict) or there.get("format") != wanted.format:
        raise DataError(f"{file} is not a store of records that whyidle made. Remove it; it is made again.")
    if there != asdict(wanted):
        raise DataError(f"{file} holds other records than those of {root}. Remove it; it is made again.")


def _environment(file: Path, anew: bool = False) -> Any:
    """As Caffe opens its databases: to read only, with the kernel reading ahead. `anew` as the file may be another."""
    with _OPENING:
        process, environment = _OPENED.get(file, (0, None))
        if environment is not None and (anew or process != os.getpid()):
            environment.close()  # of an inherited one this forgets it, and leaves the parent's alone
            environment = None
        if environment is None:
            environment = _lmdb().open(str(file), subdir=False, readonly=True, lock=False, readahead=True)
            _OPENED[file] = (os.getpid(), environment)
        return environment


def _key(index: int) -> bytes:
    return b"%08d" % index


def _lmdb() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise MissingExtra(f"The store lmdb needs LMDB, which cannot be imported ({error})", "studies") from error
    return lmdb
