"""The JSON of an advice that was tried: `tune --prove --json`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...record.tuning import LoaderSettings
from ...tune.patch import Patch
from ...tune.prove import Proof
from .common import NextJson, PromisedJson, next_of

FORMAT, VERSION = "whyidle-proof", 1


class ProofJson(Struct, kw_only=True):
    """Promised and measured speed."""

    format: str = FORMAT
    version: int = VERSION
    what: str
    """The command in a line."""
    cause: str | None
    """That the advice is for."""
    advice: NextJson | None
    """`null`: no advice is a setting of the loader."""
    first: bool
    """Whether it is the first advice of the report."""
    baseline: LoaderSettings
    settings: LoaderSettings | None
    measured: PromisedJson | None
    """The rate over that of the training as it is, with an interval of 95 %; `null`: not measured."""
    rounds: int
    kept: bool | None
    """Whether the measured rate lies in the promised interval; `null`: nothing was promised, nothing measured, or it
    does not and its own interval reaches into that."""
    why_not: str
    """Why it was not measured; empty where it was."""
    patch: Patch | None = None
    """The change of the program's source, as in the result of a tuning; `null` where it was not measured to be
    faster."""
    report: Any
    """The verdict that the advice is of, as `report --format json` has it."""


def proof(what: str, told: Proof | None, baseline: LoaderSettings, why_not: str, report: Any) -> ProofJson:
    """`told`: `None` where nothing could be tried, for the reason `why_not`."""
    if told is None:
        return ProofJson(
            what=what, cause=None, advice=None, first=False, baseline=baseline, settings=None, measured=None,
            rounds=0, kept=None, why_not=why_not, report=report,
        )  # fmt: skip
    seen = told.measured
    return ProofJson(
        what=what,
        cause=told.advised.cause,
        advice=next_of(told.advised.change),
        first=told.advised.first,
        baseline=baseline,
        settings=told.advised.settings,
        measured=None if seen is None else PromisedJson(seen.value, seen.low, seen.high),
        rounds=told.rounds,
        kept=told.kept,
        why_not=told.why_not,
        patch=told.patch and told.patch.kept(),
        report=report,
    )
