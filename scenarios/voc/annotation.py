"""Reads the annotation of one image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Never
from xml.etree import ElementTree


class AnnotationError(Exception):
    """An annotation, or an object in one, cannot be understood; the message says why."""


@dataclass(frozen=True)
class Object:
    """One object as annotated: corners in pixels counted from 1, both ends part of the box."""

    name: str
    x_min: float
    y_min: float
    x_max: float
    y_max: float


@dataclass(frozen=True)
class Annotation:
    objects: list[Object]
    faults: list[str]
    """Why the objects that are not in `objects` could not be understood."""


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Refuses a document type, and with it every entity a file could define or fetch."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> Never:
        raise AnnotationError("it has a DOCTYPE, which VOC annotations never have")


def parse(file: Path) -> Annotation:
    """The annotation in `file`.

    Raises:
        AnnotationError: it is not XML, or not an annotation.
        OSError: it cannot be read.
    """
    try:
        root = ElementTree.fromstring(file.read_bytes(), ElementTree.XMLParser(target=_WithoutDoctype()))
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # the last two: encodings Python cannot read
        raise AnnotationError(f"it is not well-formed XML: {error}") from error
    if root.tag != "annotation":
        raise AnnotationError(f"its root is <{root.tag}>, not <annotation>")
    objects, faults = [], []
    for element in root.findall("object"):
        try:
            objects.append(_object(element))
        except AnnotationError as error:
            faults.append(str(error))
    return Annotation(objects, faults)


def _object(element: ElementTree.Element) -> Object:
    name = (element.findtext("name") or "").strip()
    if not name:
        raise AnnotationError("an object has no name")
    corners = []
    for corner in ("xmin", "ymin", "xmax", "ymax"):
        text = element.findtext(f"bndbox/{corner}")
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise AnnotationError(f"the {corner} of a {name} is {text!r}, not a number")
        corners.append(value)
    return Object(name, *corners)
