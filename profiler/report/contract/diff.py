"""The JSON of `whyidle diff`. Intervals (`Estimate`) are of 95 %; changes are B less A."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from ...analyse.diff.difference import Because, Difference, MovedFigure
from ...analyse.diff.lines import MovedLine
from ...analyse.diff.settings import Setting
from ...analyse.diff.sides import Side
from ...analyse.diff.times import Changed, Faster
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...analyse.statistics import Estimate
from .common import CauseJson, DeviceJson, NextJson, cause, next_of


class SideJson(Struct):
    """Runs of one setting. Other keys describe the typical run, whose throughput is the median."""

    runs: list[str]
    """Their folders."""
    id: str | None
    command: list[str] | None
    started_at: str | None
    device: DeviceJson
    stand_in: str | None
    """Real data that generated ones stood in for; `null` for real data."""
    batch_size: int | None
    """Of one rank."""
    ranks: int
    steps: int
    """Of all runs, after the warm-up."""
    samples_per_s: float | None
    """Mean over the runs."""
    verdict: str | None
    """Code of the cause."""


class PartChangeJson(Struct):
    part: str
    a: Estimate
    """µs per `unit`, as `b` and `change`."""
    b: Estimate
    change: Estimate
    significant: bool


class StayedJson(Struct):
    """A cause that both sides have."""

    cause: str | None
    a: CauseJson
    b: CauseJson


class ChangedFindingsJson(Struct):
    appeared: list[CauseJson]
    """On side B alone."""
    vanished: list[CauseJson]
    """On side A alone."""
    stayed: list[StayedJson]


class FollowedJson(Struct):
    """An advice that was followed, and its measured effect."""

    cause: str
    """That it was for."""
    advice: NextJson
    is_set: bool
    """Whether side B was seen to have the advised settings; else its cause is gone there."""
    measured: Estimate
    """How many times as fast side B is."""
    kept: bool | None
    """Whether that lies in the promised interval; `null`: it does not, but its own interval reaches into that."""


class DifferenceJson(Struct, kw_only=True):
    format: str = "whyidle-diff"
    version: int = 1
    a: SideJson
    b: SideJson
    emulated: bool
    unit: str
    """Unit that times are per: `sample`, or `step` where samples are unknown."""
    speedup: Faster
    total: Changed
    parts: list[PartChangeJson]
    """Those that both sides know."""
    settings: tuple[Setting, ...]
    """Those that changed, are known of one side only, or may differ."""
    environment: tuple[Setting, ...]
    """The same of what is not set."""
    figures: tuple[MovedFigure, ...]
    findings: ChangedFindingsJson
    because: Because
    notes: tuple[str, ...]
    """What these runs cannot show, a sentence each."""
    promise: FollowedJson | None = None
    """An advice on side A that side B followed; `null` where none was seen to be."""
    lines: tuple[MovedLine, ...] | UnsetType = UNSET
    """Lines of code that surely got slower or faster, five at most, the most first; left out where a run has no stack
    samples."""


def difference(found: Difference) -> DifferenceJson:
    times, terms, changed, promise = found.times, found.times.terms, found.findings, found.promise
    return DifferenceJson(
        a=_side(found.a),
        b=_side(found.b),
        emulated=found.emulated,
        unit=times.unit,
        speedup=times.speedup,
        total=terms[TOTAL],
        parts=[
            PartChangeJson(part, term.a, term.b, term.change, term.significant)
            for part in PARTS
            if (term := terms.get(part)) is not None
        ],
        settings=found.settings,
        environment=found.environment,
        figures=found.figures,
        findings=ChangedFindingsJson(
            appeared=[cause(each) for each in changed.appeared],
            vanished=[cause(each) for each in changed.vanished],
            stayed=[StayedJson(b.cause, cause(a), cause(b)) for a, b in changed.stayed],
        ),
        because=found.because,
        notes=found.notes,
        promise=None
        if promise is None
        else FollowedJson(promise.cause, next_of(promise.change), promise.is_set, promise.measured, promise.kept),
        lines=UNSET if found.lines is None else found.lines,
    )


def _side(side: Side) -> SideJson:
    info, device, rates = side.info, side.info.get("device") or {}, side.rates
    return SideJson(
        runs=side.folders,
        id=info.get("id"),
        command=info.get("command"),
        started_at=info.get("started_at"),
        device=DeviceJson(side.facts.device_kind, device.get("title") or device.get("name")),
        stand_in=(info.get("dataset") or {}).get("stand_in"),
        batch_size=side.facts.batch_size,
        ranks=side.typical.ranks,
        steps=side.steps,
        samples_per_s=sum(rates) / len(rates) if rates else None,
        verdict=side.typical.analysis.verdict.cause,
    )
