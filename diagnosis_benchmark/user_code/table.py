"""The tables of docs/measurements: each program with what the report said, and how often that was right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from whyidle.analyse.statistics import wilson

from .cases import HALVES, UserProgram
from .judge import Answer

RATES = {
    "cause first": "cause_first",
    "cause among the findings": "cause_named",
    "line first": "line_first",
    "line among the first three": "line_named",
    "first remedy of the right kind": "remedy_first",
    "fixed form quiet about the cause": "quiet",
}


def tables(results: Sequence[tuple[UserProgram, Answer, float | None]]) -> Iterator[str]:
    """Markdown, a line each. `results`: each program, the judgement, and what its mend gained by its own clock."""
    for half in HALVES:
        mine = [result for result in results if result[0].half == half]
        if not mine:
            continue
        yield f"### Programs written {half} the rules"
        yield ""
        for what, name in RATES.items():
            yield f"- {what}: {_rate([getattr(each, name) for _, each, _ in mine])}"
        yield ""
        yield "| program | true cause | named first | line named first | remedy, true and named | fixed form | gain |"
        yield "|---|---|---|---|---|---|---|"
        for program, each, gain in mine:
            yield _row(program, each, gain)
        yield ""


def _row(program: UserProgram, each: Answer, gain: float | None) -> str:
    cells = (
        f"{program.title} (`{program.name}`)",
        " or ".join(f"`{cause}`" for cause in program.causes),
        f"{_sign(each.cause_first)} `{each.cause or 'none possible'}`",
        f"{_sign(each.line_first)} {_code(each.line)}",
        f"{_sign(each.remedy_first)} {program.remedy}, {each.remedy or '-'}",
        f"{_sign(each.quiet)} `{each.fixed_cause or 'none possible'}`",
        "n/a" if gain is None else f"{gain:.1f}x",
    )
    return f"| {' | '.join(cells)} |"


def _rate(right: Sequence[bool | None]) -> str:
    known = [each for each in right if each is not None]
    if not known:
        return "n/a"
    hits = sum(known)
    share = wilson(hits / len(known), len(known))
    return (
        f"{hits} of {len(known)} ({100 * hits / len(known):.0f} %, 95 % interval {100 * share.low:.0f} to "
        f"{100 * share.high:.0f})" + (f"; {len(right) - len(known)} have no report" if len(known) < len(right) else "")
    )


def _sign(right: bool | None) -> str:
    return {True: "yes", False: "**no**", None: "n/a"}[right]


def _code(line: str) -> str:
    return f"`{line.replace('|', chr(92) + '|').replace('`', chr(39))}`" if line else "none"
