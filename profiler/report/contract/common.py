"""What several kinds of result tell alike in JSON: a cause, and a device."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ...analyse.causes.finding import Evidence, Finding, Next
from ...analyse.speedup import Speedup
from ...analyse.where.places import Where
from ...analyse.where.stage_shares import StageShare


class DeviceJson(Struct):
    kind: str | None
    """`cuda`, `cpu` or `emulated`; `null` where that could not be read."""
    name: str | None


class PromisedJson(Struct):
    """The rate of a training over what it is, with an interval of 90 %."""

    value: float
    low: float
    high: float


class NextJson(Struct):
    """A change to make, and the samples/s that it may bring."""

    change: str
    predicted_samples_per_s: float | None
    low: float | None
    """`null` wherever `high` is: without a most, today's rate alone is no range."""
    high: float | None
    kind: str | UnsetType = UNSET
    """What kind of change it is: `workers`, `once`, `less_often` …; left out where it is none of these."""
    speedup: PromisedJson | UnsetType = UNSET
    """The same over today's rate; left out where nothing supports a prediction."""
    to_try: bool | UnsetType = UNSET
    """`true`: the run does not show that anything is gained; left out otherwise."""
    settings: dict[str, Any] | UnsetType = UNSET
    """Arguments of torch's DataLoader to set, where that is all of it; left out otherwise."""


class WhereJson(Struct):
    """A line of code in which the time was spent."""

    file: str
    line: int
    function: str
    code: str
    """The line as it was when it ran; empty where lines of source are not kept."""
    share_pct: float | None
    """Percent of the time named in `of`; `null` for a line named for another reason: it creates a loader."""
    samples: int
    """Stack samples in it."""
    calls: str
    """The innermost function of a library that it was in, most often."""
    of: str
    """The time that the share is of, in words."""
    without: PromisedJson | UnsetType = UNSET
    """Gain if the line took no time; left out where the run does not show it."""


class StageJson(Struct):
    """A stage of preparing batches or of handing them over."""

    stage: str
    """`open`, `read`, `decompress`, `parse`, `decode`, `table`, `tokenise`, `transform`, `collate`, `import`, `lock`,
    `wait`, `sample` (the data set's own code); of handing over `pickle`, `share`, `send`, `receive`, `map`, `unpickle`,
    `pin`; or `other`: those too small to be told."""
    name: str
    """Which transform; of the data set's own code the function; else empty."""
    share_pct: float
    """Percent of the time named in `of`; the stages sum to 100."""
    low_pct: float
    """With `high_pct` its 95 % interval."""
    high_pct: float
    samples: int
    """Stack samples in it."""
    calls: str
    """The innermost function of a library that it was in, most often."""
    file: str | None
    """With `line`, `function` and `code` the innermost line of the program's own that it was in, most often."""
    line: int | None
    function: str | None
    code: str | None
    of: str
    """The time that the share is of, in words."""


class CauseJson(Struct):
    """A cause that explains a part of the time."""

    cause: str | None
    """One of the causes' codes; `null`: no verdict, for the reason that is the title."""
    title: str
    share_pct: float | None
    """Of the wall time: the exposed idle time of the device that it explains."""
    severity: str
    """`none`, `minor`, `major` or `critical`, by what removing it would gain."""


class FindingJson(CauseJson):
    """A cause with its evidence and what to change."""

    confidence: float | None
    """0 to 1."""
    evidence: tuple[Evidence, ...]
    next: list[NextJson]
    where: list[WhereJson] | UnsetType = UNSET
    """The lines that took most of the time, three at most, then the line that creates the loader; left out where no
    stack sample shows one."""
    stages: list[StageJson] | UnsetType = UNSET
    """Stages of preparing a batch, or of handing it over, the largest first; left out where the finding is not about
    that, or there are too few stack samples."""


def cause(found: Finding) -> CauseJson:
    return CauseJson(found.cause, found.title, 100 * found.share, found.severity)


def finding(found: Finding, of_none: float | None = None) -> FindingJson:
    """`of_none`: share and confidence where there is no verdict."""
    known = found.cause is not None
    return FindingJson(
        found.cause,
        found.title,
        100 * found.share if known else of_none,
        found.severity,
        found.confidence if known else of_none,
        found.evidence,
        [next_of(each) for each in found.next],
        [_where(each) for each in found.where] or UNSET,
        UNSET if found.stages is None else [_stage(each, found.stages.time) for each in found.stages.parts],
    )


def _where(line: Where) -> WhereJson:
    share = None if line.share is None else 100 * line.share
    gone = UNSET if line.without is None else _speedup(line.without)
    return WhereJson(line.file, line.line, line.function, line.code, share, line.samples, line.calls, line.time, gone)


def _speedup(times: Speedup) -> PromisedJson:
    return PromisedJson(times.value, times.low, times.high)


def _stage(part: StageShare, time: str) -> StageJson:
    share, at = part.share, part.at
    return StageJson(
        part.stage,
        part.name,
        100 * share.value,
        100 * share.low,
        100 * share.high,
        part.looks,
        part.calls,
        None if at is None else at.file,
        None if at is None else at.line,
        None if at is None else at.function,
        None if at is None else at.text,
        time,
    )


def next_of(change: Next) -> NextJson:
    low = None if change.high is None else change.low
    return NextJson(
        change.change,
        change.predicted_samples_per_s,
        low,
        change.high,
        change.kind or UNSET,
        UNSET if change.speedup is None else _speedup(change.speedup),
        True if change.speedup is not None and change.speedup.to_try else UNSET,
        dict(change.settings) or UNSET,
    )
