"""The table of causes: every row is planted, recorded, and the only place that lists its code."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golden import singles
from whyidle.analyse.causes.claim import Piece
from whyidle.analyse.causes.diagnosis import CODES, FAMILIES, ORDER, findings_of
from whyidle.analyse.causes.pieces import pieces_of
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.record.run import open_run
from whyidle.scenarios.planted import MS, Step, train
from whyidle_bench.cases.registry import CASES

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "expected"
SOURCES = ("profiler", "scenarios", "diagnosis_benchmark", "benchmarks")


def test_every_cause_is_planted_or_says_why_not() -> None:
    planted = {code for case in CASES.values() for code in case.causes}
    assert planted <= set(CODES)
    # What ranks exchange is known of emulated ones alone, which say it themselves.
    assert {rule.code for rule in ORDER} - {"rank.exchange"} == planted


def test_every_cause_is_the_verdict_or_a_finding_of_a_recording_whose_outputs_are_kept() -> None:
    kept = "".join(file.read_text(encoding="utf-8") for file in GOLDEN.rglob("*.json"))
    assert set(CODES) - set(re.findall(r'"cause": "([a-z_.]+)"', kept)) == set()


@pytest.mark.parametrize("piece", Piece)
def test_every_piece_of_the_time_has_a_cause_that_may_claim_it(piece: Piece) -> None:
    assert any(piece in rule.claims for rule in ORDER)


def test_a_rule_stands_in_one_row() -> None:
    judges = [rule.judge for rule in ORDER if rule.judge is not None]
    assert len(set(judges)) == len(judges)


@pytest.mark.parametrize("folder", SOURCES)
def test_no_code_is_named_that_is_not_in_the_table(folder: str) -> None:
    code = re.compile(rf"({'|'.join(FAMILIES)})\.[a-z_]+")
    named = {
        node.value
        for path in (ROOT / folder).rglob("*.py")
        if path.parts[-2:] != ("diff", "settings.py")  # its words with dots are paths in run.json
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and code.fullmatch(node.value)
    }
    assert named - set(CODES) <= {
        f"{file}.{suffix}" for file in ("rank", "run") for suffix in ("js", "css", "html", "json", "txt")
    }


@pytest.mark.parametrize("ns", [0, 3 * MS, 10**15])
def test_however_much_is_claimed_no_nanosecond_is_explained_twice(tmp_path: Path, ns: int) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=5 * MS)] * 60])
    known = facts_of(open_run(tmp_path / "run"))
    assert known is not None
    odd: Any = SimpleNamespace(compute_ns=ns, host_ns=ns)
    parts = replace(known.parts, garbage_ns=ns, gil_ns=ns)
    facts = replace(known, shape_churn=odd, memory_pressure=odd, parts=parts)
    without = replace(facts, parts=replace(parts, compute_ns=0))
    all_but_computing = sum(pieces_of(without).values())
    assert all_but_computing == pytest.approx(parts.host_ns + parts.copy_ns + parts.sync_ns + parts.boundary_ns)
    assert 0 <= sum(pieces_of(facts).values()) - all_but_computing <= parts.compute_ns


ALWAYS_MEASURED = ("told", "unfed_share", "overhead_ns")


def less_known(facts: Facts) -> Iterator[tuple[str, Facts]]:
    """The facts without one of their figures, each in turn."""
    for part in ("loader", "sampled", "waits", ""):
        whole = getattr(facts, part) if part else facts
        for field in fields(whole):
            is_figure = field.type == "float" and field.name not in ALWAYS_MEASURED
            value = getattr(whole, field.name)
            if (is_figure or "None" in str(field.type)) and value is not None and value == value:
                less = replace(whole, **{field.name: math.nan if is_figure else None})
                yield f"{part}.{field.name}", replace(facts, **{part: less}) if part else less


@pytest.mark.parametrize("name", singles.BUILDERS)
def test_no_cause_newly_appears_where_a_figure_was_not_measured(tmp_path: Path, name: str) -> None:
    """But one that is asked later, and explains what a cause does no more whose evidence is gone."""
    singles.BUILDERS[name](tmp_path)
    (folder,) = (each for each in tmp_path.iterdir() if (each / "run.json").exists())
    known = facts_of(open_run(folder))
    if known is None:
        return
    facts = replace(known, advice=None)
    first, last = ({rule.code: at for at, rule in each} for each in ([*enumerate(ORDER)][::-1], enumerate(ORDER)))
    causes = {each.cause for each in findings_of(facts)}
    wrong = []
    for figure, less in less_known(facts):
        seen = {each.cause for each in findings_of(less)}
        gone = min((first[str(code)] for code in causes - seen), default=len(ORDER))
        if any(last[str(code)] < gone for code in seen - causes):
            wrong.append((figure, causes, seen))
    assert wrong == []
