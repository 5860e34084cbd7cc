"""A snapshot as JSON: what the live view shows, for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...analyse.recent.snapshot import Snapshot


def content(view: Snapshot) -> dict[str, Any]:
    """Keys as in `analyse/recent/snapshot.py`. Not measured: `null`, in a series NaN, which JSON has as `null`."""
    return {"format": "whyidle-live", "version": 1, **asdict(view)}
