"""From results, as structures and mappings, to what `json` takes; here alone NaN turns into null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, to_builtins

Content = Struct | Mapping[str, Any]
"""What is written as a JSON object. A mapping has keys that the contract does not name, such as those of axes."""


def builtins(content: Content) -> dict[str, Any]:
    """As objects, lists and values of JSON, which has neither NaN nor infinity: they are `null`."""
    told: dict[str, Any] = _finite(to_builtins(content, str_keys=True, enc_hook=_number))
    return told


def beside(known: Mapping[str, Any], content: Struct) -> dict[str, Any]:
    """One object of keys that the contract does not name, and of those that it does."""
    return {**known, **builtins(content)}


def _number(value: object) -> float:
    """numpy's floats are floats."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be written as JSON")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and value - value != 0 else value
