"""The structures of the contract: what pages say of them, and what of Python becomes JSON."""

from __future__ import annotations

import re
from math import inf, nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from whyidle.report.contract.checks import LimitsJson, MachineJson
from whyidle.report.contract.diff import DifferenceJson
from whyidle.report.contract.encode import beside, builtins
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
        ("diff", DifferenceJson),
        ("check", LimitsJson),
        ("doctor", MachineJson),
    ],
)
def test_a_page_names_the_keys_of_its_json_alone(page: str, kind: type[msgspec.Struct]) -> None:
    text = (PAGES / f"{page}.md").read_text()
    known = keys(msgspec.inspect.type_info(kind), set())
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
