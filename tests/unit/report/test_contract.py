"""The structures of the contract: what pages say of them, and what of Python becomes JSON."""

from __future__ import annotations

import json
import re
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from whyidle.analyse.causes.finding import Next
from whyidle.analyse.speedup import Speedup
from whyidle.report.contract.checks import LimitsJson, MachineJson
from whyidle.report.contract.common import next_of
from whyidle.report.contract.encode import beside, builtins
from whyidle.report.contract.roofline import RooflineResultJson
from whyidle.report.contract.run import ReportJson

PAGES = Path(__file__).parents[3] / "docs" / "commands"
VALUES = re.compile(r': "[^"]*"(?: \| "[^"]*")*|\["\w+"\]')


def keys(found: Any, seen: set[int]) -> set[str]:
    if id(found) in seen:
        return set()
    seen.add(id(found))
    if isinstance(found, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        return {each.encode_name for each in found.fields}.union(*(keys(each.type, seen) for each in found.fields))
    within = [getattr(found, name, None) for name in ("item_type", "value_type")]
    return set().union(*(keys(each, seen) for each in (*within, *getattr(found, "types", ()))))


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("report", ReportJson),
        ("check", LimitsJson),
        ("doctor", MachineJson),
        ("roofline", RooflineResultJson),
    ],
)
def test_a_page_names_the_keys_of_its_json_alone(page: str, kind: type[msgspec.Struct]) -> None:
    assert_names(page, keys(msgspec.inspect.type_info(kind), set()))


def test_the_page_of_diff_names_the_keys_of_differences_that_are_kept() -> None:
    files = (Path(__file__).parents[2] / "golden" / "expected").glob("diff-*/diff.json")
    kept = [found for file in files if "format" in (found := json.loads(file.read_text()))]
    # No difference that is kept followed an advice.
    advised = {"cause", "advice", "is_set", "measured", "kept", *builtins(next_of(CHANGE))}
    assert_names("diff", advised.union(*map(keys_within, kept)))


CHANGE = Next("do it", 2.0, 1.0, 3.0, "once", Speedup(2.0, 1.0, 3.0, to_try=True), {"num_workers": 2})


def keys_within(found: Any) -> set[str]:
    within = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return set(found if isinstance(found, dict) else ()).union(*map(keys_within, within))


def assert_names(page: str, known: set[str]) -> None:
    text = (PAGES / f"{page}.md").read_text()
    shapes = re.findall(r'```\n(\{"format".*?)```|`(\{"format".*?)`', text, re.DOTALL)
    named = set(re.findall(r'"(\w+)"', VALUES.sub("", "".join(map("".join, shapes)))))
    assert named <= known
    assert known - named <= set(re.findall(r"`(\w+)`", text))


class _Some(msgspec.Struct):
    figure: float | None
    by_size: dict[int, tuple[float, ...]]
    absent: int | msgspec.UnsetType = msgspec.UNSET


def test_what_is_not_finite_is_null_and_sizes_are_words_as_json_has_it() -> None:
    assert builtins(_Some(nan, {8: (1.0, inf)})) == {"figure": None, "by_size": {"8": [1.0, None]}}
    assert builtins({"a": np.float64(0.5), "b": [np.float64(nan)]}) == {"a": 0.5, "b": [None]}


def test_what_json_has_no_value_for_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        builtins({"folder": Path("/")})


def test_keys_of_the_contract_stand_beside_others_and_win() -> None:
    assert beside({"net": "ssd", "figure": "theirs"}, _Some(1.0, {}, 2)) == {
        "net": "ssd",
        "figure": 1.0,
        "by_size": {},
        "absent": 2,
    }
