"""The calibration table: how often promises hold, by cause, and the worst that did not."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..confusion import HitRate
from .judge import FOLLOWED, TWOFOLD, Followed, Promise, Removed

WORST = 10
HEADS = ("advice for", "first advice", "90 % interval holds", "50 % holds", "median error", "upper / lower end, median")


def tables(followed: Sequence[Followed], removed: Sequence[Removed], of_what: str, every: bool = True) -> Iterator[str]:
    """Markdown, a line each.

    Args:
        of_what: what the advice is for, in words.
        every: list them all, and not the worst alone.
    """
    judged = [each for each in followed if each.judged]
    yield from _row(*HEADS)
    yield f"|{'---|' * len(HEADS)}"
    by_cause: dict[str, list[Followed]] = defaultdict(list)
    for each in judged:
        by_cause[f"`{each.cause}`"].append(each)
    for cause, mine in sorted(by_cause.items(), key=lambda of: -len(of[1])):
        yield from _calibration(cause, [_pair(each) for each in mine])
    yield from _calibration("**all**", [_pair(each) for each in judged])
    yield from _calibration("if a line took no time", [(each.promise, each.measured) for each in removed])
    yield ""
    yield from _counted(followed, of_what)
    yield ""
    yield "The worst, promised and measured:"
    yield ""
    yield from _listed(sorted(judged, key=lambda one: -_error(one))[:WORST])
    if every:
        yield ""
        yield "All of them:"
        yield ""
        yield from _listed(sorted(followed, key=lambda one: (one.cause, one.program)))
    if removed:
        yield ""
        yield "If a line took no time:"
        yield ""
        yield from _row("program", "line", "promised", "measured")
        yield "|---|---|---|---|"
        for line in sorted(removed, key=lambda one: one.program):
            held = "" if line.promise.holds(line.measured) else " **no**"
            yield from _row(f"`{line.program}`", _code(line.line), _said(line.promise), f"{line.measured:.2f}{held}")


def _counted(followed: Sequence[Followed], of_what: str) -> Iterator[str]:
    """Refusals and advice to try, of what is advised first; what is judged, of all that was followed."""
    first, judged = [each for each in followed if each.first], [each for each in followed if each.judged]
    tried = [each for each in first if each.to_try]
    missed = [each for each in tried if each.measured is not None and each.measured >= TWOFOLD]
    empty = [each for each in judged if each.is_empty]
    other = [each for each in first if each.measured is None]
    more = sum(not each.first for each in judged)
    further = f", and {more} of their further findings" if more else ""
    yield f"- first advice of {len(first)} {of_what}, {len(judged) - more} of them judged{further}"
    yield (
        f"- advice to try something, without saying that it gains: {len(tried)} of {len(first)}; of these "
        f"{len(missed)} gained twofold or more"
    )
    yield f"- 1.3 times or more promised and less than 1.05 gained: {len(empty)} of {len(judged)}"
    yield f"- without a measurement: {len(other)} ({_why(other)})" if other else "- without a measurement: none"


def _listed(followed: Sequence[Followed]) -> Iterator[str]:
    yield from _row("program", "advice", "followed by", "promised", "measured")
    yield "|---|---|---|---|---|"
    for each in followed:
        yield from _followed(each)


def as_json(followed: Sequence[Followed], removed: Sequence[Removed]) -> dict[str, Any]:
    return {"followed": [asdict(each) for each in followed], "removed": [asdict(each) for each in removed]}


def _calibration(name: str, pairs: Sequence[tuple[Promise, float]]) -> Iterator[str]:
    if not pairs:
        return
    whole, half = (HitRate(sum(holds), len(pairs)) for holds in (
        [promise.holds(measured) for promise, measured in pairs],
        [promise.holds_half(measured) for promise, measured in pairs],
    ))  # fmt: skip
    error = statistics.median(promise.error(measured) for promise, measured in pairs)
    width = statistics.median(promise.width for promise, _ in pairs)
    yield from _row(name, str(len(pairs)), _rate(whole), _rate(half), f"{100 * error:.0f} %", f"{width:.2f}")


def _rate(of: HitRate) -> str:
    low, high = (100 * bound for bound in of.interval)
    return f"{of.hits} of {of.of}, {100 * (of.value or 0):.0f} % ({low:.0f} to {high:.0f})"


def _pair(each: Followed) -> tuple[Promise, float]:
    assert each.promise is not None
    assert each.measured is not None
    return each.promise, each.measured


def _error(each: Followed) -> float:
    promise, measured = _pair(each)
    return promise.error(measured)


def _followed(each: Followed) -> Iterator[str]:
    measured = "n/a" if each.measured is None else f"{each.measured:.2f}"
    promised = "n/a" if each.promise is None else _said(each.promise)
    if each.to_try:
        promised = f"to try: {promised}"
    held = each.promise is not None and each.measured is not None and each.promise.holds(each.measured)
    mark = "" if not each.judged or held else " **no**"
    advice = f"`{each.cause}`, {each.kind or 'other'}: {_code(each.change)}"
    yield from _row(f"`{each.program}`", advice, each.how, promised, measured + mark)


def _said(promise: Promise) -> str:
    return f"{promise.value:.2f} ({promise.low:.2f} to {promise.high:.2f})"


def _why(others: Sequence[Followed]) -> str:
    reasons: dict[str, int] = defaultdict(int)
    for each in others:
        reasons["nothing was measured" if each.how in FOLLOWED else each.how] += 1
    return "; ".join(f"{number} {why}" for why, number in sorted(reasons.items(), key=lambda of: -of[1]))


def _code(text: str, most: int = 70) -> str:
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return short.replace("|", "\\|")


def _row(*cells: str) -> Iterator[str]:
    yield f"| {' | '.join(cells)} |"
