"""What one look at a machine found out about measuring on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["ok", "limited", "missing", "not applicable"]
"""`ok`: measured in full. `limited`: measured in part, or something here will slow a training or its recording down.
`missing`: cannot be measured. `not applicable`: there is nothing of the kind here."""


@dataclass(frozen=True)
class Check:
    group: str
    """What it is about: one of a few headings."""
    name: str
    status: Status
    says: str
    """What was found, with its value, in a sentence."""
    lost: str = ""
    """What is not measured, or goes wrong, because of it."""
    fix: str = ""
    """How to change that; empty where nothing can be done, or need be."""
    values: Mapping[str, float | str | None] = field(default_factory=dict)
    """The figures by themselves, for programs; `None`: not measured."""
