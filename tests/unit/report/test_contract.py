"""The structures of the contract: what pages say of them, and what of Python becomes JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.cells.cost import Price, spent
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.resource_usage import WorkerDeath
from whyidle.analyse.statistics import Speedup
from whyidle.record.check import Check
from whyidle.record.run import open_run
from whyidle.report.contract.encode import builtins, cause, next_of
from whyidle.report.contract.run import report

PAGES = Path(__file__).parents[3] / "docs" / "commands"
EXPECTED = Path(__file__).parents[2] / "golden" / "expected"
CHANGE = Next("do it", 2.0, 1.0, 3.0, "once", Speedup(2.0, 1.0, 3.0, to_try=True), {"num_workers": 2})
SHARED = frozenset((*cause(Finding("none", "", 0.0, 1.0)), *next_of(CHANGE), "value"))
"""Keys of a cause and of a change, which other results hold, too."""
VALUES = re.compile(r': "[^"]*"(?: \| "[^"]*")*|\["\w+"\]')


def test_the_pages_of_checks_name_their_keys_alone() -> None:
    assert_names_all("check", keys_within(json.loads((EXPECTED / "check" / "passes.json").read_text())), SHARED)
    machine = {"format": "whyidle-doctor", "version": 1, "checks": [Check("CPU", "Steal", "ok", "Little.")]}
    told = builtins(machine)
    values = {"group": "CPU", "name": "Steal", "status": "ok", "says": "Little.", "lost": "", "fix": "", "values": {}}
    assert told["checks"] == [values]
    assert_names_all("doctor", keys_within(told), SHARED)


def test_the_page_of_diff_names_the_keys_of_differences_that_are_kept() -> None:
    kept = [found for file in EXPECTED.glob("diff-*/diff.json") if "format" in (found := json.loads(file.read_text()))]
    # No difference that is kept followed an advice.
    advised = {"cause", "advice", "is_set", "measured", "kept", *builtins(next_of(CHANGE))}
    assert_names_all("diff", advised.union(*map(keys_within, kept)), SHARED)


def assert_names_all(page: str, known: set[str], further: frozenset[str] = frozenset()) -> None:
    text = (PAGES / f"{page}.md").read_text()
    shapes = re.findall(r'```\n(\{"format".*?)```|`(\{"format".*?)`', text, re.DOTALL)
    named = set(re.findall(r'"(\w+)"', VALUES.sub("", "".join(map("".join, shapes)))))
    assert named <= known | further
    assert known - named <= set(re.findall(r"`(\w+)`", text))


def keys_within(found: Any) -> set[str]:
    """But for those of objects that a program or a scenario names."""
    if isinstance(found, dict):
        free = ("host", "dataset", "settings")
        return set(found).union(*(keys_within(within) for key, within in found.items() if key not in free))
    return set().union(*map(keys_within, found)) if isinstance(found, list) else set()


def test_the_page_of_a_report_names_its_keys_alone(starved: Path) -> None:
    """All that golden's reports have, and those of what happens seldom."""
    outputs = (json.loads(path.read_text()) for path in EXPECTED.glob("*/*.json"))
    reports = [each for each in outputs if isinstance(each, dict) and each.get("format") == "whyidle-report"]
    analysis = analyse(open_run(starved))
    decoding = {"files": 8, "decoder": "PIL", "cores": 2, "one_core": 50.0, "all_cores": 99.0}
    dead = WorkerDeath(4711, 0, -9, 1.5, "a reason", "a way out")
    seldom = replace(analysis, deaths=(dead,), info={**analysis.info, "image_decoding": decoding})
    rare = builtins(report(seldom, spent(Price(usd_per_hour=3.0), seldom.duration_s, [])))
    assert (rare["worker_deaths"][0]["signal"], rare["image_decoding"]) == ("SIGKILL", decoding)
    assert_names_all("report", keys_within([*reports, rare]))


def test_what_is_not_finite_is_null_and_sizes_are_words_as_json_has_it() -> None:
    assert builtins({"figure": nan, "by_size": {8: (1.0, inf)}}) == {"figure": None, "by_size": {"8": [1.0, None]}}
    assert builtins({"a": np.float64(0.5), "b": [np.float64(nan)]}) == {"a": 0.5, "b": [None]}


def test_what_json_has_no_value_for_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        builtins({"folder": Path("/")})
