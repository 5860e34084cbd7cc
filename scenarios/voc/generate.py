"""Composes sets of JPEG images in Pascal-VOC layout, of any size, without downloading anything."""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

from whyidle.errors import DataError
from whyidle.record.files import under_todays_name

from ..output import counted
from .layout import Layout, composed_marker
from .paint import Placed, paint

RECIPE = 2
"""Goes up when the same seed gives other images."""
_TRAIN_SHARE = 0.8
_CHUNK = 8
"""Images a worker process makes at a time."""
_WORTH_PROCESSES = 40
"""Fewer images are made sooner than worker processes start."""


def compose(
    out: Path,
    images: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> None:
    """Makes a set of `images` images in `out`, with splits of 80 % `train` and 20 % `val`.

    An image depends only on `seed` and its number, not on `images` or `workers` (processes; by default one for each
    CPU that may be used). `progress` is called with how many of how many images are there. A set that is complete
    is left as it is, one that was interrupted or lost files is completed.

    Raises:
        DataError: `out` holds something else or cannot be written, or a number is impossible.
    """
    if images < 1:
        raise DataError(f"A set of {images} images cannot be made: at least 1 is needed.")
    if seed < 0:
        raise DataError(f"The seed {seed} cannot be used: it must be at least 0.")
    wanted = {"format": "whyidle-voc", "recipe": RECIPE, "images": images, "seed": seed}
    try:
        _claim(out, wanted)
        layout = Layout(out / "VOCdevkit" / "VOC2012")
        for folder in (layout.images, layout.annotations, layout.splits):
            folder.mkdir(parents=True, exist_ok=True)
        _make(layout, images, seed, progress, workers)
        _write_splits(layout, images, seed)
    except OSError as error:
        raise DataError(
            f"Cannot write the images to {out}: {error.strerror or error}. Run the same command again to go on, or "
            "name another folder with --out."
        ) from error
    except BrokenProcessPool as error:
        raise DataError(
            f"A process that composed images for {out} was killed, perhaps because memory ran out. "
            "Run the same command again to go on."
        ) from error


def _claim(out: Path, wanted: dict[str, Any]) -> None:
    """Makes `out` the folder of this set, or finds that it is."""
    marker = composed_marker(out)
    try:
        there = json.loads(marker.read_text(encoding="utf-8"), object_hook=under_todays_name)
    except (FileNotFoundError, NotADirectoryError):
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DataError(
                f"{out} exists, and whyidle did not make it, so nothing was written. Name a new folder with --out."
            ) from None
        out.mkdir(parents=True, exist_ok=True)
        _write(marker, json.dumps(wanted).encode())
        return
    except ValueError:
        there = None
    if there != wanted:
        asked = f"{wanted['images']} images of seed {wanted['seed']}"
        raise DataError(
            f"{out} holds another set than {asked} ({marker} says {json.dumps(there)}), so nothing was written. Name "
            "another folder with --out, or remove this one."
        )


def _make(
    layout: Layout, images: int, seed: int, progress: Callable[[int, int], None] | None, workers: int | None
) -> None:
    """Makes the images that are not there yet."""
    names = [_name(index) for index in range(images)]
    missing = [
        i for i, name in enumerate(names) if not (layout.annotation(name).exists() and layout.image(name).exists())
    ]
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if len(missing) > _WORTH_PROCESSES else 1
    for folder in (layout.images, layout.annotations, layout.splits):
        for left_over in folder.glob("*.part"):
            left_over.unlink(missing_ok=True)
    there = images - len(missing)
    if progress is not None:
        progress(there, images)
    made = _each(functools.partial(_make_one, layout, seed), missing, workers)
    for done, _ in enumerate(made if progress else counted(made, "composing images", len(missing)), start=there + 1):
        if progress is not None:
            progress(done, images)


def _each(make: Callable[[int], None], indices: list[int], workers: int) -> Iterator[None]:
    if workers == 1:
        yield from map(make, indices)
        return
    # Spawned, since the parent may have threads that a fork would cut in the middle of something.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, _ignore_interrupts) as pool:
        try:
            yield from pool.map(make, indices, chunksize=_CHUNK)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    """Leaves Ctrl-C to the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _make_one(layout: Layout, seed: int, index: int) -> None:
    painting = paint(seed, index)
    height, width = painting.image.shape[:2]
    name = _name(index)
    encoded = io.BytesIO()
    Image.fromarray(painting.image).save(encoded, "JPEG", quality=_quality(seed, index))
    _write(layout.image(name), encoded.getvalue())
    _write(layout.annotation(name), _annotation(name, width, height, painting.objects).encode())


def _quality(seed: int, index: int) -> int:
    """As with photographs of many people: most are of high quality, some not. About 100 kB at 500 × 375 on average."""
    random = np.random.default_rng((seed, index, 1))
    return int(np.clip(random.normal(95.5, 1.8), 85, 98))


def _name(index: int) -> str:
    return f"2012_{index + 1:06d}"


def _annotation(name: str, width: int, height: int, objects: tuple[Placed, ...]) -> str:
    """VOC's XML; its corners count from 1 and are both part of the box."""
    lines = [
        "<annotation>",
        "  <folder>VOC2012</folder>",
        f"  <filename>{name}.jpg</filename>",
        "  <source><database>composed by whyidle</database></source>",
        f"  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>",
        "  <segmented>0</segmented>",
    ]
    for placed in objects:
        left, top, right, bottom = placed.box
        lines += [
            "  <object>",
            f"    <name>{escape(placed.name)}</name>",
            "    <pose>Unspecified</pose>",
            f"    <truncated>{placed.truncated:d}</truncated>",
            f"    <occluded>{placed.occluded:d}</occluded>",
            "    <difficult>0</difficult>",
            f"    <bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin>"
            f"<xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox>",
            "  </object>",
        ]
    return "\n".join([*lines, "</annotation>", ""])


def _write_splits(layout: Layout, images: int, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(images)
    train = sorted(order[: max(round(images * _TRAIN_SHARE), 1)].tolist())
    val = sorted(set(range(images)) - set(train))
    for split, indices in (("train", train), ("val", val), ("trainval", range(images))):
        file, content = layout.splits / f"{split}.txt", "".join(f"{_name(index)}\n" for index in indices).encode()
        if not file.exists() or file.read_bytes() != content:
            _write(file, content)


def _write(file: Path, content: bytes) -> None:
    """All of the file or none of it, whatever happens meanwhile."""
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(file)
    except OSError:
        part.unlink(missing_ok=True)
        raise
