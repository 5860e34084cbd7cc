"""Looks through a split before a training, so that a bad file is a line of text and not a crash hours later.

What is wrong is reported and left out, the rest is used. A box that is partly outside its image is cut at the border.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..output import counted
from . import cache
from .annotation import AnnotationError, Object, parse
from .cache import Verified
from .jpeg import JpegError, verify
from .layout import Layout

Kind = Literal[
    "image missing",
    "image corrupt",
    "image without annotation",
    "annotation without image",
    "annotation malformed",
    "object malformed",
    "box empty",
    "box outside image",
    "box partly outside image",
]

_CONSEQUENCE: dict[Kind, str] = {
    "image missing": "left out",
    "image corrupt": "left out",
    "image without annotation": "left out",
    "annotation without image": "left out",
    "annotation malformed": "image left out",
    "object malformed": "object left out",
    "box empty": "object left out",
    "box outside image": "object left out",
    "box partly outside image": "box cut at the border",
}


@dataclass(frozen=True)
class SetProblem:
    """One thing wrong with a set."""

    kind: Kind
    file: Path
    message: str


@dataclass(frozen=True)
class UsableImage:
    """An image that can be used."""

    name: str
    width: int
    height: int
    bytes: int
    objects: list[Object]
    """With corners in pixels from 0, the upper ones exclusive: a box of one pixel is 1 wide."""


def summary(findings: Sequence[SetProblem]) -> list[str]:
    """At most one line for each kind of finding: how many, what became of them, and the first."""
    lines = []
    for kind, consequence in _CONSEQUENCE.items():
        of_kind = [finding for finding in findings if finding.kind == kind]
        if of_kind:
            first = "first: " if len(of_kind) > 1 else ""
            lines.append(f"{kind}: {len(of_kind)}, {consequence}; {first}{of_kind[0].file}: {of_kind[0].message}")
    return lines


def check(layout: Layout, names: Sequence[str]) -> tuple[list[UsableImage], list[SetProblem]]:
    """Give the usable images among `names`, in their order, and everything that is wrong with them.

    Each image is decoded unless it was before and has not changed since (see `cache`). Annotations without an image
    are reported for the whole set.
    """
    findings = _stray_annotations(layout, names)
    samples = []
    for name, image in zip(names, _verified(layout, names), strict=True):
        sample = _sample(layout, name, image, findings)
        if sample is not None:
            samples.append(sample)
    return samples, findings


def _stray_annotations(layout: Layout, names: Iterable[str]) -> list[SetProblem]:
    """Annotations outside the split whose image is missing; those of the split are found with their image."""
    images = {entry.name.removesuffix(".jpg") for entry in os.scandir(layout.images)}
    annotations = {entry.name[:-4] for entry in os.scandir(layout.annotations) if entry.name.endswith(".xml")}
    stray = sorted(annotations - images - set(names))
    return [_without_image(layout, name) for name in stray]


def _without_image(layout: Layout, name: str) -> SetProblem:
    return SetProblem("annotation without image", layout.annotation(name), f"{layout.image(name)} does not exist")


def _verified(layout: Layout, names: Sequence[str]) -> Iterable[Verified | None]:
    """What decoding found for each name, in order; `None` where there is no file."""
    known = cache.load(layout.root)
    before = dict(known)
    # Threads are enough: Pillow decodes without holding the GIL.
    with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 16)) as pool:
        results = pool.map(lambda name: _verify(layout.image(name), before.get(name)), names)
        for name, result in zip(names, counted(results, "checking images", len(names)), strict=True):
            if result is not None:
                known[name] = result
            yield result
    if known != before:
        cache.store(layout.root, known)


def _verify(file: Path, known: Verified | None) -> Verified | None:
    try:
        stat = file.stat()
        if known is not None and (known.bytes, known.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            return known
        width, height = verify(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        # The file may be good, so no time that would let this answer be remembered.
        return Verified(0, -1, 0, 0, f"it cannot be read: {error.strerror}")
    except JpegError as error:
        return Verified(stat.st_size, stat.st_mtime_ns, 0, 0, str(error))
    return Verified(stat.st_size, stat.st_mtime_ns, width, height, "")


def _sample(layout: Layout, name: str, image: Verified | None, findings: list[SetProblem]) -> UsableImage | None:
    """The sample of a name, or `None` with the reason among the findings."""
    file, annotation_file = layout.image(name), layout.annotation(name)
    if image is None:
        if annotation_file.exists():
            findings.append(_without_image(layout, name))
        else:
            findings.append(SetProblem("image missing", file, "the split names it, but it does not exist"))
        return None
    if image.fault:
        findings.append(SetProblem("image corrupt", file, image.fault))
        return None
    try:
        annotation = parse(annotation_file)
    except FileNotFoundError:
        findings.append(SetProblem("image without annotation", file, f"{annotation_file} does not exist"))
        return None
    except OSError as error:
        findings.append(SetProblem("annotation malformed", annotation_file, f"it cannot be read: {error.strerror}"))
        return None
    except AnnotationError as error:
        findings.append(SetProblem("annotation malformed", annotation_file, str(error)))
        return None
    findings.extend(SetProblem("object malformed", annotation_file, fault) for fault in annotation.faults)
    objects = []
    for one in annotation.objects:
        kind, inside = _within(one, image.width, image.height)
        if kind is not None:
            findings.append(SetProblem(kind, annotation_file, _describe(one, image)))
        if inside is not None:
            objects.append(inside)
    return UsableImage(name, image.width, image.height, image.bytes, objects)


def _within(one: Object, width: int, height: int) -> tuple[Kind | None, Object | None]:
    """What is wrong with a box, and its part within the image, counted from 0.

    One pixel too far is cut without a word: many tools count from 0 or round up.
    """
    left, top, right, bottom = one.x_min - 1, one.y_min - 1, one.x_max, one.y_max
    if left >= right or top >= bottom:
        return "box empty", None
    if right <= 0 or bottom <= 0 or left >= width or top >= height:
        return "box outside image", None
    inside = Object(one.name, max(left, 0), max(top, 0), min(right, width), min(bottom, height))
    farthest = max(-left, -top, right - width, bottom - height)
    return ("box partly outside image" if farthest > 1 else None), inside


def _describe(one: Object, image: Verified) -> str:
    corners = ", ".join(f"{corner:g}" for corner in (one.x_min, one.y_min, one.x_max, one.y_max))
    return f"the box ({corners}) of a {one.name} in an image of {image.width} × {image.height} pixels"
