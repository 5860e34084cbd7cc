"""What the published tables are made of: each program with what the reports said, and how often that was right.

Every figure is of one half of the programs: those that the rules were developed on, or those that they had never
seen. A total of both would say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..confusion import HitRate
from ..faults import hit_rate
from .cases import HALVES, UserProgram
from .judge import Answer, costs_nothing

RATES = {
    "cause first": "cause_first",
    "cause among the findings": "cause_named",
    "line first": "line_first",
    "line among the first three": "line_named",
    "first remedy of the right kind": "remedy_first",
    "fixed form without the cause above `minor`": "quiet",
}
"""Title → the field of an answer."""


@dataclass(frozen=True)
class ProgramResult:
    """A program, and how the reports of its runs do."""

    program: UserProgram
    answers: Sequence[Answer]
    """One a round."""
    gain: float | None
    """Throughput of the fixed form over that of the broken one, by their own clocks; `None`: not measured."""


def as_json(results: Sequence[ProgramResult]) -> dict[str, Any]:
    """Rates and programs by half; `null` is what no report tells."""
    return {
        half: {
            "rates": {name: hit_rate(_rate(mine, name)) for name in RATES.values()},
            "programs": [_program(each) for each in mine],
        }
        for half, mine in _halves(results).items()
    }


def tables(results: Sequence[ProgramResult]) -> Iterator[str]:
    """Markdown, a line each."""
    for half, mine in _halves(results).items():
        yield f"### Programs written {HALVES[half]}"
        yield ""
        for what, name in RATES.items():
            yield f"- {what}: {_said(mine, name)}"
        yield ""
        yield "| program | true cause | named first | line named first | remedy, true and named | fixed form | gain |"
        yield "|---|---|---|---|---|---|---|"
        for each in mine:
            yield _row(each)
        yield ""


def _halves(results: Sequence[ProgramResult]) -> Mapping[str, list[ProgramResult]]:
    """Without a half of which nothing was run."""
    of = {half: [each for each in results if each.program.half == half] for half in HALVES}
    return {half: mine for half, mine in of.items() if mine}


def _program(each: ProgramResult) -> dict[str, Any]:
    return {
        "program": each.program.name,
        "title": each.program.title,
        "source": each.program.source,
        "causes": list(each.program.causes),
        "lines": sorted(each.program.numbers),
        "remedies": list(each.program.remedies),
        "gain": each.gain,
        "runs": [asdict(answer) for answer in each.answers],
    }


def _row(each: ProgramResult) -> str:
    program, gain = each.program, each.gain
    cells = (
        f"{program.title} (`{program.name}`)",
        " or ".join(f"`{cause}`" for cause in program.causes),
        _cause(each),
        f"{_sign(each, 'line_first')} {_code(_commonest(each, 'line'))}",
        f"{_sign(each, 'remedy_first')} {program.remedy}, {_commonest(each, 'remedy') or '-'}",
        f"{_sign(each, 'quiet')} `{_commonest(each, 'fixed_cause') or 'none possible'}`",
        "n/a" if gain is None else f"{gain:.1f}x",
    )
    return f"| {' | '.join(cells)} |"


def _cause(each: ProgramResult) -> str:
    if all(costs_nothing(answer.cost) for answer in each.answers):
        return "not judged: the fault cost nothing here"
    return f"{_sign(each, 'cause_first')} `{_commonest(each, 'cause') or 'none possible'}`"


def _said(results: Sequence[ProgramResult], name: str) -> str:
    rate = _rate(results, name)
    if not rate.of:
        return "n/a"
    low, high = (100 * limit for limit in rate.interval)
    untold = [answer for each in results for answer in each.answers if getattr(answer, name) is None]
    idle = sum(costs_nothing(answer.cost) for answer in untold)
    missing = f"; in {idle} the fault cost nothing" if idle else ""
    missing += f"; {len(untold) - idle} have no report" if len(untold) > idle else ""
    share = f"{100 * rate.hits / rate.of:.0f} %, 95 % interval {low:.0f} to {high:.0f}"
    return f"{rate.hits} of {rate.of} ({share}){missing}"


def _rate(results: Sequence[ProgramResult], name: str) -> HitRate:
    """Of all runs with a report, by a field of their answers."""
    known = [right for each in results for answer in each.answers if (right := getattr(answer, name)) is not None]
    return HitRate(sum(known), len(known))


def _sign(each: ProgramResult, name: str) -> str:
    rate = _rate([each], name)
    if not rate.of:
        return "n/a"
    if 0 < rate.hits < rate.of:
        return f"**{rate.hits} of {rate.of}**"
    return "yes" if rate.hits else "**no**"


def _commonest(each: ProgramResult, name: str) -> str:
    """What most rounds said; empty where none said anything."""
    told = Counter(said for answer in each.answers if (said := getattr(answer, name)))
    return told.most_common(1)[0][0] if told else ""


def _code(line: str) -> str:
    return f"`{line.replace('|', chr(92) + '|').replace('`', chr(39))}`" if line else "none"
