"""Where exports go: files that are there once they are whole, packed ones, pipes, stdout."""

from __future__ import annotations

import contextlib
import filecmp
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
    """Where an export goes: stdout (`None`, or `-`), or a file that is there once it is whole. Bytes want a file; text
    is packed where the file's name ends in `.gz`.

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
def together(folder: Path) -> Iterator[Path]:
    """Where to write files that go into `folder` all together, once the block has ended well; else none does.

    No file that is in `folder` already is overwritten: one with the same content stays, so that what was exported once
    can be exported there again; any other is in the way.

    Raises:
        WhyidleError: a file is in the way, or they cannot be written; the folder is as it was before.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        with _named(
            f"cannot create the folder {folder}", "Name another, or for one table a file name without / at its end."
        ):
            folder.mkdir(parents=True, exist_ok=True)
        with (
            _named(f"cannot write into {folder}", "Name another folder."),
            TemporaryDirectory(prefix=".whyidle-", dir=folder) as drafts,
        ):
            yield Path(drafts)
            _move(Path(drafts), folder)
    except BaseException:
        for each in missing:
            with contextlib.suppress(OSError):
                each.rmdir()
        raise


def _move(drafts: Path, folder: Path) -> None:
    """All files of one folder into another, or none."""
    there = {draft: folder / draft.name for draft in sorted(drafts.iterdir())}
    new = {draft: path for draft, path in there.items() if not os.path.lexists(path)}
    in_the_way = [
        path.name
        for draft, path in there.items()
        if draft not in new and not (path.is_file() and filecmp.cmp(draft, path, shallow=False))
    ]
    if in_the_way:
        it = "it" if len(in_the_way) == 1 else "them"
        raise WhyidleError(
            f"{folder} already holds {', '.join(in_the_way)} with different content; an export overwrites no file. "
            f"Name another folder with -o, or remove {it}."
        )
    placed: list[Path] = []
    try:
        for draft, path in new.items():
            path.touch(exist_ok=False)  # what takes this name since then is not ours to overwrite
            placed.append(path)
            draft.replace(path)
    except BaseException:
        for path in placed:
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _named(what: str, way_out: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WhyidleError(f"{what}: {error.strerror or error}. {way_out}") from error
