"""The tables, in Markdown: who names what, who stays quiet, what each tool costs, and what its words mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .cost import AddedCost, MedianInterval
from .judge import ALARM, EXACT, FAMILY, NEEDS_GPU, QUIET, SILENT, WRONG
from .registry import OURS
from .result import FAILED, NOT_THERE, CaseResult, better
from .tool import Meaning, Tool, changes

FAULT_LEVELS = (EXACT, FAMILY, SILENT, NEEDS_GPU, WRONG, FAILED)
"""Best first: to be sent to look in the wrong place is worse than nothing."""
CONTROL_LEVELS = (QUIET, NEEDS_GPU, ALARM, FAILED)
LONGEST = 240
"""Letters of a quoted sentence."""


def faults(results: Sequence[CaseResult], tools: Sequence[Tool], skipped: Mapping[str, str]) -> Iterator[str]:
    """Who names what, a row a case."""
    shown = [each for each in results if each.case.causes]
    if not shown:
        return
    yield "## Who names what"
    yield ""
    yield f"| planted | {' | '.join(tool.name for tool in tools)} | lost % |"
    yield "|---|" + "---|" * (len(tools) + 1)
    for result in shown:
        yield f"| {result.case.name} | {' | '.join(_cell(result, tool) for tool in tools)} | {_share(result)} |"
    for level, label in (
        (EXACT, "named the cause"),
        (FAMILY, "named the part of the training only"),
        (WRONG, "named another part"),
        (SILENT, "named nothing"),
        (NEEDS_GPU, "said what it cannot know without a GPU"),
        (FAILED, "failed"),
    ):
        if any(level in result.levels(tool.name) for result in shown for tool in tools):
            yield f"| *{label}* | {' | '.join(_sum(shown, tool, level) for tool in tools)} | |"
    yield ""
    for result in shown:
        for name in better(result, tools, FAULT_LEVELS, OURS.name):
            yield f"- {result.case.name}: {name} did better than whyidle."
    yield from _cannot(shown)
    yield ""
    if skipped:
        yield "Shown to nobody:"
        yield ""
        for why in sorted(set(skipped.values())):
            yield f"- {', '.join(name for name, reason in skipped.items() if reason == why)}: {why}."
        yield ""


def controls(results: Sequence[CaseResult], tools: Sequence[Tool]) -> Iterator[str]:
    """Who stays quiet on healthy trainings."""
    shown = [each for each in results if not each.case.causes]
    if not shown:
        return
    yield "## Healthy trainings"
    yield ""
    yield f"| training | {' | '.join(tool.name for tool in tools)} | not computing % |"
    yield "|---|" + "---|" * (len(tools) + 1)
    for result in shown:
        yield f"| {result.case.name} | {' | '.join(_cell(result, tool) for tool in tools)} | {_share(result)} |"
    for level in (QUIET, NEEDS_GPU, ALARM, FAILED):
        if any(level in result.levels(tool.name) for result in shown for tool in tools):
            yield f"| *{level}* | {' | '.join(_sum(shown, tool, level) for tool in tools)} | |"
    yield ""
    for result in shown:
        for name in better(result, tools, CONTROL_LEVELS, OURS.name):
            yield f"- {result.case.name}: {name} did better than whyidle."
    yield from _cannot(shown)
    yield ""


def costs(found: Sequence[AddedCost], bare_us: Mapping[float, float], rounds: int) -> Iterator[str]:
    """What each adds to a step, at the start and at the end."""
    if not found:
        return
    yield "## What each adds"
    yield ""
    lengths = sorted(bare_us)
    heads = [f"µs a step of {bare_us[each] / 1e3:.2f} ms" for each in lengths]
    yield f"Medians of {rounds} interleaved rounds, against the bare training of each, with where 90 % of bootstrapped"
    yield "medians lie."
    yield ""
    yield f"| | {' | '.join(heads)} | s before the first step | s after the last |"
    yield "|---|" + "---|" * (len(lengths) + 2)
    for cost in found:
        steps = (str(cost.step_us.get(each, "n/a")) for each in lengths)
        yield f"| {cost.tool} | {' | '.join(steps)} | {_seconds(cost.begin_s)} | {_seconds(cost.end_s)} |"
    yield ""


def code(tools: Sequence[Tool]) -> Iterator[str]:
    """Versions, and the lines of code that each asks for."""
    yield "## What each asks for"
    yield ""
    yield "| | version | lines added | replaced | indented | run by |"
    yield "|---|---|---|---|---|---|"
    for tool in tools:
        needed = changes(tool)
        version = tool.version or ("this checkout" if tool is OURS else "as installed")
        yield f"| {tool.name} | {version} | {needed.new} | {needed.gone} | {needed.indented} | {tool.started} |"
    yield ""
    for tool in tools:
        if tool.note:
            yield f"- {tool.name} {tool.note}."
    yield ""


def sentences(results: Sequence[CaseResult], tools: Sequence[Tool]) -> Iterator[str]:
    """Each tool's own sentence for each of its judgements."""
    yield "## What they said"
    yield ""
    yield "| case | tool | judged | in its own words |"
    yield "|---|---|---|---|"
    for result in results:
        for tool in tools:
            for each in result.of(tool.name):
                yield f"| {result.case.name} | {tool.name} | {each.level} | {quoted(each.sentence)} |"
    yield ""


def words(tools: Iterable[Tool]) -> Iterator[str]:
    """How their words are read."""
    yield "## How their words are read"
    yield ""
    yield "| tool | says | names the cause | names the part |"
    yield "|---|---|---|---|"
    for tool in tools:
        for word, meaning in (tool.words or {}).items():
            yield f"| {tool.name} | {word} | {', '.join(sorted(meaning.exact)) or '-'} | {_part(meaning)} |"
    yield ""


def _cannot(results: Iterable[CaseResult]) -> Iterator[str]:
    for tool, why in sorted({each for result in results for each in result.cannot.items()}):
        yield f"- n/a: {tool} {why}."


def _seconds(each: MedianInterval | None) -> str:
    return "n/a" if each is None else f"{each.median:+.2f} [{each.low:+.2f} {each.high:+.2f}]"


def _part(meaning: Meaning) -> str:
    if meaning.needs_gpu:
        return "nothing without a GPU"
    parts = ", ".join(sorted(meaning.families)) or "-"
    return f"{parts} (no alarm)" if meaning.families and not meaning.alarms else parts


def _cell(result: CaseResult, tool: Tool) -> str:
    if tool.name in result.cannot:
        return "n/a"
    counted = result.levels(tool.name)
    if not counted:
        return "-"
    order = [*FAULT_LEVELS, *CONTROL_LEVELS, NOT_THERE]
    several = len(result.of(tool.name)) > 1
    return ", ".join(
        f"{_strong(level)} {count}" if several else _strong(level)
        for level, count in sorted(counted.items(), key=lambda item: order.index(item[0]))
    )


def _strong(level: str) -> str:
    return f"**{level}**" if level in (EXACT, ALARM) else level


def _sum(results: Sequence[CaseResult], tool: Tool, level: str) -> str:
    """Of the runs that were judged."""
    counted: Counter[str] = sum((result.levels(tool.name) for result in results), Counter())
    return f"{counted[level]} of {counted.total() - counted[NOT_THERE]}"


def _share(result: CaseResult) -> str:
    share = result.share
    if share is None:
        return "n/a"
    low, middle, high = (100 * each for each in share)
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


def quoted(sentence: str) -> str:
    flat = " ".join(sentence.split()).replace("|", "/")
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST].rsplit(' ', 1)[0]} …"
