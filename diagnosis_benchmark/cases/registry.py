"""All cases, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from whyidle.errors import WhyidleError

from . import compounds, controls, device_cases, host_cases, input_cases, run_cases, waste_cases
from .case import Case

_MODULES = (input_cases, waste_cases, device_cases, host_cases, run_cases, compounds, controls)
"""Each has its cases in `CASES`, in the order in which they are run and shown."""

CASES: Mapping[str, Case] = MappingProxyType({case.name: case for module in _MODULES for case in module.CASES})


def cases(names: Collection[str] = (), kinds: Collection[str] = ()) -> list[Case]:
    """Cases by name or by cause, and of the given kinds (`fault`, `compound`, `control`); all by default.

    Raises:
        WhyidleError: there is none of a name.
    """
    for name in names:
        if not any(_is_meant(case, name) for case in CASES.values()):
            causes = {code for case in CASES.values() for code in case.causes}
            near = get_close_matches(name, [*CASES, *sorted(causes)], cutoff=0.75)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise WhyidleError(
                f"unknown case {name!r}.{meant} There are: {', '.join(sorted(causes))}, and cases of each."
            )
    return [
        case
        for case in CASES.values()
        if (not names or any(_is_meant(case, name) for name in names)) and (not kinds or case.kind in kinds)
    ]


def _is_meant(case: Case, name: str) -> bool:
    return name == case.name or name in case.causes
