"""Which rules are asked why a part of the time per sample grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import input_rules, step_rules
from .compared import Compared
from .mechanism import Last, Mechanism, Rule

RULES: Mapping[str, tuple[Sequence[Rule], Last]] = {
    "compute": (step_rules.COMPUTE_RULES, step_rules.kernels),
    "input": (input_rules.RULES, input_rules.loader_floor),
    "copy": (step_rules.COPY_RULES, step_rules.copying),
    "sync": ((), step_rules.waits),
    "host": (step_rules.HOST_RULES, step_rules.own_work),
    "boundary": ((), step_rules.outside),
}
"""Part → its rules, and what is said where none of them finds anything."""


def mechanism_of(compared: Compared) -> Mechanism | None:
    """Why the part that grew did so: the first rule that finds evidence; `None` where no part grew."""
    if compared.grew is None:
        return None
    rules, otherwise = RULES[compared.grew]
    return next((found for rule in rules if (found := rule(compared)) is not None), None) or otherwise(compared)
