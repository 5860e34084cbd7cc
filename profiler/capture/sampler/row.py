"""Record bodies from named values."""

from __future__ import annotations

from functools import cache

from ...record.schema import Kind

Row = list[float | int]
"""The fields of one record after `seq`, in order: what `RecordWriter.append` takes."""

_I8_LIMIT = 2**63


def row(kind: Kind, **values: float | None) -> Row:
    """A record of which `values` were measured. `None`, and what no `i8` can hold, stays not measured.

    NVML marks an absent memory figure with 2^64 - 1, for instance.
    """
    body = kind.missing()
    places = _places(kind)
    for name, value in values.items():
        place, whole = places[name]
        if value is not None and not (whole and abs(value) >= _I8_LIMIT):
            body[place] = value
    return body


@cache
def _places(kind: Kind) -> dict[str, tuple[int, bool]]:
    """Field → (place in the body, whether it is an `i8`)."""
    return {f.name: (i, f.type == "i8") for i, f in enumerate(kind.fields[1:])}
