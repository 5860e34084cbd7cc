"""What is said of cells of a comparison, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from support.cells import NET_SETTING
from support.rendered import rendered
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.report.contract import comparison as compare_json
from whyidle.report.documents.comparison import comparison_document


def printed(cells: Sequence[Cell], width: int = 80, **more: Any) -> str:
    """`more` is of the comparison's setting."""
    return rendered(comparison_document(compare(cells), NET_SETTING | more), width)


def words(text: str) -> str:
    """In one line."""
    return " ".join(text.split())


def rows_of(text: str) -> list[list[str]]:
    """Its words, line by line."""
    return [line.split() for line in text.splitlines()]


def content(cells: Sequence[Cell], **more: Any) -> dict[str, Any]:
    """The JSON."""
    found: dict[str, Any] = json.loads(json.dumps(compare_json.comparison(compare(cells), NET_SETTING | more)))
    return found
