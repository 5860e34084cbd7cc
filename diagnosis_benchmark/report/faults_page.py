"""Planted faults as a page: what was planted against what was named, and how far the shares were off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whyidle.report.page.frame import render
from whyidle.report.render.html import page_sections

from ..confusion import Confusion
from . import faults_text

MOST_HOT = 70
"""Percent of the colour in a full square: its figure stays readable."""


@dataclass(frozen=True)
class MatrixSquare:
    runs: int
    hot: int
    right: bool


@dataclass(frozen=True)
class MatrixRow:
    planted: str
    runs: int
    squares: tuple[MatrixSquare | None, ...]
    """A column each; `None`: never named."""


def page(result: Confusion, setting: Mapping[str, Any], failed: Sequence[tuple[str, str, str]]) -> str:
    """The whole page. `failed`: (case, status, why) of the cases that were not judged."""
    document = faults_text.document(result, setting, failed)
    return render(
        "faults.html.j2",
        title=document.title,
        styles=("table.css",),
        scripts=("table.js",),
        summary=faults_text.summary(result),
        columns=result.columns,
        rows=rows(result),
        sections=[each for each in page_sections(document.blocks) if each.title not in ("", faults_text.TOGETHER)],
    )


def rows(result: Confusion) -> list[MatrixRow]:
    """The matrix, coloured by the share of a row's runs."""
    made = []
    for planted, named in result.matrix.items():
        runs = sum(named.values())
        squares = tuple(
            MatrixSquare(named[column], round(MOST_HOT * named[column] / runs), column == planted)
            if column in named
            else None
            for column in result.columns
        )
        made.append(MatrixRow(planted, runs, squares))
    return made
