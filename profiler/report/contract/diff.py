"""The JSON of `whyidle diff`. Intervals (`Estimate`) are of 95 %; changes are B less A."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from ...analyse.diff.because import MovedFigure
from ...analyse.diff.difference import Difference, FollowedAdvice
from ...analyse.diff.lines import MovedLine
from ...analyse.diff.settings import Setting, Value, rates
from ...analyse.diff.sides import Side
from ...analyse.diff.times import Changed
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


class ChangeJson(Struct, kw_only=True):
    """A part of the time on both sides, µs per `unit`."""

    a: Estimate
    b: Estimate
    change: Estimate
    significant: bool


class PartChangeJson(ChangeJson):
    part: str


class SpeedupJson(Struct):
    """How many times as fast B is as A."""

    value: float
    low: float | None
    high: float | None
    significant: bool
    of_these_runs: Estimate
    """The same, if these runs stood for their settings: by the scatter of their own steps alone."""


class SettingJson(Struct):
    """A setting, or a property of the environment, on each side."""

    name: str
    a: Value
    """`null`: not recorded."""
    b: Value
    explains: tuple[str, ...]
    """Parts of the time that a change of it can affect."""


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


class BecauseJson(Struct):
    """What explains the change."""

    kind: str
    """`setting`, `environment`, `command`, `code`, `unexplained`, or `none`: no change was shown."""
    part: str | None
    """Of the time: what moved most in the direction of the whole."""
    by: list[SettingJson]
    """Any of these can move it."""
    look_at: tuple[str, ...]
    """Where nothing recorded explains it, or several do."""


class LineChangeJson(Struct, kw_only=True):
    """A line of code whose time surely changed, µs per `unit`."""

    file: str
    """As on side B, like the other words; where that has the line no longer, as on A."""
    line: int
    function: str
    code: str
    """Empty where lines of source are not kept."""
    whose: str
    """`training`: time of the thread that trains; `workers`: of all workers together."""
    a: Estimate
    b: Estimate
    change: Estimate


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
    speedup: SpeedupJson
    total: ChangeJson
    parts: list[PartChangeJson]
    """Those that both sides know."""
    settings: list[SettingJson]
    """Those that changed, are known of one side only, or may differ."""
    environment: list[SettingJson]
    """The same of what is not set."""
    figures: tuple[MovedFigure, ...]
    findings: ChangedFindingsJson
    because: BecauseJson
    notes: tuple[str, ...]
    """What these runs cannot show, a sentence each."""
    promise: FollowedJson | None = None
    """An advice on side A that side B followed; `null` where none was seen to be."""
    lines: list[LineChangeJson] | UnsetType = UNSET
    """Lines of code that surely got slower or faster, five at most, the most first; left out where a run has no stack
    samples."""


def difference(found: Difference) -> DifferenceJson:
    times, terms = found.times, found.times.terms
    faster = times.speedup
    return DifferenceJson(
        a=_side(found.a),
        b=_side(found.b),
        emulated=found.emulated,
        unit=times.unit,
        speedup=SpeedupJson(faster.value, faster.low, faster.high, times.significant, times.within),
        total=_change(terms[TOTAL]),
        parts=[PartChangeJson(part, **asdict(_change(terms[part]))) for part in PARTS if part in terms],
        settings=_settings([each for each in found.settings if each.told]),
        environment=_settings([each for each in found.environment if each.told]),
        figures=found.figures,
        findings=ChangedFindingsJson(
            appeared=[cause(each) for each in found.findings.appeared],
            vanished=[cause(each) for each in found.findings.vanished],
            stayed=[StayedJson(b.cause, cause(a), cause(b)) for a, b in found.findings.stayed],
        ),
        because=BecauseJson(found.because.kind, found.because.part, _settings(found.because.by), found.because.look_at),
        notes=found.notes,
        promise=_followed(found.promise),
        lines=UNSET if found.lines is None else [_line(each) for each in found.lines],
    )


def _followed(told: FollowedAdvice | None) -> FollowedJson | None:
    if told is None:
        return None
    return FollowedJson(told.cause, next_of(told.change), told.is_set, told.measured, told.kept)


def _line(moved: MovedLine) -> LineChangeJson:
    call = moved.call
    return LineChangeJson(
        file=call.file,
        line=call.line,
        function=call.function,
        code=call.text,
        whose=moved.whose,
        a=moved.a,
        b=moved.b,
        change=moved.change,
    )


def _side(side: Side) -> SideJson:
    info, device = side.info, side.info.get("device") or {}
    of_runs = rates(side)
    return SideJson(
        runs=side.folders,
        id=info.get("id"),
        command=info.get("command"),
        started_at=info.get("started_at"),
        device=DeviceJson(side.typical.device_kind, device.get("title") or device.get("name")),
        stand_in=(info.get("dataset") or {}).get("stand_in"),
        batch_size=side.facts.batch_size,
        ranks=side.typical.ranks,
        steps=side.steps,
        samples_per_s=sum(of_runs) / len(of_runs) if of_runs else None,
        verdict=side.typical.analysis.verdict.cause,
    )


def _change(term: Changed) -> ChangeJson:
    return ChangeJson(a=term.a, b=term.b, change=term.change, significant=term.significant)


def _settings(found: Sequence[Setting]) -> list[SettingJson]:
    return [SettingJson(each.name, each.a, each.b, each.explains) for each in found]
