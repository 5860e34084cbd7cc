"""What a command prints of a document."""

from __future__ import annotations

import io

from rich.console import Console

from whyidle.report.document import Document
from whyidle.report.render import print_document


def rendered(document: Document, width: int = 80, encoding: str = "utf-8") -> str:
    """On so many columns and without colours. Fails where the encoding lacks a sign of it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    print_document(document, Console(file=file, width=width, highlight=False, color_system=None))
    file.seek(0)
    return file.read()
