"""Where exports go: files that are there once they are whole, packed ones, pipes, stdout."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

from ...errors import WhyidleError
from ...record.files import replacing
from ...record.run import refuse_recorded

STDOUT = "-"


@contextmanager
def opened(output: str | None, binary: bool = False) -> Iterator[Any]:
    """Where an export goes: stdout (`None`, or `-`), or a file that is there once it is whole.
    Bytes want a file; text is packed where the file's name ends in `.gz`.

    Raises:
        WhyidleError: it cannot be written; what was there before still is.
    """
    if output is None or output == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(output)
    refuse_recorded(path)
    with (
        _named(f"cannot write {path}", "Name another file."),
        replacing(path, named=True) as raw,
        layered(raw, binary, path.suffix == ".gz") as file,
    ):
        yield file


@contextmanager
def layered(raw: IO[bytes], binary: bool, packed: bool = False) -> Iterator[Any]:
    """A file to write bytes to, or text, or text that is packed.

    Raises:
        OSError: it cannot be written.
    """
    if binary:
        yield raw
        return
    # No time and no name in what is packed: the same trace gives the same bytes.
    layer = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else nullcontext(raw)
    with layer as bytes_, io.TextIOWrapper(cast("IO[bytes]", bytes_), encoding="utf-8", newline="") as text:
        yield text


@contextmanager
def in_new_folder(folder: Path) -> Iterator[Path]:
    """Where to write files that are in `folder` all together once the block has ended well; else none is.

    Raises:
        WhyidleError: the folder holds files already, or they cannot be written.
    """
    with _named(f"cannot write into {folder}", "Name another folder, or for one table a file."):
        if os.path.lexists(folder) and any(folder.iterdir()):
            raise WhyidleError(f"{folder} already holds files; an export overwrites none. Name a new folder with -o.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".whyidle-", dir=folder.parent) as around:
            drafts = Path(around, folder.name)
            drafts.mkdir()
            yield drafts
            drafts.rename(folder)


@contextmanager
def _named(what: str, way_out: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WhyidleError(f"{what}: {error.strerror or error}. {way_out}") from error
