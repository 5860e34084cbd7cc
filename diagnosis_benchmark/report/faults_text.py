"""Planted faults in words: what was planted, what was named, how far shares were off, what controls heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from whyidle.report.document import (
    Block,
    Document,
    Heading,
    Paragraph,
    Space,
    TableBlock,
    TableColumn,
    Title,
    emulated_device,
    table,
)
from whyidle.report.phrase import Phrase, toned
from whyidle.report.words.figures import NOT_MEASURED, counted

from ..confusion import CLOSE, FIRST_FINDINGS, HEALTHY, CaseSummary, Confusion, Errors, HitRate, JudgedRun

MOST_NAMED = 6
"""Of more cases that one reason kept from being judged, a few are named and the others counted."""
FEW_NAMED = 2
TOGETHER = "Together"


def document(result: Confusion, setting: Mapping[str, Any], failed: Sequence[tuple[str, str, str]]) -> Document:
    """All of it. `failed`: (case, status, why) of the cases that were not judged."""
    return Document(tuple(_blocks(result, setting, failed)))


def _blocks(result: Confusion, setting: Mapping[str, Any], failed: Sequence[tuple[str, str, str]]) -> Iterator[Block]:
    yield Title(head(setting))
    yield emulated_device("no figure of it was measured on a real one.")
    yield Space()
    if result.matrix:
        yield Heading("What was planted, and what was named first")
        yield _matrix(result)
        yield Space()
    shares = [c for c in result.cases if c.planted and not _is_compound(c)]
    if shares:
        yield Heading("What it cost in percent of the time: the truth, and what was reported (medians)")
        yield _shares(shares)
        yield Space()
    compounds = [c for c in result.cases if _is_compound(c)]
    if compounds:
        yield Heading("Two causes at once")
        yield _compounds(compounds)
        yield Space()
    controls = [c for c in result.cases if not c.planted]
    if controls:
        yield Heading("Healthy trainings")
        yield _controls(controls)
        yield Space()
    if failed:
        yield Heading("Not judged")
        yield from _not_judged(failed)
        yield Space()
    yield Heading(TOGETHER)
    yield from (Paragraph(words, 1) for words in summary(result))


def head(setting: Mapping[str, Any]) -> str:
    """What was run, and on what: with one CPU, or a stolen one, a fault may rightly get another name."""
    machine = setting.get("machine") or {}
    said = [f"faults · {counted(setting['cpu_budget'], 'CPU')}"]
    if (cpus := machine.get("cpus")) is not None and cpus != setting["cpu_budget"]:
        said[0] += f" of {cpus}"
    if (load := machine.get("load")) is not None:
        said.append(f"load {load:.1f} before")
    if (steal := machine.get("steal_pct")) is not None:
        said.append(f"{steal:.1f} % stolen")
    said.append(counted(setting["repeats"], "round"))
    if setting.get("foreign_load"):
        said.append("beside a busy process of another session")
    return ", ".join(said)


def ahead(runs: int, run_s: float) -> str:
    """What is about to be run, and how long that takes."""
    if not runs:
        return "nothing to run"
    seconds = runs * run_s
    long = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"{counted(runs, 'run')} of about {run_s:g} s: about {long}"


def outcome(run: JudgedRun) -> str:
    """One run in a line: what was named for what was planted, and how much of the time that cost."""
    planted = " and ".join(run.planted) or "nothing"
    shares = [_of_truth(run, cause) for cause in run.planted]
    if not run.planted:
        shares = [f"{each.cause} {100 * each.share:.1f} %, {each.severity}" for each in run.findings]
    named = run.verdict or "no verdict"
    right = run.named_first and run.named_all if run.planted else run.named_first
    return f"planted {planted}, named {named}{'' if right else ' (wrong)'}" + "".join(f"; {each}" for each in shares)


def _of_truth(run: JudgedRun, cause: str) -> str:
    shares = (run.reported(cause), run.truth.get(cause))
    said, true = (_figure(None if share is None else 100 * share) for share in shares)
    return f"{cause} {said} %, in truth {true} %"


def summary(result: Confusion) -> list[str]:
    """The figures that targets are set for, a line each."""
    lines = []
    if result.faults.of:
        lines.append(f"Faults named first: {rate(result.faults)}")
    if result.errors.close.of:
        lines.append(f"Shares within {CLOSE:g} points of the truth: {rate(result.errors.close)}")
        lines += _distances(result.errors)
    if result.compounds.of:
        lines.append(
            f"Compounds with both causes in the first {FIRST_FINDINGS} findings: {rate(result.compounds)}; "
            f"one of them first: {result.compounds_first.hits} of {result.compounds_first.of}"
        )
    if result.controls.of:
        lines.append(f"Healthy runs without a finding above minor: {rate(result.controls)}")
    return lines or ["Nothing was judged."]


def rate(of: HitRate) -> str:
    """`29 of 30 (96.7 %, 95 % interval 83.3 to 99.4)`"""
    if of.value is None:
        return "none ran"
    low, high = of.interval
    return f"{of.hits} of {of.of} ({100 * of.value:.1f} %, 95 % interval {100 * low:.1f} to {100 * high:.1f})"


def _distances(errors: Errors) -> list[str]:
    if errors.median is None or errors.worst is None:
        return []
    unnamed = f"; {errors.unnamed} not named at all" if errors.unnamed else ""
    return [f"Their distance from the truth: median {errors.median:.1f} points, worst {errors.worst:.1f}{unnamed}"]


def _matrix(result: Confusion) -> TableBlock:
    rows = []
    for planted, named in result.matrix.items():
        runs = sum(named.values())
        # A control with a minor finding is as it should be, and with a foreign load to name that is right.
        cases = [c for c in result.cases if (c.planted or (HEALTHY,)) == (planted,)]
        hits = sum(c.first.hits for c in cases)
        wrong = {name: count for name, count in named.items() if name != planted}
        rows.append(_row(hits == runs, planted, str(runs), str(hits), _counts(wrong)))
    return _table(rows, "", "planted", "runs", "right", "named instead", right=(2, 3))


def _shares(cases: Sequence[CaseSummary]) -> TableBlock:
    # Of one run the median error is the worst, too.
    rounds = any(case.runs > 1 for case in cases)
    heads = ("", "case", "truth", "reported", "off by", *(("worst",) if rounds else ()), "steps")
    rows = []
    for case in cases:
        share = case.shares[0]
        errors = share.errors
        good = errors.close.hits == errors.close.of
        rows.append(
            _row(
                good,
                case.case,
                _figure(share.true_pct),
                _figure(share.reported_pct) if share.reported_pct is not None else "not named",
                _figure(errors.median),
                *((_worst(errors),) if rounds else ()),
                str(case.steps),
            )
        )
    return _table(rows, *heads, right=tuple(range(2, len(heads))))


def _compounds(cases: Sequence[CaseSummary]) -> TableBlock:
    rows: list[Sequence[str | Phrase]] = []
    for case in cases:
        found = f"{case.every.hits} of {case.every.of}"
        good = case.every.hits == case.every.of
        rows.append(_row(good, case.case, "", "", "", found))
        for share in case.shares:
            first = str(case.named.get(share.cause, 0))
            rows.append(("", f"  {share.cause}", _figure(share.true_pct), _figure(share.reported_pct), first, ""))
        for name, count in case.named.items():
            if name not in case.planted:
                unplanted = f"{name}, not planted" if "." in name else name
                rows.append(("", f"  {unplanted}", "", "", str(count), ""))
    heads = ("", "case and its causes", "truth", "reported", "first", "both found")
    return _table(rows, *heads, right=(2, 3, 4, 5))


def _controls(cases: Sequence[CaseSummary]) -> TableBlock:
    rows = []
    for case in cases:
        good = case.first.hits == case.first.of
        figures = (str(case.runs), str(case.first.hits), _counts(case.named), _counts(case.loud))
        rows.append(_row(good, case.case, *figures))
    return _table(rows, "", "control", "runs", "quiet", "verdicts", "findings above minor", right=(2, 3))


def _not_judged(failed: Sequence[tuple[str, str, str]]) -> Iterator[Paragraph]:
    """One line for each reason, with the cases that it hit."""
    hit: dict[tuple[str, str], list[str]] = {}
    for case, status, why in failed:
        hit.setdefault((status, why), []).append(case)
    for (status, why), cases in hit.items():
        named = cases if len(cases) <= MOST_NAMED else cases[:FEW_NAMED]
        more = f" and {len(cases) - len(named)} more" if len(named) < len(cases) else ""
        yield Paragraph(toned(f"{', '.join(named)}{more}: {_reason(status, why)}", "yellow"), 1)


def _reason(status: str, why: str) -> str:
    return why if why.startswith(status) else f"{status}: {why}"


def _table(rows: Iterable[Sequence[str | Phrase]], *heads: str, right: tuple[int, ...]) -> TableBlock:
    last = len(heads) - 1
    first = (TableColumn(name, place in right, wraps=False) for place, name in enumerate(heads[:last]))
    return table(rows, *first, TableColumn(heads[last], last in right, folds=True), indent=1)


def _row(good: bool, *cells: str) -> Sequence[Phrase]:
    """What is not as planted stands out without colours too."""
    return [toned(cell, "" if good else "bold") for cell in ("" if good else "✗", *cells)]


def _counts(named: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in named.items())


def _worst(errors: Errors) -> str:
    if errors.unnamed:
        return f"{errors.unnamed} unnamed"
    return _figure(errors.worst)


def _figure(percent: float | None) -> str:
    return NOT_MEASURED if percent is None else f"{percent:.1f}"


def _is_compound(case: CaseSummary) -> bool:
    return len(case.planted) > 1
