"""How outputs are laid out where they are kept: JSON by lines, long lists by their sums, pages as outlines."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from support.page_content import Element
from whyidle.report.page.run_page import TYPES

MOST_LISTED = 24
"""Of longer lists of numbers sums are kept, of other lists the begin, the end and a digest."""
MOST_IN_A_LINE = 110
MOST_SIGNS = 120
"""Of longer attributes of a page the begin and a digest are kept."""


def dumped(content: Any) -> str:
    """JSON, with a line for each thing that fits one."""
    return "".join(_lines(content, 0, "")) + "\n"


def _lines(content: Any, depth: int, ending: str) -> Iterator[str]:
    """Lines as of `json.dumps` with an indent, but for what fits a line: that takes one."""
    line = json.dumps(content, ensure_ascii=False, allow_nan=False)
    if not content or not isinstance(content, dict | list) or len(line) <= MOST_IN_A_LINE:
        yield line + ending
        return
    begin, end = "{}" if isinstance(content, dict) else "[]"
    keys = [f"{json.dumps(key, ensure_ascii=False)}: " for key in content] if begin == "{" else [""] * len(content)
    values = list(content.values()) if isinstance(content, dict) else content
    yield begin
    for place, (key, value) in enumerate(zip(keys, values, strict=True), 1):
        yield f"\n{' ' * (depth + 1)}{key}"
        yield from _lines(value, depth + 1, "," if place < len(values) else "")
    yield f"\n{' ' * depth}{end}{ending}"


def shortened(content: Any) -> Any:
    """The same with sums in place of long lists of numbers."""
    if isinstance(content, dict):
        return {key: shortened(each) for key, each in content.items()}
    if isinstance(content, list):
        if len(content) > MOST_LISTED and all(isinstance(each, int | float) or each is None for each in content):
            return _summed(content)
        if len(content) > MOST_LISTED and not any(isinstance(each, int | float) for each in content):
            lines = [json.dumps(each, allow_nan=False) for each in content]
            digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
            return {"items": len(content), "sha256": digest, "first": content[:3], "last": content[-1]}
        return [shortened(each) for each in content]
    return content


def _summed(values: list[Any]) -> dict[str, Any]:
    measured = [(place, float(value)) for place, value in enumerate(values) if value is not None]
    return {
        "numbers": len(values),
        "measured": len(measured),
        "sum": math.fsum(value for _, value in measured),
        "sum_by_place": math.fsum(place * value for place, value in measured),
    }


def column(values: list[str]) -> Any:
    """Of a table: its one value, sums of its numbers, or a digest of its words."""
    present = [value for value in values if value]
    if len(set(present)) <= 1:
        return {"values": len(present), "all": present[0] if present else ""}
    try:
        return _summed([float(value) if value else None for value in values])
    except ValueError:
        digest = hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]
        return {"values": len(present), "sha256": digest, "first": values[:3], "last": values[-1]}


def said_once(content: Any) -> Any:
    """Without the verdicts that are the first finding again."""
    if isinstance(content, list):
        return [said_once(each) for each in content]
    if not isinstance(content, dict):
        return content
    findings = content.get("findings")
    if isinstance(findings, list) and findings and content.get("verdict") == findings[0]:
        content = content | {"verdict": "the first finding"}
    return {key: said_once(each) for key, each in content.items()}


def unpacked(content: Any) -> Any:
    """With arrays that a page packs as lists."""
    if isinstance(content, list):
        return [unpacked(each) for each in content]
    if not isinstance(content, dict):
        return content
    if content.keys() == {"type", "base64"}:
        values = np.frombuffer(base64.b64decode(content["base64"]), dtype=TYPES[content["type"]])
        return {content["type"]: [None if value != value else value for value in values.tolist()]}
    return {key: unpacked(each) for key, each in content.items()}


_BLOCKS = frozenset(
    ("body", "main", "header", "section", "nav", "div", "table", "ul", "ol", "dl", "details", "svg", "g")
)


def outline(element: Element, depth: int) -> Iterator[str]:
    """Lines of an element: those that hold further blocks with a line for each, all others in one line."""
    if element.tag in ("script", "style"):
        yield f"{' ' * depth}<{element.tag}{_attributes(element)}>"
        return
    if element.tag:
        yield f"{' ' * depth}<{element.tag}{_attributes(element)}>"
    for each in element.content:
        if isinstance(each, str):
            if words := " ".join(each.split()):
                yield f"{' ' * (depth + 1)}{words}"
        elif each.tag in _BLOCKS or any(isinstance(inner, Element) for inner in each.content):
            yield from outline(each, depth + 1)
        else:
            yield f"{' ' * (depth + 1)}<{each.tag}{_attributes(each)}> {each.words}".rstrip()


def _attributes(element: Element) -> str:
    kept = ((name, value) for name, value in element.attributes.items() if name != "content" or "sha256-" not in value)
    return "".join(f" {name}={_short(value)!r}" if value else f" {name}" for name, value in kept)


def _short(value: str) -> str:
    if len(value) <= MOST_SIGNS:
        return value
    return f"{value[:60]}… {len(value)} signs, sha256 {hashlib.sha256(value.encode()).hexdigest()[:16]}"
