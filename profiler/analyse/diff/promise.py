"""Whether what one side was advised was done on the other, and whether that brought what was promised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...record.tuning import LoaderSettings
from ..causes.finding import Finding, Next
from ..statistics import Estimate
from .settings import Setting, other_trainings
from .sides import Side
from .times import Times

OF_LOADER = frozenset(LoaderSettings(1, 1).arguments)
"""Settings that advice on a loader sets."""
GONE = 0.5
"""Of a finding's share, what may be left of it where its cause was mended."""


@dataclass(frozen=True)
class FollowedAdvice:
    """An advice on side A that side B seems to have followed."""

    cause: str
    """That it was for."""
    change: Next
    is_set: bool
    """Whether B was seen to have these settings; else its finding is gone, with no setting of the loader changed."""
    measured: Estimate
    """How many times as fast B is as A."""
    kept: bool | None
    """See `Speedup.kept`."""


def followed_advice(a: Side, b: Side, settings: Sequence[Setting], times: Times) -> FollowedAdvice | None:
    """The first that was followed; `None` without one, and where the sides do not train the same thing."""
    size = next((each for each in settings if each.name == "batch_size"), None)
    if not times.enough or other_trainings(tuple(settings)) or (size is not None and size.changed):
        return None
    of_loader = {each.name: each for each in settings if each.name in OF_LOADER}
    by_settings = any(each.changed for each in of_loader.values())
    left = {found.cause: found.share for found in b.typical.analysis.findings}
    for found, change in _advised(a):
        if change.speedup is None:
            continue
        if by_settings:
            followed = bool(change.settings) and _has(of_loader, change)
        else:
            followed = not change.settings and left.get(found.cause, 0.0) <= GONE * found.share
        if followed:
            kept = change.speedup.kept(times.speedup)
            return FollowedAdvice(found.cause or "", change, by_settings, times.speedup, kept)
    return None


def _advised(side: Side) -> Iterator[tuple[Finding, Next]]:
    yield from ((found, change) for found in side.typical.analysis.findings for change in found.next)


def _has(settings: dict[str, Setting], change: Next) -> bool:
    """Whether B has all that was advised, and A had not."""
    known = [settings.get(name) for name in change.settings]
    wanted = list(change.settings.values())
    same = all(each is not None and each.b == value for each, value in zip(known, wanted, strict=True))
    return same and any(each is not None and each.changed for each in known)
