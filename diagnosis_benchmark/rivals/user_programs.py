"""Programs with a fault in their own code given to whyidle and other tools: who names the cause, who the line.

One form is run, the broken one. A tool's words are judged as those about planted faults are, its lines by the program's
truth: the first line of any of its rankings counts as its first.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..confusion import HitRate
from ..execute import execute
from ..faults import hit_rate
from ..user_code.cases import BROKEN, HALVES, UserProgram
from .judge import EXACT, FAMILY, NEEDS_GPU, SILENT, WRONG, level
from .program_tools import MOST_LINES, ProgramTool, SaidOfProgram
from .result import FAILED
from .tables import quoted

RECORD = "run.json"
NO_CAUSES = "names no causes"
LONGEST_S = 400.0
"""Tools that look closely slow a program of 20 s down several times over."""
ANYWHERE = {"input", "host"}
"""Parts in which a fault of the whole run (`run.startup`, `run.slowing`) may lie, or a stage behind the loader."""
RATES: Mapping[str, str] = {
    "named the cause": "exact",
    "named the cause, or the part of the training it is in": "part",
    "line first": "line_first",
    f"line among the first {MOST_LINES}": "line_named",
}
"""Title → key of the JSON."""


@dataclass(frozen=True)
class ProgramJudgement:
    """What one tool made of one run."""

    tool: str
    level: str
    """Of the cause, as of planted faults; or that the tool names none."""
    line_first: bool | None
    """`None`: it names no lines, or failed."""
    line_named: bool | None
    """Whether it is among the first three."""
    sentence: str
    seconds: float
    """That the first command took."""


def place(folder: Path, program: UserProgram, tool: ProgramTool, repeat: int) -> Path:
    return folder / "programs" / program.name / f"{tool.name}-{repeat}"


def measure(
    programs: Sequence[UserProgram],
    tools: Sequence[ProgramTool],
    repeats: int,
    folder: Path,
    python: Path,
    order: random.Random,
    tell: Callable[[str], None],
) -> None:
    """Run each program under each tool; what has been run already is left as it is."""
    for repeat in range(repeats):
        for program in order.sample(programs, len(programs)):
            for tool in order.sample(tools, len(tools)):
                at = place(folder, program, tool, repeat)
                if not (at / RECORD).exists():
                    seconds = _run(tool, program.program(BROKEN), at, python)
                    tell(f"{program.name}: {tool.name}, {seconds:.1f} s")


def _run(tool: ProgramTool, program: Path, at: Path, python: Path) -> float:
    """The seconds of the first command."""
    at.mkdir(parents=True, exist_ok=True)
    codes, seconds = [], []
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    for number, command in enumerate(tool.commands(python, program)):
        begin = time.monotonic()
        codes.append(execute(command, at, at / f"output-{number}.txt", environment, longest_s=LONGEST_S))
        seconds.append(time.monotonic() - begin)
        if codes[-1]:
            break
    # Last, so that a run that was interrupted is made anew.
    (at / RECORD).write_text(json.dumps({"exit_codes": codes, "seconds": seconds}))
    return seconds[0]


def judgements(folder: Path, program: UserProgram, tools: Sequence[ProgramTool]) -> list[ProgramJudgement]:
    """Of all runs of a program that the folder has."""
    found = []
    for tool in tools:
        repeat = 0
        while (place(folder, program, tool, repeat) / RECORD).exists():
            found.append(_judgement(tool, program, place(folder, program, tool, repeat)))
            repeat += 1
    return found


def _judgement(tool: ProgramTool, program: UserProgram, at: Path) -> ProgramJudgement:
    record = json.loads((at / RECORD).read_text())
    seconds = record["seconds"][0]
    if any(record["exit_codes"]):
        return _failed(tool, f"exit code {record['exit_codes'][-1]}", seconds)
    try:
        said = tool.read(at, program.program(BROKEN))
        return judged(tool, said, program, seconds)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return _failed(tool, f"unreadable: {error!r}", seconds)


def _failed(tool: ProgramTool, why: str, seconds: float) -> ProgramJudgement:
    return ProgramJudgement(tool.name, FAILED, None, None, why, seconds)


def judged(tool: ProgramTool, said: SaidOfProgram, program: UserProgram, seconds: float) -> ProgramJudgement:
    """The best that can be made of what a tool said about the broken form of a program."""
    right = NO_CAUSES
    if tool.meaning is not None:
        right = level([tool.meaning(word) for word in said.words], program.causes, parts_of(program))
    first = named = None
    if tool.names_lines:
        first = any(line in program.numbers for ranking in said.rankings for line in ranking[:1])
        named = any(line in program.numbers for ranking in said.rankings for line in ranking[:MOST_LINES])
    return ProgramJudgement(tool.name, right, first, named, said.sentence, seconds)


def parts_of(program: UserProgram) -> set[str]:
    """The parts of the training that the fault is in."""
    parts = {cause.partition(".")[0] for cause in program.causes}
    return parts | (ANYWHERE if "run" in parts or "input.main_process" in program.causes else set())


@dataclass(frozen=True)
class ProgramRuns:
    """A program, and what each tool made of it."""

    program: UserProgram
    judgements: Sequence[ProgramJudgement]

    def of(self, tool: ProgramTool) -> list[ProgramJudgement]:
        return [each for each in self.judgements if each.tool == tool.name]


def as_json(found: Sequence[ProgramRuns], tools: Sequence[ProgramTool]) -> dict[str, Any]:
    """By half; there is no total of both."""
    return {
        half: {
            "rates": {
                tool.name: {
                    key: hit_rate(rate) for key in RATES.values() if (rate := _rate(mine, tool, key)) is not None
                }
                for tool in tools
            },
            "programs": [
                {
                    "program": each.program.name,
                    "causes": list(each.program.causes),
                    "lines": sorted(each.program.numbers),
                    "runs": [asdict(judgement) for judgement in each.judgements],
                }
                for each in mine
            ],
        }
        for half, mine in _halves(found).items()
    }


def markdown(found: Sequence[ProgramRuns], tools: Sequence[ProgramTool]) -> Iterator[str]:
    """Markdown, a line each."""
    for half, mine in _halves(found).items():
        yield f"## Programs written {HALVES[half]} of whyidle"
        yield ""
        yield f"| program | true cause | {' | '.join(tool.name for tool in tools)} |"
        yield "|---|---|" + "---|" * len(tools)
        for each in mine:
            causes = " or ".join(f"`{cause}`" for cause in each.program.causes)
            yield f"| {each.program.name} | {causes} | {' | '.join(_cell(each, tool) for tool in tools)} |"
        for title, key in RATES.items():
            yield f"| *{title}* | | {' | '.join(_said(_rate(mine, tool, key)) for tool in tools)} |"
        yield ""
    yield "## What they said"
    yield ""
    yield "| program | tool | cause | line | in its own words |"
    yield "|---|---|---|---|---|"
    for each in found:
        for one in each.judgements:
            yield f"| {each.program.name} | {one.tool} | {one.level} | {_line(one)} | {quoted(one.sentence)} |"
    yield ""
    for tool in tools:
        yield f"- {tool.name} {tool.version or '(this checkout)'}: {tool.started}"


def _halves(found: Sequence[ProgramRuns]) -> Mapping[str, list[ProgramRuns]]:
    of = {half: [each for each in found if each.program.half == half] for half in HALVES}
    return {half: mine for half, mine in of.items() if mine}


def _rate(found: Sequence[ProgramRuns], tool: ProgramTool, key: str) -> HitRate | None:
    """Of all runs of a tool, those that failed included; `None` where it does not set out to name such a thing."""
    runs = [judgement for each in found for judgement in each.of(tool)]
    if key in ("exact", "part"):
        good = {EXACT} if key == "exact" else {EXACT, FAMILY}
        # What is said for want of a GPU alone counts neither way.
        counted = [each for each in runs if each.level != NEEDS_GPU]
        return None if tool.meaning is None else HitRate(sum(each.level in good for each in counted), len(counted))
    return HitRate(sum(bool(getattr(each, key)) for each in runs), len(runs)) if tool.names_lines else None


def _said(rate: HitRate | None) -> str:
    if rate is None or not rate.of:
        return "n/a"
    low, high = (100 * limit for limit in rate.interval)
    return f"{rate.hits} of {rate.of} ({low:.0f} to {high:.0f} %)"


_ORDER = (EXACT, FAMILY, NO_CAUSES, SILENT, NEEDS_GPU, WRONG, FAILED)


def _cell(each: ProgramRuns, tool: ProgramTool) -> str:
    runs = each.of(tool)
    if not runs:
        return "-"
    best = min(runs, key=lambda run: _ORDER.index(run.level))
    cause = "" if best.level == NO_CAUSES else f"**{EXACT}**" if best.level == EXACT else best.level
    known = [run for run in runs if run.line_first is not None]
    first, named = (sum(getattr(run, name) for run in known) for name in ("line_first", "line_named"))
    lines = ""
    if known:
        lines = "**line**" if first == len(known) else f"line in {first} of {len(known)}" if first else "another line"
        lines += f" (right among {MOST_LINES})" if named and not first else ""
    return ", ".join(filter(None, (cause, lines)))


def _line(one: ProgramJudgement) -> str:
    if one.line_first is None:
        return "-"
    return "first" if one.line_first else f"among {MOST_LINES}" if one.line_named else "no"
